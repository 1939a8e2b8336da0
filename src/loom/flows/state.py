"""The state of a flow: frames, loops and waits, a few numbers each. The planner's part of a run's state. Pure.

Nothing here is ever changed in place, and values are plain data. A frame is a block under way; an iteration's frame,
and the one of the top level, also hold the records of the actions that ran in it. May import loom.core.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from immutables import Map

from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP, Fifo
from loom.core.records import Traceback


class Record(msgspec.Struct, frozen=True, array_like=True):
    """What became of an action."""

    status: str
    outputs: Any = None
    inputs: Any = None
    code: str = ""
    error: Any = None
    """`{code, message}`, if it failed or was skipped."""
    started: float = 0.0
    ended: float = 0.0
    iterations: int | None = None
    """Of a loop: how often its body ran."""
    tracked: Any = None
    retries: tuple[Any, ...] = ()
    """What the earlier attempts ended with."""
    error_type: str = ""
    """What a retry policy's `on` may name."""
    retry_after: float | None = None
    """The patience that a server has asked for, in seconds."""
    repetitions: tuple[Map[int, Record], ...] = ()
    """Of a loop whose `result()` is asked for: the records of all its iterations."""
    unfinished: Unfinished | None = None
    """Of a failed container: where a retry of the run goes on inside it."""


class Unfinished(msgspec.Struct, frozen=True, array_like=True):
    """What a failed container leaves for a retry of its run.

    It holds what failed and what never ran. The outputs of finished iterations are in the container's record.
    """

    frames: tuple[Frame, ...] = ()
    """The block or the iterations that failed. They come back under their numbers, so idempotency keys stay."""
    loop: LoopState | None = None
    """As it was before the failed iteration, or before the test that the loop ended at. Without `iterations`."""
    each: EachState | None = None
    """Of its `iterations` only the last one is kept, unless that failed."""
    at_limit: bool = False
    """The loop ended by its limit, which a retry grants anew."""


class Tries(msgspec.Struct, frozen=True, array_like=True):
    """The attempts at an action so far."""

    count: int
    first_at: float
    history: tuple[Any, ...] = ()


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """A block under way."""

    id: int
    block: int
    parent: int
    """The frame that the block's owner runs in; -1 for the top level."""
    scope: int
    """The frame that holds the records: this one, or the nearest iteration's, or the top level's."""
    depth: int
    """The number of loops around it."""
    left: int
    """Actions that have not ended."""
    started: float
    loop: int = -1
    """For an iteration: the loop's state."""
    index: int = 0
    item: Any = None
    records: Map[int, Record] = EMPTY_MAP
    tries: Map[int, Tries] = EMPTY_MAP
    """Of actions that have failed and are to be tried again, by node."""
    entered: Map[int, float] = EMPTY_MAP
    """When actions that take time began, by node."""
    inputs: Map[int, Any] = EMPTY_MAP
    """What they began with."""


class LoopState(msgspec.Struct, frozen=True, array_like=True):
    """A loop that goes by a condition, as it stands before its next test or while its body runs."""

    id: int
    frame: int
    node: int
    type: Literal["until", "while", "doUntil"]
    condition: str
    """As its author wrote it."""
    max_iterations: int
    timeout: float
    """Seconds."""
    start_time: float
    iteration: int = 0
    """The iteration that runs, or is to run next; from 0."""
    last_result: Any = None
    """The outputs of the iteration before, by action name."""
    last_status: str = "Succeeded"
    last_error: Any = None
    condition_result: bool | None = None
    """What the last test gave."""
    iteration_started: float = 0.0
    """When the iteration began that ended last."""
    delayed: int = 0
    """The iteration that the delay before has passed for."""
    iterations: Map[int, Map[int, Record]] = EMPTY_MAP
    """The records of all iterations, if some expression asks for them."""
    status: Literal["running", "complete", "failed", "timeout"] = "running"
    """A loop that has ended has no state any more."""
    failed: Unfinished | None = None
    """The iteration that ended last, if it failed."""
    told: int = 0
    """The number of iterations that a test has put on the stream. A test that is made again does not repeat them."""
    limit_from: int = 0
    """The iteration that the limit counts from: not 0 after a retry of the run granted it anew."""
    timeout_from: float | None = None
    """When the timeout began anew; None: with the loop."""

    @property
    def last_allowed(self) -> int:
        """The number of iterations at which the limit ends the loop."""
        return self.limit_from + self.max_iterations


class EachState(msgspec.Struct, frozen=True, array_like=True):
    """A loop over the elements of an array."""

    id: int
    frame: int
    node: int
    items: list[Any]
    width: int
    """How many iterations may run at a time."""
    start_time: float
    next: int = 0
    """The element whose iteration begins next."""
    running: int = 0
    failure: Any = None
    """`[status, error, index]` of the first of the elements whose iteration failed."""
    iterations: Map[int, Map[int, Record]] = EMPTY_MAP
    """The records of the iterations that have ended."""
    failed: Map[int, Frame] = EMPTY_MAP
    """Iterations that have failed, without their records, by index."""
    again: tuple[Frame, ...] = ()
    """Iterations that failed before a retry of the run."""
    turns: int = 0
    """How many of them have had their turn."""


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """Something outside will let an action go on: a timer, or the result of a call."""

    purpose: Literal["call", "wait", "retry", "delay"]
    frame: int
    """The frame of the action; for a delay between iterations, the loop's state."""
    node: int
    due: float | None = None


class Variable(msgspec.Struct, frozen=True, array_like=True):
    """A variable of the run."""

    name: str
    type: str
    """In lower case; empty if any kind will do."""
    value: Any = None
    preset: bool = False
    """Its value came with the start, and stands until an action sets another."""
    by: int = -1
    """The action that has initialised it, which may do so again if it runs again."""
    appended: Fifo[Any] = EMPTY_FIFO
    """Elements behind those of an array: they join it when somebody reads it, so that appending copies nothing."""

    def whole(self) -> Any:
        """Its value, with all that was appended."""
        return [*(self.value or ()), *self.appended] if self.appended else self.value


class FlowPlan(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A flow under way."""

    run_id: str = ""
    seed: int = 0
    started: float = 0.0
    trigger: Any = None
    """The trigger's record."""
    parameters: dict[str, Any] = {}
    """The values given at the start."""
    variables: Map[str, Variable] = EMPTY_MAP
    """By name in lower case."""
    frames: Map[int, Frame] = EMPTY_MAP
    loops: Map[int, LoopState] = EMPTY_MAP
    eaches: Map[int, EachState] = EMPTY_MAP
    waits: Map[int, Waiting] = EMPTY_MAP
    """By the mark that the timer or the work item carries."""
    agenda: tuple[tuple[int, int, int], ...] = ()
    """What the walk had still to do when its fuel ran out."""
    yielding: bool = False
    """A timer is under way that lets the walk go on."""
    ids: int = 0
    """The number of the last frame, loop or wait."""
    draws: int = 0
    """How many random numbers have been drawn."""
    response: dict[str, Any] | None = None
    last_traceback: Traceback | None = None
    """Where the newest failed attempt at an action failed, until that action succeeds."""


class FlowRef(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Which version of which flow a run follows: what its config holds of the document."""

    digest: str
    fuel: int
    """How much one burst of the walk may do. It decides where the journal has its ticks, so a run keeps it."""
    rules: int = 0
    """Which rules the walk follows where they have changed: see `loom.flows.rules`. A run keeps those it began with."""


NOT_STARTED = FlowPlan()
