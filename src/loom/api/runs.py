"""Runs as callers see them: a run, what it waits for, its events, its history."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired, Protocol, Self, TypedDict, TypeVar

import msgspec

from loom.api.answers import Answer, Id, Kind, RunStatus, promises


class FromFields(Protocol):
    """A class of events or of other models, which makes an instance of fields."""

    @classmethod
    def model_validate(cls, obj: Any, /) -> Self:
        """Make an instance of fields, or raise `ValueError`."""
        ...


FromFieldsT = TypeVar("FromFieldsT", bound=FromFields)

Delivered = Literal["waiter", "step", "kept", "inbox"]
"""Who takes an event: a waiter, a step, nobody yet (an early event), or the process that owns the run."""


class RefusedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The last event that was refused, while the run waits for one that fits."""

    step: str
    """The step that the event was for."""
    waiter_id: str | None = None
    """The wait that goes on; None if the step takes such events as its input."""
    event_type: str
    """The short name of the event's class."""
    reason: str
    """Which fields do not fit and why. Values are left out."""
    at: Annotated[datetime, msgspec.Meta(tz=True)]


WaiterKind = Literal["event", "input", "callback", "child"]


@promises(step=str, requirements=dict[str, Any], kind=WaiterKind)
class Waiter(Answer, frozen=True, kw_only=True):
    """Something that a run waits for."""

    step: str | None = None
    waiter_id: str | None = None
    event_type: str
    requirements: dict[str, Any] | None = None
    since: datetime | None = None
    deadline: datetime | None = None
    refused: RefusedEvent | None = None
    """The answer that was refused last, while the right one is waited for."""
    kind: WaiterKind = "event"
    """What ends the wait: `event` and `input` a person's answer, to a wait or to a step that takes it by signature;
    `callback` another program; `child` a child run."""
    schema: dict[str, Any] | None = None
    """The JSON Schema of the answer's fields; None if it is not known."""
    prompt: Any = None
    """What is asked: of steps the fields of the event that was published with the wait, of a flow its `prompt`. One
    of more than 8 KiB is the beginning of its JSON, as a text."""


@promises(code=str, type=str)
class RunError(Answer, frozen=True, kw_only=True):
    """What a run failed with; the code of one that took too long is `timeout`.

    `traceback` is where the last attempt failed, with the author's frames first; null in lists.

    On a Temporal cluster a run that goes on has one with the code `unanswered`, if no worker is there to say how it is.
    """

    code: str | None = None
    type: str | None = None
    message: str = ""
    step: str | None = None
    attempts: int | None = None
    traceback: str | None = None


class RunResult(TypedDict):
    """What a run ended with: `{type, value}` of a workflow in Python, `{status, outputs, response}` of a flow."""

    type: NotRequired[str]
    value: NotRequired[Any]
    status: NotRequired[str]
    outputs: NotRequired[Any]
    response: NotRequired[Any]


@promises(
    run_id=Id,
    kind=Kind,
    version=int | None,
    tick=int,
    cursor=int,
    created_at=datetime,
    updated_at=datetime,
    result=RunResult | None,
    forked_from=str | None,
    handler_id=str,
)
class Run(Answer, frozen=True, kw_only=True):
    """A run at one moment, whatever its status."""

    run_id: str
    workflow: str
    kind: Literal["steps", "flow"] | None = None
    version: str | int | None = None
    status: RunStatus
    idle_since: datetime | None = None
    active_waiters: list[Waiter] | None = None
    """What it waits for; None after its end."""
    next_timer_at: datetime | None = None
    tick: int | None = None
    """Its last tick."""
    cursor: int | None = None
    """The number of its last event."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    completed_at: datetime | None = None
    """When it ended, in whatever way; the rest of Loom says `ended_at`."""
    result: Any = None
    """Of steps `{type, value}`, of a flow `{status, outputs, response}`."""
    error: RunError | None = None
    forked_from: Any = None
    """The run that it was forked from."""
    handler_id: str | None = None
    paused: bool = False
    parked: str | None = None
    """Why it cannot go on with the code of its workers."""
    stuck: str | None = None
    """Why the run is idle although no step, timer or waiter can move it, and it is neither paused nor parked."""
    asleep: bool = False
    """Whether only a timer will move it: a delayed retry, a sleep, or the delay of a loop."""
    kept_events: int = 0
    """How many early events wait until a step asks for them."""
    tags: dict[str, str] = {}
    parent_id: str | None = None
    in_memory: bool = False
    """Whether some process holds it in memory."""

    def result_as(self, event: type[FromFieldsT]) -> FromFieldsT:
        """Read the result of a run of steps as the event that ended it: a class of yours, or `StopEvent`.

        `ValueError` if there is no such event: the run goes on, it failed, or another event ended it.
        """
        found = self.result if isinstance(self.result, dict) else {}
        if found.get("type") != event.__name__:
            ended = f"ended with {found['type']}" if "type" in found else f"is {self.status} and ended with no event"
            raise ValueError(f"Run {self.run_id!r} {ended}, not with {event.__name__}.")
        return event.model_validate(found["value"])

    @property
    def finished(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.status != "running"

    @property
    def idle(self) -> bool:
        """Whether only something from outside can move it."""
        return self.idle_since is not None


@promises(delivered=Delivered | None)
class Delivery(Answer, frozen=True, kw_only=True):
    """What became of an event that was sent. It is stored, whatever is said here.

    Of a duplicate only that is known: who took the first one is in the history. An event that only ends a run, or asks
    somebody something, is kept for nobody: `delivered` is null too if no step takes it.
    """

    tick: int | None = None
    delivered: str | None = None
    """`waiter`, `step`, `kept`, or `inbox` if another process works on the run."""
    duplicate: bool = False


@promises(at=datetime, types=list[str], value=dict[str, Any])
class StreamEvent(Answer, frozen=True, kw_only=True):
    """An event on the stream of a run; `seq` is the cursor to go on from."""

    seq: int
    at: datetime | None = None
    type: str
    types: list[str] | None = None
    """The classes above its own."""
    value: Any = None

    @property
    def terminal(self) -> bool:
        """Whether it tells the end of the run."""
        return self.type == "StopEvent" or "StopEvent" in (self.types or ())


@promises(tick=dict[str, Any], commands=NotRequired[list[dict[str, Any]]])
class HistoryItem(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """A tick of a run, its fields beside its `type`; on request also the commands that it led to."""

    seq: int
    at: datetime
    tick: Any
    commands: list[Any] | None = None
    """None where nobody asked for them."""


@promises(run_id=Id)
class Replay(Answer, frozen=True, kw_only=True):
    """Whether the journal of a run, reduced again, gives what is stored."""

    run_id: str
    replay: Literal["same", "different"]
    first_tick: int = 0
    """Where it began: 0, or after what was pruned."""
    ticks: int = 0
    events: int = 0
    snapshot: int | None = None
    """After how many ticks the compared snapshot was made; None if there is none."""
    differences: list[str] = []
