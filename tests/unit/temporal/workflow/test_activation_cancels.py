"""A cancel comes before all else that an activation brings, in runs whose history says so."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from hand_made import HandMade, argument_of, code_of, inbox_signal, kinds, task_of

from loom import Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.ticks import TickAddEvent, TickCancelRun, TickStartRun, TickStepResult
from loom.runtime.durable.registration import Registration
from loom.store import codec
from loom.temporal import names
from loom.temporal.bridge import activations
from loom.temporal.payloads import ChunkQuery, Chunks, CodeRequest, CodeView, RunMessage, payload_of, value_of
from loom.temporal.workflow.policy import CANCELS_FIRST, DOUBTS_SIGNALS, FLAG_BASE

CANCEL = TickCancelRun(at=0.0)


class Dyed(Event):
    colour: str = "red"


class Approval(HumanResponseEvent):
    by: str = "nobody"


class Weaving(Workflow):
    @step
    async def dye(self, ev: StartEvent) -> Dyed:
        return Dyed()

    @step
    async def weave(self, ev: Dyed) -> StopEvent:
        return StopEvent(result=ev.colour)

    @step
    async def approve(self, ev: Approval) -> StopEvent:
        return StopEvent(result=ev.by)


@pytest.fixture
def code() -> Registration:
    return code_of(Weaving(timeout=None))


def ticks_of(run: HandMade) -> list[Any]:
    chunks = run.answer(names.QUERY_CHUNKS, Chunks, ChunkQuery()).chunks
    return [tick for chunk in chunks for tick in codec.decode_ticks("run-1", chunk)]


def told_code(code: Registration, commands: list[Any]) -> Any:
    job = activations.WorkflowActivationJob()
    job.resolve_activity.seq = commands[0].schedule_activity.seq
    job.resolve_activity.result.completed.result.CopyFrom(payload_of(CodeView(code.config)))
    return job


def of_temporal() -> Any:
    job = activations.WorkflowActivationJob()
    job.cancel_workflow.SetInParent()
    return job


def by_update() -> Any:
    job = activations.WorkflowActivationJob()
    job.do_update.id = job.do_update.protocol_instance_id = "1"
    job.do_update.name = names.UPDATE_TELL
    job.do_update.input.append(payload_of(RunMessage(CANCEL)))
    return job


@pytest.mark.parametrize("cancel", [lambda: inbox_signal(CANCEL), of_temporal, by_update])
def test_a_start_that_is_cancelled_begins_without_its_event(code: Registration, cancel: Any) -> None:
    run = HandMade(code)
    commands = run.start(run.event(Approval()), cancel())
    assert kinds(commands)[-1] == "cancel_workflow_execution"
    assert "schedule_activity" not in kinds(commands)
    start, cancelled = ticks_of(run)[:2]
    assert (type(start), start.event, type(cancelled)) == (TickStartRun, None, TickCancelRun)


def test_a_start_without_code_is_cancelled_before_the_class_of_its_event_is_asked(code: Registration) -> None:
    run = HandMade(code, argument_of(code, {"colour": "red"}, config=None))
    asked = run.start(inbox_signal(CANCEL))
    assert value_of(asked[0].schedule_activity.arguments[0], CodeRequest).start == ""
    assert kinds(run.activate(told_code(code, asked)))[-1] == "cancel_workflow_execution"
    assert [type(tick) for tick in ticks_of(run)] == [TickStartRun, TickCancelRun]
    assert ticks_of(run)[0].event is None


def test_a_cancel_that_comes_while_the_code_is_asked_for_is_in_time(code: Registration) -> None:
    run = HandMade(code, argument_of(code, config=None))
    asked = run.start(run.event(Approval()))
    assert value_of(asked[0].schedule_activity.arguments[0], CodeRequest).start
    assert run.activate(inbox_signal(CANCEL)) == []
    assert kinds(run.activate(told_code(code, asked)))[-1] == "cancel_workflow_execution"
    assert [type(tick) for tick in ticks_of(run)] == [TickStartRun, TickCancelRun]


@pytest.mark.parametrize(
    ("flags", "order"),
    [
        ((FLAG_BASE, DOUBTS_SIGNALS), [TickAddEvent, TickStepResult, TickCancelRun]),
        ((FLAG_BASE, DOUBTS_SIGNALS, CANCELS_FIRST), [TickCancelRun]),
    ],
)
def test_what_comes_with_a_cancel_comes_after_it_if_the_history_says_so(
    code: Registration, flags: tuple[int, ...], order: list[type]
) -> None:
    run = HandMade(code, replaying=True, flags=flags)
    (dye,) = run.start()
    before = len(ticks_of(run))
    run.activate(run.event(Approval()), run.returned(dye, Dyed()), inbox_signal(CANCEL))
    assert [type(tick) for tick in ticks_of(run)][before : before + len(order)] == order


def test_a_letter_that_only_names_a_cancel_is_none(code: Registration) -> None:
    run = HandMade(code)
    commands = run.start(run.event(Approval(by="TickCancelRun")))
    assert [task_of(command).command.step for command in commands] == ["dye", "approve"]
