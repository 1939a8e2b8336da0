"""The parameters of `Workflow` at run time: they are taken, leave nothing behind, and get in nobody's way."""

from __future__ import annotations

import warnings
from typing import Any, Generic, TypeVar

import pytest
from pydantic import BaseModel

from loom import StartEvent, StopEvent, Workflow, WorkflowHandler, step
from loom.steps.workflow import WorkflowMeta
from loom.testing import WorkflowTestResult, WorkflowTestRunner


class Question(StartEvent):
    text: str


class Answer(StopEvent):
    words: list[str]


class Typed(Workflow[Question, Answer]):
    @step
    async def answer(self, ev: Question) -> Answer:
        return Answer(words=ev.text.split())


def test_parameters_leave_nothing_behind() -> None:
    assert Typed.__bases__ == (Workflow,)
    assert not hasattr(Typed, "__orig_bases__")
    assert Generic not in Typed.__mro__
    assert Typed[Any] is Typed  # type: ignore[misc]


async def test_a_workflow_with_parameters_runs_as_others_do() -> None:
    handler: WorkflowHandler[Answer] = Typed().run(text="a b")
    assert (await handler).words == ["a", "b"]
    done: WorkflowTestResult[Answer] = await WorkflowTestRunner(Typed()).run(Question(text="c"))
    assert done.result.words == ["c"]


def test_the_steps_say_which_events_begin_and_end_a_run() -> None:
    workflow = Typed()
    assert workflow.start_event_class is Question
    assert workflow.stop_event_class is Answer

    class Otherwise(Workflow[Question, StopEvent]):
        @step
        async def answer(self, ev: StartEvent) -> Answer:
            return Answer(words=[])

    assert Otherwise().start_event_class is StartEvent
    assert Otherwise().stop_event_class is Answer


AnswerT = TypeVar("AnswerT", bound=StopEvent)


def test_a_workflow_may_be_generic_itself() -> None:
    class Made(Workflow[Question, AnswerT], Generic[AnswerT]):
        @step
        async def answer(self, ev: Question) -> Answer:
            return Answer(words=[ev.text])

    class Mine(Made[Answer]):
        pass

    assert Mine.__mro__[1] is Made
    assert Mine().run_sync(text="a").words == ["a"]


class _Both(WorkflowMeta, type(BaseModel)):  # type: ignore[misc]
    """What makes a class a workflow and a model, as the agents of llama-index-core are."""


@pytest.mark.parametrize("first", ["workflow", "model"])
async def test_a_model_that_is_a_workflow_causes_no_warning(first: str) -> None:
    bases = (Workflow, BaseModel) if first == "workflow" else (BaseModel, Workflow)

    class Base(*bases, metaclass=_Both):  # type: ignore[misc]
        name: str

        def __init__(self, **fields: Any) -> None:
            BaseModel.__init__(self, **fields)
            Workflow.__init__(self)

        @step
        async def answer(self, ev: Question) -> Answer:
            return Answer(words=[self.name, ev.text])

    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Agent(Base):
            size: int = 1

        result = await Workflow.run(Agent(name="a"), text="b")
    assert result.words == ["a", "b"]


def test_a_generic_model_that_is_a_workflow_keeps_its_own_parameters() -> None:
    class Box(Workflow, BaseModel, Generic[AnswerT], metaclass=_Both):  # type: ignore[misc]
        inside: AnswerT | None = None

    fields = Box[Answer].model_fields
    assert fields["inside"].annotation == Answer | None
