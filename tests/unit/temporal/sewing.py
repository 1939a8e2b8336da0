"""A small workflow for hand-made activations, what its bodies do, and what other runs and the server answer."""

from __future__ import annotations

from hand_made import signal, task_of

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.core.ticks import Source, TickLeaveStep, TickStartChild
from loom.temporal import names
from loom.temporal.bridge import activations
from loom.temporal.payloads import Effects
from loom.temporal.workflow.policy import Policy

LIMIT = 2 * 1024 * 1024
FORCED = Policy(budget=1_500_000, window=1_000, drain_events=100, force_events=200)


class Piece(Event):
    text: str = ""


class Sewing(Workflow):
    """Pieces from one step, each sewn by another."""

    @step
    async def cut(self, ctx: Context, ev: StartEvent) -> Piece | None:
        return None

    @step(num_workers=10_000)
    async def sew(self, ev: Piece) -> StopEvent | None:
        return None


class Pressing(Sewing):
    """The same with one more step."""

    @step
    async def press(self, ev: Piece) -> StopEvent:
        return StopEvent()


def source_of(command, ordinal=0):
    work = task_of(command).command
    return Source(work.step, work.item.id, work.seq, ordinal)


def child_of(command, start="[1,{}]", ordinal=0):
    """The ticks of a body that starts a child run and leaves."""
    work = task_of(command).command
    source = source_of(command, ordinal)
    key = f"child:{ordinal}"
    return (
        TickStartChild(at=0.0, source=source, occurrence=ordinal, workflow="other", start=start),
        TickLeaveStep(at=0.0, step=work.step, item=work.item.id, seq=work.seq, pending=(key,)),
    )


def resolved(kind, number, how=None):
    job = activations.WorkflowActivationJob()
    part = getattr(job, kind)
    part.seq = number
    if how is not None:
        getattr(part, how).SetInParent()
    return job


def child_started(command, how="succeeded"):
    return resolved("resolve_child_workflow_execution_start", command.start_child_workflow_execution.seq, how)


def effects(tick):
    """The job of something that a body did."""
    return signal(names.SIGNAL_EFFECTS, Effects((tick,)))
