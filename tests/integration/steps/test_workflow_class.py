"""Workflow classes: free functions, steps that come later, properties, local events."""

from __future__ import annotations

import abc
import copy

import pytest
from pydantic import BaseModel
from steps_rig import outcome_of

from loom import (
    Context,
    Event,
    StartEvent,
    StopEvent,
    Workflow,
    step,
)
from loom.steps.errors import WorkflowConfigurationError, WorkflowValidationError
from loom.steps.graph import external_types
from loom.steps.workflow import WorkflowMeta


class A(Event):
    pass


class B(Event):
    pass


class Good(Workflow):
    @step
    async def start(self, ev: StartEvent) -> A:
        return A()

    @step
    async def end(self, ev: A) -> StopEvent:
        return StopEvent(result="good")


def test_free_function_needs_its_workflow():
    with pytest.raises(
        WorkflowValidationError, match=r"^To decorate lonely please pass a workflow class to the @step decorator."
    ):

        @step
        async def lonely(ev: StartEvent) -> StopEvent:
            return StopEvent()


async def test_free_functions_are_steps_of_exactly_their_class():
    class Base(Workflow):
        pass

    @step(workflow=Base)
    async def begin(ev: StartEvent) -> StopEvent:
        return StopEvent(result="free")

    class Derived(Base):
        pass

    assert await Base(timeout=5).run() == "free"
    with pytest.raises(WorkflowConfigurationError):
        Derived()


async def test_step_added_later_is_validated_and_used():
    class Grows(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result="old")

    workflow = Grows(timeout=5)
    assert await workflow.run() == "old"

    @step(workflow=Grows)
    async def extra(ctx: Context, ev: B) -> StopEvent:
        return StopEvent()

    with pytest.raises(WorkflowValidationError, match="consumed but never produced: B"):
        workflow.run()


def test_step_of_a_name_that_exists_is_refused():
    with pytest.raises(
        WorkflowValidationError, match=r"^A step end is already part of this workflow, please choose another name\."
    ):

        @step(workflow=Good)
        async def end(ev: A) -> StopEvent:
            return StopEvent()


def test_properties():
    workflow = Good()
    assert workflow.workflow_name == f"{Good.__module__}.{Good.__qualname__}"
    assert Good(workflow_name="mine").workflow_name == "mine"
    assert workflow.start_event_class is StartEvent
    assert workflow.stop_event_class is StopEvent
    assert set(workflow.events) == {StartEvent, A, StopEvent}
    assert workflow.serializer is None
    assert workflow.runtime is not None


async def test_local_events_and_nested_workflows():
    class Local(Event):
        n: int = 1

    class Nested(Workflow):
        @step
        async def start(self, ev: StartEvent) -> Local:
            return Local(n=2)

        @step
        async def end(self, ev: Local) -> StopEvent:
            return StopEvent(result=ev.n)

    assert await outcome_of(Nested(timeout=5).run()) == 2


async def test_workflow_may_be_a_pydantic_model_first_of_all():
    class ModelMeta(WorkflowMeta, type(BaseModel)):  # type: ignore[misc]
        pass

    class Agent(BaseModel, Workflow, metaclass=ModelMeta):
        name: str

        def __init__(self, **values: object) -> None:
            BaseModel.__init__(self, **values)
            Workflow.__init__(self, timeout=5)

        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=self.name)

    assert await Agent(name="Ada").run() == "Ada", "its own validate() is pydantic's"


async def test_a_pydantic_model_declares_what_comes_from_outside():
    class ModelMeta(WorkflowMeta, type(BaseModel)):  # type: ignore[misc]
        pass

    class Note(Event):
        text: str = ""

    class Agent(BaseModel, Workflow, metaclass=ModelMeta):
        name: str

        def __init__(self, **values: object) -> None:
            BaseModel.__init__(self, **values)
            Workflow.__init__(self, timeout=5)

        @step(external_events=[Note])
        async def start(self, ctx: Context, ev: StartEvent) -> StopEvent:
            return StopEvent(result=(await ctx.wait_for_event(Note)).text)

    agent = Agent(name="Ada")
    assert external_types(agent._step_configs()) == [Note]
    handler = agent.run()
    handler.ctx.send_event(Note(text="hi"))
    assert await handler == "hi"


async def test_private_names_of_a_class_are_its_authors():
    class Own(Workflow):
        def __init__(self):
            super().__init__(timeout=5)
            self._config = self._start_event = self._bound = self._resources = self._state_type = "own"

        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=self._config)

    assert await Own().run() == "own"


async def test_a_copy_of_a_workflow_runs_its_own_steps():
    class Named(Workflow):
        name = "first"

        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=self.name)

    first = Named(timeout=5)
    assert await first.run() == "first"
    second = copy.copy(first)
    second.name = "second"
    assert [await second.run(), await first.run()] == ["second", "first"]


async def test_workflow_may_be_abstract():
    class AbstractMeta(WorkflowMeta, abc.ABCMeta):
        pass

    class Base(Workflow, metaclass=AbstractMeta):
        @abc.abstractmethod
        def value(self) -> int: ...

        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result=self.value())

    class Concrete(Base):
        def value(self) -> int:
            return 5

    with pytest.raises(TypeError, match="abstract"):
        Base()
    assert await Concrete(timeout=5).run() == 5
