"""The seam between the kernel and an authoring style: facts in, intents out.

The kernel owns what every run has: queues and workers, attempts, timers, waiters, the lifecycle. A planner owns what is
particular to a style and only answers "what next?". It never makes a command and never keeps state of its own: what it
has to remember is the `plan`, which the kernel stores for it.

A planner may do much work in one transition. It counts that work in units that are equal on every machine, and raises
`TooCostly` past those that its driver has patience for (`loom.core.run`). Patience decides where a transition is made,
never what it makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, final

import msgspec

from loom.core.records import EventRecord, Failure
from loom.core.state import WorkItem

if TYPE_CHECKING:
    from loom.core.state import BrokerConfig


@final
class RunStep(msgspec.Struct, frozen=True):
    """Intent: queue work for a step."""

    step: str
    event: EventRecord
    extra: Any = None


@final
class Emit(msgspec.Struct, frozen=True):
    """Intent: let an event enter the run as one that the run itself made."""

    event: EventRecord
    step: str | None = None
    origin: Any = None


@final
class Publish(msgspec.Struct, frozen=True):
    """Intent: put an event on the stream."""

    event: EventRecord


class Warn(msgspec.Struct, frozen=True):
    """Intent: warn the operator, through the log."""

    message: str


class StartTimer(msgspec.Struct, frozen=True):
    """Intent: call `on_timer` with this `ref` at the time `due`. Until then the run is asleep."""

    due: float
    ref: int


class Complete(msgspec.Struct, frozen=True):
    """Intent: end the run with this event as its result.

    A run can have a result and still have failed. It can then be retried, and `failure` says why.
    """

    event: EventRecord
    status: Literal["completed", "failed", "cancelled"] = "completed"
    step: str = ""
    failure: Failure | None = None


class Fail(msgspec.Struct, frozen=True):
    """Intent: end the run with a failure."""

    step: str
    failure: Failure
    attempts: int | None = None
    elapsed_s: float | None = None


Intent = RunStep | Emit | Publish | StartTimer | Warn | Complete | Fail


class StepFailed(msgspec.Struct, frozen=True):
    """Fact: an attempt failed and there will be no other."""

    item: WorkItem
    failure: Failure
    attempts: int
    elapsed_s: float
    at: float


Planned = tuple[Any, Sequence[Intent]]
"""A planner's answer: the plan from now on, and what to do."""


class Planner(Protocol):
    """Answers "what next?" for one authoring style. Each method gets a fact and returns intents."""

    def start(self, config: BrokerConfig, run_id: str, seed: int) -> Any:
        """Return the plan of a run that has not begun."""
        ...

    def on_event(
        self,
        config: BrokerConfig,
        plan: Any,
        event: EventRecord,
        step: str | None,
        origin: Any,
        woken: frozenset[str],
        at: float,
    ) -> tuple[Any, Sequence[Intent], bool]:
        """Decide which steps work on an event that has entered the run; the last value tells whether any step takes it.

        `step` is the only one that may get it; None means any. `origin` is the planner's own mark, if the event came
        from a step of the run. `woken` are the steps in which a waiter took it: they do not get it as input as well.
        """
        ...

    def on_returned(
        self,
        config: BrokerConfig,
        plan: Any,
        item: WorkItem,
        events: tuple[EventRecord, ...],
        fanned_out: bool,
        at: float,
    ) -> Planned:
        """Decide what follows from a piece of work that returned these events."""
        ...

    def plain_taker(self, config: BrokerConfig, plan: Any, item: WorkItem, event: EventRecord) -> str | None:
        """Name the step that works next, if nothing but that follows from work that returned this one event.

        A shortcut, asked while no waiter is open. It promises that `on_returned` would emit the event with the mark of
        `item` and nothing else, that `on_event` would then run this step alone with that mark, and that neither would
        change the plan. None promises nothing: then both are asked. A planner without plain cases returns None always.
        """
        ...

    def ends_plainly(self, plan: Any, item: WorkItem) -> bool:
        """Tell whether nothing follows from work that returned no event.

        A shortcut like `plain_taker`. It promises that `on_returned` would return the plan as it is, and no intent.
        """
        ...

    def on_failed(self, config: BrokerConfig, plan: Any, fact: StepFailed) -> Planned:
        """Decide what follows from a piece of work that failed for good, such as a recovery."""
        ...

    def on_refused(self, config: BrokerConfig, plan: Any, item: WorkItem, parameters: tuple[str, ...]) -> Planned:
        """Decide what follows from work that is dropped, because an event from outside does not fit its class.

        `parameters` are the ones that do not fit, if the step takes several events at once.
        """
        ...

    def on_timer(self, config: BrokerConfig, plan: Any, ref: int, at: float) -> Planned:
        """Decide what follows from a timer that the planner had asked for."""
        ...

    def on_retry(self, config: BrokerConfig, plan: Any, at: float) -> Planned:
        """Decide what else begins again in a retried run; the kernel has brought back the work that it had in hand."""
        ...

    def on_idle(self, config: BrokerConfig, plan: Any, waiting: Iterable[WorkItem]) -> Planned:
        """Decide whether anything is left to do for a run that is about to be idle, with these items waiting."""
        ...

    def on_edited(self, config: BrokerConfig, plan: Any, changed: dict[str, Any]) -> Any:
        """Return the plan after an edit from outside that is about data of the planner's; None: it is about the store.

        `changed` are new values by name. A name that the planner does not know changes nothing.
        """
        ...

    def origin_of(self, item: WorkItem) -> Any:
        """Return the mark for an event that a body working on `item` sends by itself."""
        ...
