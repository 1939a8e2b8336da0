"""The state of a flow: the planner's part of a run's state, as stores keep it.

Nothing here is ever changed in place, and values are plain data. A frame is a block under way. Frames of iterations and
of the top level also hold the records of the actions that ran in them. Most fields are stored by position: a new one
goes to the end and has a default.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP, Fifo, Map
from loom.core.records import Traceback

ENTER, ENDED, NEXT = 0, 1, 2
"""Kinds of agenda entries: an action's turn (frame, node), the end of a block (frame), a loop's next test (loop)."""

YIELD = 0
"""The mark of the timer that lets the walk go on after its fuel ran out."""


class Record(msgspec.Struct, frozen=True, array_like=True):
    """The end of an action."""

    status: str
    outputs: Any = None
    inputs: Any = None
    code: str = ""
    error: Any = None
    """`{code, message}`, if it failed or was skipped."""
    started: float = 0.0
    ended: float = 0.0
    iterations: int | None = None
    """Number of iterations of a loop; None for other actions."""
    tracked: Any = None
    retries: tuple[Any, ...] = ()
    """Ends of the earlier attempts."""
    error_type: str = ""
    """Name of the failure for a retry policy's `on`."""
    retry_after: float | None = None
    """Seconds that a server asked to wait; None: it did not ask."""
    repetitions: tuple[Map[int, Record], ...] = ()
    """Records of all iterations of a loop whose `result()` is asked for; else empty."""
    unfinished: Unfinished | None = None
    """State of a failed container in which a retry of the run goes on; else None."""


class Unfinished(msgspec.Struct, frozen=True, array_like=True):
    """The rest of a failed container, for a retry of its run: what failed, and what never ran.

    Outputs of finished iterations are in the container's record.
    """

    frames: tuple[Frame, ...] = ()
    """The block or the iterations that failed. They come back under their numbers, so idempotency keys stay."""
    loop: LoopState | None = None
    """As it was before the failed iteration, or before the test that the loop ended at. Without `iterations`."""
    each: EachState | None = None
    """State of a foreach. Of its `iterations` only the last one is kept, unless that failed."""
    at_limit: bool = False
    """True if the loop ended by its limit, which a retry grants anew."""


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
    """Attempts at actions that failed and are to be tried again, by node."""
    entered: Map[int, float] = EMPTY_MAP
    """Start times of actions under way, by node."""
    inputs: Map[int, Any] = EMPTY_MAP
    """Inputs of actions under way, by node."""


def iterations_around(frames: Map[int, Frame], frame: Frame) -> list[Frame]:
    """List the frames of the iterations that a frame lies in, innermost first."""
    found = []
    while frame.depth:
        scope = frames[frame.scope]
        found.append(scope)
        frame = frames[scope.parent]
    return found


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
    """Result of the last test; None before the first."""
    iteration_started: float = 0.0
    """Start of the iteration that ended last."""
    delayed: int = 0
    """The iteration before which the delay has passed."""
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
    """Time from which the timeout counts; None: from the start of the loop."""
    is_cut: bool = False
    """True if `last_result` lacks what was nested too deep."""

    @property
    def last_allowed(self) -> int:
        """The number of iterations at which the limit ends the loop."""
        return self.limit_from + self.max_iterations


def bare_loop(state: LoopState) -> LoopState:
    """Strip a loop's state to what a failed loop keeps; its record holds the rest."""
    return replace(state, iterations=EMPTY_MAP, failed=None)


class EachState(msgspec.Struct, frozen=True, array_like=True):
    """A loop over the elements of an array."""

    id: int
    frame: int
    node: int
    items: list[Any]
    width: int
    """Number of iterations that may run at a time."""
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
    """Number of iterations in `again` that have had their turn."""


class PendingWait(msgspec.Struct, frozen=True, array_like=True):
    """A wait of an action for a timer, or for the result of a call."""

    purpose: Literal["call", "wait", "retry", "delay"]
    frame: int
    """The frame of the action; for a delay between iterations, the loop's state."""
    node: int
    due: float | None = None


class Variable(msgspec.Struct, frozen=True, array_like=True):
    """A variable of the run."""

    name: str
    type: str
    """Type in lower case; empty: any."""
    value: Any = None
    preset: bool = False
    """True if its value came with the start, and holds until an action sets another."""
    by: int = -1
    """Index of the action that initialised it, which may do so again if it runs again."""
    appended: Fifo[Any] = EMPTY_FIFO
    """Elements appended to an array. They join it when an expression reads it, so that appending copies nothing."""

    def whole(self) -> Any:
        """Return its value with all appended elements."""
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
    waits: Map[int, PendingWait] = EMPTY_MAP
    """By the mark that the timer or the work item carries."""
    agenda: tuple[tuple[int, int, int], ...] = ()
    """Entries that the walk left when its fuel ran out."""
    yielding: bool = False
    """True while a timer runs that lets the walk go on."""
    ids: int = 0
    """The number of the last frame, loop or wait."""
    draws: int = 0
    """Number of random numbers drawn so far."""
    response: dict[str, Any] | None = None
    last_traceback: Traceback | None = None
    """Traceback of the newest failed attempt at an action, until that action succeeds."""
    settings: dict[str, str] = {}
    """The app settings that came with the start, by name."""


class FlowRef(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The version of a flow that a run follows, as its config holds it."""

    digest: str
    fuel: int
    """Agenda entries that one burst may work off. It decides where the journal has its ticks, so a run keeps it."""
    rules: int = 0
    """Number of the walk's rules, see `loom.flows.rules`. A run keeps the number that it began with."""


NOT_STARTED = FlowPlan()
