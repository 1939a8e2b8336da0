"""Resources as steps get them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel

from loom import Event, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import WorkflowValidationError
from loom.steps.resources import Resource, ResourceConfig, ResourceManager


class Client:
    made = 0

    def __init__(self) -> None:
        Client.made += 1


class Go(Event):
    pass


def make_client() -> Client:
    return Client()


async def make_client_async() -> Client:
    await asyncio.sleep(0)
    return Client()


class Uses(Workflow):
    @step
    async def start(self, ev: StartEvent, client: Annotated[Client, Resource(make_client)]) -> Go:
        self.first = client
        return Go()

    @step
    async def end(self, ev: Go, client: Annotated[Client, Resource(make_client)]) -> StopEvent:
        return StopEvent(result=client is self.first)


async def test_cached_resource_is_made_once_per_workflow_instance():
    Client.made = 0
    workflow = Uses(timeout=5)
    assert await workflow.run()
    assert await workflow.run()
    assert Client.made == 1
    assert await Uses(timeout=5).run()
    assert Client.made == 2


async def test_managers_can_be_shared():
    Client.made = 0
    manager = ResourceManager()
    await Uses(timeout=5, resource_manager=manager).run()
    await Uses(timeout=5, resource_manager=manager).run()
    assert Client.made == 1


async def test_uncached_resource_is_made_for_every_execution():
    class Fresh(Workflow):
        @step
        async def start(self, ev: StartEvent, client: Annotated[Client, Resource(make_client, cache=False)]) -> Go:
            self.first = client
            return Go()

        @step
        async def end(self, ev: Go, client: Annotated[Client, Resource(make_client, cache=False)]) -> StopEvent:
            return StopEvent(result=client is self.first)

    assert await Fresh(timeout=5).run() is False


async def test_async_factory_and_resource_of_a_resource():
    def wrap(inner: Annotated[Client, Resource(make_client_async)]) -> list[Client]:
        return [inner]

    class Wrapped(Workflow):
        @step
        async def start(self, ev: StartEvent, wrapped: Annotated[list, Resource(wrap)]) -> StopEvent:
            return StopEvent(result=type(wrapped[0]).__name__)

    assert await Wrapped(timeout=5).run() == "Client"


async def test_failing_factory_fails_the_step():
    def broken() -> Client:
        raise ConnectionError("no server")

    class Broken(Workflow):
        @step
        async def start(self, ev: StartEvent, client: Annotated[Client, Resource(broken)]) -> StopEvent:
            return StopEvent()

    with pytest.raises(ConnectionError, match="no server"):
        await Broken(timeout=5).run()


class Settings(BaseModel):
    host: str
    port: int = 80


async def test_config_resource_is_read_from_json(tmp_path: Path):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"db": {"host": "localhost"}}))

    class Configured(Workflow):
        @step
        async def start(
            self, ev: StartEvent, settings: Annotated[Settings, ResourceConfig(str(path), path_selector="db")]
        ) -> StopEvent:
            return StopEvent(result=(settings.host, settings.port))

    assert await Configured(timeout=5).run() == ("localhost", 80)


async def test_bad_config_file_is_found_by_validation(tmp_path: Path):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"port": "no number"}))

    class Configured(Workflow):
        @step
        async def start(self, ev: StartEvent, settings: Annotated[Settings, ResourceConfig(str(path))]) -> StopEvent:
            return StopEvent()

    with pytest.raises(WorkflowValidationError, match="Resource config validation failed:"):
        Configured(timeout=5).validate()
    with pytest.raises(WorkflowValidationError, match="Resource config validation failed:"):
        Configured(timeout=5).run()


async def test_two_steps_that_want_the_same_slow_resource_share_one_resolution():
    async def slow() -> Client:
        await gate.wait()
        return Client()

    class Both(Workflow):
        got: list[Client]

        @step
        async def one(self, ev: StartEvent, client: Annotated[Client, Resource(slow)]) -> StopEvent | None:
            return self._took(client)

        @step
        async def two(self, ev: StartEvent, client: Annotated[Client, Resource(slow)]) -> StopEvent | None:
            return self._took(client)

        def _took(self, client: Client) -> StopEvent | None:
            self.got.append(client)
            return StopEvent(result=self.got[0] is self.got[1]) if len(self.got) == 2 else None

    Client.made = 0
    gate = asyncio.Event()
    workflow = Both(timeout=5)
    workflow.got = []
    handler = workflow.run()
    await asyncio.sleep(0)
    gate.set()
    assert await handler
    assert Client.made == 1


async def test_two_lambdas_are_two_resources():
    class Lambdas(Workflow):
        @step
        async def start(
            self, ev: StartEvent, a: Annotated[str, Resource(lambda: "a")], b: Annotated[str, Resource(lambda: "b")]
        ) -> StopEvent:
            return StopEvent(result=a + b)

    assert await Lambdas(timeout=5).run() == "ab"


def first_of_cycle(other: Annotated[str, Resource(lambda: "replaced below")]) -> str:
    return other


def second_of_cycle(other: Annotated[str, Resource(first_of_cycle)]) -> str:
    return other


first_of_cycle.__annotations__["other"] = Annotated[str, Resource(second_of_cycle)]


async def test_cycle_of_resources_is_named():
    class Cyclic(Workflow):
        @step
        async def start(self, ev: StartEvent, a: Annotated[str, Resource(first_of_cycle)]) -> StopEvent:
            return StopEvent(result=a)

    with pytest.raises(ValueError, match=r"Circular resource dependency detected: .*first_of\w+ -> .*second_of_cycle"):
        await Cyclic(timeout=5).run()


def needy() -> int:
    raise RuntimeError("no key")


class Needs(Workflow):
    @step
    async def start(self, ev: StartEvent, key: Annotated[int, Resource(needy)]) -> StopEvent:
        return StopEvent(result=key)


def test_resources_can_be_tried_before_a_run():
    assert Needs(timeout=5).validate() is False
    with pytest.raises(WorkflowValidationError) as caught:
        Needs(timeout=5).validate(validate_resources=True)
    assert str(caught.value) == "Resource validation failed:\n  - In step 'start', parameter 'key': no key"


async def test_resources_can_be_tried_while_an_event_loop_runs():
    with pytest.raises(WorkflowValidationError, match="no key"):
        Needs(timeout=5).validate(validate_resources=True)
