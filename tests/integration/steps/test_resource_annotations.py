"""Names in the annotations of factories: those of the factory's module win over those around the step that asks."""

from __future__ import annotations

from typing import Annotated, Any

import foreign_factories
import pytest

from loom import StartEvent, StopEvent, Workflow, step
from loom.steps.resources import Resource

FACTORIES = ["plain", "asynchronous", "decorated", "Maker", "bound", "callable_object", "partially"]


class Client:
    """Has the name of a class in the module of the factories."""

    origin = "module of the step"


def make_client() -> Client:
    """Has the name of a factory in the module of the factories."""
    return Client()


@pytest.mark.parametrize("name", FACTORIES)
async def test_names_around_the_step_do_not_shadow_those_of_a_factory(name: str) -> None:
    factory = getattr(foreign_factories, name)
    make_client = "no factory"

    class Client:
        origin = "around the step"

    class Asks(Workflow):
        @step
        async def ask(self, ev: StartEvent, made: Annotated[Any, Resource(factory)]) -> StopEvent:
            return StopEvent(result=(str(made), Client.origin, make_client))

    assert await Asks(timeout=5).run() == ("foreign", "around the step", "no factory")


async def test_a_local_class_shadows_that_of_the_module_for_the_step_that_names_it() -> None:
    class Client:
        origin = "local"

    def make_local() -> Client:
        return Client()

    class Asks(Workflow):
        @step
        async def ask(
            self,
            ev: StartEvent,
            local: Annotated[Client, Resource(make_local)],
            its: Annotated[Any, Resource(make_client)],
        ) -> StopEvent:
            return StopEvent(result=(local.origin, its.origin))

    assert await Asks(timeout=5).run() == ("local", "module of the step")


async def test_names_that_only_the_surroundings_of_the_step_have_are_found_from_its_factories() -> None:
    class Local:
        origin = "local"

    def make_local() -> Local:
        return Local()

    def make(local: Annotated[Local, Resource(make_local)]) -> str:
        return local.origin

    class Asks(Workflow):
        @step
        async def ask(self, ev: StartEvent, made: Annotated[str, Resource(make)]) -> StopEvent:
            return StopEvent(result=made)

    assert await Asks(timeout=5).run() == "local"
