"""The seam between the kernel and an authoring style: facts in, intents out.

The kernel owns what every run has: queues and workers, attempts, timers, waiters, the lifecycle. A planner owns what is
particular to a style and only answers "what next?". It never makes a command and never keeps state of its own: what it
has to remember is the `plan`, which the kernel stores for it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, final

import msgspec

from loom.core.records import EventRecord, Failure
from loom.core.state import WorkItem

if TYPE_CHECKING:
    from loom.core.config import BrokerConfig


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
    """Intent: tell the operator."""

    message: str


class StartTimer(msgspec.Struct, frozen=True):
    """Intent: ask again at a certain time. Until then the run is asleep; then comes `on_timer` with the same `ref`."""

    due: float
    ref: int


class Complete(msgspec.Struct, frozen=True):
    """Intent: end the run with this event as its result.

    A run may have a result and have failed nevertheless: then it can be retried, and `failure` says why.
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
    """Answers "what next?" for one authoring style."""

    def start(self, config: BrokerConfig, run_id: str, seed: int) -> Any:
        """The plan of a run that has not begun."""
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
        """An event has entered the run and its waiters were served: who works on it, and did anybody take it?

        `step` is the only one that shall get it, if there is one. `origin` is the planner's own mark, if the event came
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
        """A piece of work is done and returned these events: what follows?"""
        ...

    def on_failed(self, config: BrokerConfig, plan: Any, fact: StepFailed) -> Planned:
        """A piece of work failed for good: who recovers it?"""
        ...

    def on_refused(self, config: BrokerConfig, plan: Any, item: WorkItem, parameters: tuple[str, ...]) -> Planned:
        """A piece of work is dropped, since an event from outside does not fit its class: what follows?

        Of a step that takes several events at once, `parameters` are those that do not fit.
        """
        ...

    def on_timer(self, config: BrokerConfig, plan: Any, ref: int, at: float) -> Planned:
        """A timer that the planner had asked for is due: what follows?"""
        ...

    def on_retry(self, config: BrokerConfig, plan: Any, at: float) -> Planned:
        """A failed run shall go on, and the kernel has brought back what it had in hand: what else begins again?"""
        ...

    def on_idle(self, config: BrokerConfig, plan: Any, waiting: Sequence[WorkItem]) -> Planned:
        """The run is about to be idle, with these items waiting: may it?"""
        ...

    def origin_of(self, item: WorkItem) -> Any:
        """The mark on an event that a body working on `item` sends by itself."""
        ...
