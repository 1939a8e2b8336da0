"""Ticks: what happened. They are the only input of the reducer, and each carries its own time.

The first tick of a run brings its config and seed; the others bring events, results and fired timers. A journal is a
list of them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from loom.core.records import EventRecord, Failure, Opaque
from loom.core.state import BrokerConfig


class Source(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Identify the effect that caused a tick: (execution, ordinal)."""

    step: str
    item: int
    """The work item."""
    seq: int
    """The number of the command that started the execution."""
    ordinal: int
    """The number of effects that the execution had had before. See `Tick.writes`."""


class CollectCall(msgspec.Struct, frozen=True, array_like=True):
    """One `collect_events` call and the answer it was given from the execution's snapshot."""

    buffer: str
    event: EventRecord
    needed: tuple[tuple[str, int], ...]
    took: bool
    ordinal: int
    """How many effects the execution had had before the call."""
    generation: int = 0
    """The version of the buffer that the answer was made from."""
    reserved: bool = False
    """The set was the one that an earlier attempt had collected."""
    writes: int = -1
    """How many stream writes the execution had made before the call; -1 if they count among its effects."""


class Tick(msgspec.Struct, frozen=True, kw_only=True, tag=True, omit_defaults=True):
    """The part that all ticks share."""

    at: float
    more: bool = False
    """Whether more ticks were waiting when this one was reduced, so that the run could not be idle after it."""
    mail: int = 0
    """The number of the inbox message that it came by; 0 if it did not. The reducer does not read it."""
    writes: int = -1
    """In an effect of a body: how many stream writes its execution had made before. They are numbered apart from its
    other effects, so for a stream write it is its number. -1 in ticks of earlier versions, where ordinals count stream
    writes too. In a result, a leave or a refusal: how many a repeated body made, if an earlier repetition had made
    more; else -1."""


class TickStartRun(Tick, frozen=True, tag=True):
    """A run begins: the code it runs, its seed, its first event and its staged store."""

    run_id: str
    config: BrokerConfig
    event: EventRecord | None = None
    seed: int = 0
    store: dict[str, Any] = {}
    store_type: str = ""
    """The wire name of the type that the store is read as."""


class TickResume(Tick, frozen=True, tag=True):
    """A process recovers an unfinished run, which no process had for `away_s` seconds."""

    away_s: float = 0.0
    config: BrokerConfig | None = None
    """The code of that process, if it differs from the code so far."""


class TickAddEvent(Tick, frozen=True, tag=True):
    """An event entered the run: from outside, from a step that sent it, or from a step that returned it."""

    event: EventRecord
    step: str | None = None
    """Only this step shall get it."""
    waiter_id: str | None = None
    """Only the waiters of this id shall get it."""
    event_id: str | None = None
    """Makes the event idempotent: a second one of the same id is dropped."""
    source: Source | None = None
    origin: Opaque = None
    """The planner's mark on events that it emitted itself; None from outside."""
    accepted: bool = False
    """It was acknowledged already: if nothing takes it, it is kept, whatever the limit says."""
    traceparent: str | None = None
    """The sender's span; None without one. The reducer does not read it."""


class TickStepResult(Tick, frozen=True, tag=True):
    """An execution is over: it returned events, or it failed and its policy has spoken."""

    step: str
    item: int
    seq: int
    returned: tuple[EventRecord, ...] = ()
    fanned_out: bool = False
    failure: Failure | None = None
    retry_delay_s: float | None = None
    """The verdict on a failure: seconds until the next attempt, or None for no more."""
    collects: tuple[CollectCall, ...] = ()
    max_attempts: int | None = None
    """Of a failure: how many attempts the policy allows, 0 if it does not say. None in ticks of older versions."""
    attempt: int | None = None
    """Of a failure: which attempt it was, from 1, for people; the reducer counts by itself."""
    asks: bool = False
    """Whether the state keeps a returned event that asks for input, for people who answer. False in ticks of earlier
    versions."""


class TickPublishEvent(Tick, frozen=True, tag=True):
    """A step wants an event on the stream."""

    event: EventRecord
    source: Source | None = None
    asks: bool = False
    """As in `TickStepResult`: the event asks for input."""


class TickAwaitEvent(Tick, frozen=True, tag=True):
    """A step's body has reached `wait_for_event`."""

    source: Source
    waiter_id: str
    occurrence: int
    """Which call with this id it is within the execution, from 0."""
    event_type: str
    requirements: tuple[tuple[str, Any], ...] = ()
    timeout_s: float | None = None
    waiter_event: EventRecord | None = None
    suspends: bool = True
    """The execution's own task waits, so that it gives its worker back."""
    asks: Literal["", "anew", "again"] = ""
    """Whether the state keeps the event, for people who answer. `again`: it was published with an earlier wait, whose
    answer did not fit, and is not published a second time. Empty in ticks of earlier versions: it is not kept."""


class TickSleep(Tick, frozen=True, tag=True):
    """A step's body has reached `sleep`."""

    source: Source
    occurrence: int
    delay_s: float
    suspends: bool = True


class TickEndWait(Tick, frozen=True, tag=True):
    """A body has stopped waiting by itself, for example by a timeout of its own."""

    step: str
    item: int
    seq: int
    key: str


class TickLeaveStep(Tick, frozen=True, tag=True):
    """A body has left its process because it waits: nothing of it is in memory any more."""

    step: str
    item: int
    seq: int
    pending: tuple[str, ...] = ()
    """The keys of the waits that it had reached and had no answer for."""


class TickRefuseEvent(Tick, frozen=True, tag=True):
    """A body has got an event that does not fit its class and was not checked before: it is as if it had not come.

    The event itself stays in the history, in the tick that had brought it.
    """

    step: str
    item: int
    seq: int
    event_type: str
    """The short name of its class."""
    reason: str
    """Which fields do not fit and why, without their values."""
    key: str = ""
    """The wait that it had answered, which is open again; empty if the work item was made for the event."""
    fingerprint: int = 0
    """Of the event: a refusal that arrives twice must not refuse the next answer."""
    parameters: tuple[str, ...] = ()
    """Of a step that takes several events at once: what it calls the ones that do not fit."""
    suspends: bool = True
    """As in `TickAwaitEvent`."""


class TickEditStore(Tick, frozen=True, tag=True):
    """The run's store was edited: the keys that changed and the version the edit was based on."""

    base_version: int
    changed: dict[str, Any]
    removed: tuple[str, ...] = ()
    source: Source | None = None
    state_type: str = ""
    """The wire name of the type that the store is read as from now on, if it has changed."""


class TickTimerFired(Tick, frozen=True, tag=True):
    """A timer that the run had started is due. It is believed, never compared with the clock."""

    timer: int


class TickTimeout(Tick, frozen=True, tag=True):
    """The timer of the run's own timeout is due."""

    timer: int


class TickCancelRun(Tick, frozen=True, tag=True):
    """A caller asked for the run to be cancelled."""

    reason: str = ""
    force: bool = False
    """Whether the run ends at once, without its clean-up step or in the middle of it."""


class TickPauseRun(Tick, frozen=True, tag=True):
    """A caller asked for the run to start nothing more until it is continued. It still takes everything in."""


class TickContinueRun(Tick, frozen=True, tag=True):
    """A paused run may go on."""

    max_depth: int | None = None
    """A higher limit of the depth, if the run has one; None leaves it as it is."""


class TickSkip(Tick, frozen=True, tag=True):
    """A caller asked for delays and back-offs to end now: what their timers would bring happens with this tick."""

    timer: int | None = None
    """The timer that ends; None: all that can be skipped. One that is gone or is a timeout changes nothing."""


class TickParkRun(Tick, frozen=True, tag=True):
    """A process cannot go on with the run, for example because it lacks a type."""

    reason: str


class TickRetryRun(Tick, frozen=True, tag=True):
    """A caller asked for a failed or timed out run to go on, from what had failed; perhaps with another event."""

    event: EventRecord | None = None
    """Takes the place of the event that failed the run."""
    step: str = ""
    """The step whose work had failed."""
    item: int = 0
    """That work."""
    key: str = ""
    """The wait that the event is to answer; empty if it is what the work is for."""


class TickRecordResult(Tick, frozen=True, tag=True):
    """A body has the result of something that shall not be done twice."""

    source: Source
    name: str
    """What it is called within the work item."""
    value: Any = None


class TickStartChild(Tick, frozen=True, tag=True):
    """A step's body wants another run and waits for its end."""

    source: Source
    occurrence: int
    """Which child of the execution it is, from 0."""
    workflow: str
    start: Any = None
    """What the child begins with; only the runtime looks inside."""
    suspends: bool = True


class TickChildEnded(Tick, frozen=True, tag=True):
    """A run that this one had started is over."""

    child: int
    """The number of the command that started it."""
    status: Literal["completed", "failed", "cancelled", "timed_out"]
    event: EventRecord | None = None
    failure: Failure | None = None


WorkflowTick = (
    TickStartRun
    | TickResume
    | TickAddEvent
    | TickStepResult
    | TickPublishEvent
    | TickAwaitEvent
    | TickSleep
    | TickEndWait
    | TickEditStore
    | TickTimerFired
    | TickTimeout
    | TickCancelRun
    | TickPauseRun
    | TickContinueRun
    | TickSkip
    | TickParkRun
    | TickRetryRun
    | TickRecordResult
    | TickStartChild
    | TickChildEnded
    | TickLeaveStep
    | TickRefuseEvent
)

ControlTick = TickCancelRun | TickPauseRun | TickContinueRun | TickSkip
"""What a caller asks of a run as it is then. It means nothing for a failed run that was retried since."""
