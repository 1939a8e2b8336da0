"""Workflows that do not hold together are refused, with a message that says where."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from loom import (
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    catch_error,
    step,
)
from loom.steps.errors import WorkflowConfigurationError, WorkflowValidationError
from loom.steps.events import StepFailedEvent


class A(Event):
    pass


class B(Event):
    pass


class Ask(InputRequiredEvent):
    pass


class Reply(HumanResponseEvent):
    pass


class Start1(StartEvent):
    pass


class Start2(StartEvent):
    pass


class Stop1(StopEvent):
    pass


class Stop2(StopEvent):
    pass


class Good(Workflow):
    @step
    async def start(self, ev: StartEvent) -> A:
        return A()

    @step
    async def end(self, ev: A) -> StopEvent:
        return StopEvent(result="good")


def test_good_workflow_has_no_human_in_the_loop():
    assert Good().validate() is False


def test_human_in_the_loop_is_found():
    class Human(Workflow):
        @step
        async def ask(self, ev: StartEvent) -> Ask:
            return Ask()

        @step
        async def end(self, ev: Reply) -> StopEvent:
            return StopEvent()

    assert Human().validate() is True


def test_workflow_without_a_start_is_refused_by_the_constructor():
    class NoStart(Workflow):
        @step
        async def end(self, ev: A) -> StopEvent:
            return StopEvent()

    with pytest.raises(
        WorkflowConfigurationError, match=r"^At least one Event of type StartEvent must be received by any step\."
    ):
        NoStart()


def test_workflow_without_an_end_is_refused_by_the_constructor():
    class NoStop(Workflow):
        @step
        async def start(self, ev: StartEvent) -> A:
            return A()

    with pytest.raises(
        WorkflowConfigurationError, match=r"^At least one Event of type StopEvent must be returned by any step\."
    ):
        NoStop()


def test_two_start_events_are_refused():
    class Two(Workflow):
        @step
        async def one(self, ev: Start1) -> StopEvent:
            return StopEvent()

        @step
        async def two(self, ev: Start2) -> StopEvent:
            return StopEvent()

    with pytest.raises(
        WorkflowConfigurationError, match=r"^Only one type of StartEvent is allowed per workflow, found 2"
    ):
        Two()


def test_two_stop_events_are_refused():
    class Two(Workflow):
        @step
        async def one(self, ev: StartEvent) -> Stop1 | Stop2:
            return Stop1()

    with pytest.raises(
        WorkflowConfigurationError, match=r"^Only one type of StopEvent is allowed per workflow, found 2"
    ):
        Two()


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "3", lambda: 2, len, int])
def test_bad_num_concurrent_runs(limit: Any):
    """A number, not something that gives one: the limit is that of the instance from its first run on."""
    with pytest.raises(WorkflowValidationError, match="num_concurrent_runs"):
        Good(num_concurrent_runs=limit)


def test_unknown_graph_check():
    with pytest.raises(WorkflowValidationError, match=r"^Unknown graph check names: nonsense"):
        Good(skip_graph_checks={"nonsense"})


def test_event_that_is_consumed_but_never_produced():
    class Unmade(Good):
        @step
        async def other(self, ev: B) -> StopEvent:
            return StopEvent()

    with pytest.raises(WorkflowValidationError, match=r"^The following events are consumed but never produced: B"):
        Unmade().validate()


def test_event_that_is_produced_but_never_consumed():
    class Untaken(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent | B:
            return B()

    with pytest.raises(WorkflowValidationError, match=r"^The following events are produced but never consumed: B"):
        Untaken().validate()


async def test_run_validates():
    class Untaken(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent | B:
            return StopEvent(result="ran")

    with pytest.raises(WorkflowValidationError):
        Untaken(timeout=5).run()
    assert await Untaken(timeout=5, disable_validation=True).run() == "ran"


def test_stop_event_is_no_input():
    class Takes(Good):
        @step
        async def after(self, ev: StopEvent) -> None:
            return None

    with pytest.raises(WorkflowValidationError, match=r"Step 'after' cannot accept StopEvent\."):
        Takes().validate()


def test_unreachable_and_dead_ends_are_listed():
    class Island(Workflow):
        @step
        async def start(self, ev: StartEvent) -> StopEvent:
            return StopEvent()

        @step
        async def ping(self, ev: A) -> B:
            return B()

        @step
        async def pong(self, ev: B) -> A:
            return A()

    with pytest.raises(WorkflowValidationError) as raised:
        Island().validate()
    lines = str(raised.value).splitlines()
    assert lines[0] == "Graph validation failed:"
    assert any(line.startswith("  - [reachability] Unreachable steps: ") for line in lines)
    assert Island(skip_graph_checks={"reachability", "dead_end", "terminal_event"}).validate() is False


def test_join_without_a_stream():
    class NoStream(Workflow):
        @step
        async def start(self, ev: StartEvent) -> A:
            return A()

        @step
        async def join(self, found: list[A]) -> StopEvent:
            return StopEvent()

    with pytest.raises(
        WorkflowValidationError, match=r"collects list\[A\], but no returned-list producer creates a stream"
    ):
        NoStream().validate()


def test_slots_on_different_levels():
    class Levels(Workflow):
        @step
        async def split(self, ev: StartEvent) -> list[A]:
            return [A()]

        @step
        async def other(self, ev: StartEvent) -> B:
            return B()

        @step
        async def pair(self, a: A, b: B) -> StopEvent:
            return StopEvent()

    with pytest.raises(WorkflowValidationError, match="never produced at a common stream level"):
        Levels().validate()


def test_signatures_are_checked_by_the_decorator():
    with pytest.raises(
        WorkflowValidationError,
        match=r"^Step signature must have at least one parameter annotated as type Event \(Step 'start'\)",
    ):

        class NoEvent(Workflow):
            @step
            async def start(self, x: int) -> StopEvent:
                return StopEvent()

    with pytest.raises(
        WorkflowValidationError,
        match=r"^Return types of workflows step functions must be annotated with their type\. \(Step 'start'\)",
    ):

        class NoReturn(Workflow):
            @step
            async def start(self, ev: StartEvent):
                return StopEvent()

    with pytest.raises(WorkflowValidationError, match="Async-iterator fan-out"):

        class Iterates(Workflow):
            @step
            async def start(self, ev: StartEvent) -> AsyncIterator[A]:
                yield A()

    with pytest.raises(WorkflowValidationError, match=r"^num_workers must be an integer greater than 0 \(Step 's"):

        class NoWorkers(Workflow):
            @step(num_workers=0)
            async def start(self, ev: StartEvent) -> StopEvent:
                return StopEvent()


def test_unknown_name_in_an_annotation_is_named():
    with pytest.raises(WorkflowValidationError, match=r"^Failed to resolve type annotations for.*"):

        class Unknown(Workflow):
            @step
            async def start(self, ev: NoSuchEvent) -> StopEvent:  # noqa: F821 - the subject
                return StopEvent()


def test_handlers_are_checked():
    class TwoWildcards(Good):
        @catch_error
        async def one(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

        @catch_error
        async def two(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

    with pytest.raises(WorkflowValidationError, match=r"^Only one wildcard @catch_error handler is allowed per"):
        TwoWildcards().validate()

    class Unknown(Good):
        @catch_error(for_steps=["nowhere"])
        async def one(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

    with pytest.raises(WorkflowValidationError, match=r"lists unknown step 'nowhere' in for_steps\."):
        Unknown().validate()

    class Claimed(Good):
        @catch_error(for_steps=["start"])
        async def one(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

        @catch_error(for_steps=["start"])
        async def two(self, ev: StepFailedEvent) -> StopEvent:
            return StopEvent()

    with pytest.raises(WorkflowValidationError, match="Step 'start' is claimed by two @catch_error handlers"):
        Claimed().validate()

    with pytest.raises(WorkflowValidationError, match="must accept StepFailedEvent"):

        class Wrong(Good):
            @catch_error
            async def one(self, ev: A) -> StopEvent:
                return StopEvent()
