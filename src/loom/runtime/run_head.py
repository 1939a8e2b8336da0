"""The row of a run, worked out from its state with every commit."""

from __future__ import annotations

import json
from operator import is_
from typing import TYPE_CHECKING, Any, Literal

from loom.api.problems import RunStatus, is_stuck
from loom.core.ticks import TickChildEnded
from loom.effects.stored_text import waiter_dict
from loom.runtime.masking import shown_waiter
from loom.runtime.stuck import StuckReason
from loom.store.records import RunHead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.core.records import Published
    from loom.core.state import BrokerState, Outcome, RunFields
    from loom.core.ticks import WorkflowTick
    from loom.flows.program import Program

MAX_WAITERS_SHOWN = 100
"""A run with more waiters shows the oldest of them."""

_MAX_ERROR = 500

_NOTHING = (None, None, None, False)
"""What the waiters of a run that has ended are made from."""


class HeadWriter:
    """Writes heads, and notices when what the run waits for has changed."""

    __slots__ = ("_program", "_reason", "_seen", "_waits", "is_stuck")

    def __init__(self, program: Program | None = None, reason: str | None = None) -> None:
        self._program = program
        self._seen: tuple[Any, ...] = _NOTHING
        """What the waiters of the last head were made from."""
        self._waits = False
        self._reason = StuckReason(reason)
        self.is_stuck = False
        """Whether the last head was that of a stuck run. A head whose waiters did not change does not tell it."""

    def follow(self, ticks: Sequence[WorkflowTick], published: Sequence[Published]) -> None:
        """Take note of a batch, before its head is made: what it brought may be why the run is stuck."""
        self._reason.follow(ticks, published)

    def head(
        self, now: RunFields, whole: Callable[[], BrokerState], downtime: float, link: bytes | None = None
    ) -> tuple[RunHead, bool]:
        """The head after a batch, and whether its waiters are others than before. `whole` makes a state of `now`."""
        outcome = now.outcome
        running = outcome is None or outcome.status == "parked"
        idle = now.idle_since is not None
        made_from = (now.waiting.index, now.children, now.refused, idle) if running else _NOTHING
        # These values are immutable: the same objects give the same waiters.
        changed = not all(map(is_, made_from, self._seen))
        waiters = b"[]"
        waiting_for: tuple[str, ...] = ()
        if changed:
            self._seen = made_from
            if running:
                waiters, waiting_for = _waiters(whole(), self._program)
            self._waits = bool(waiting_for)
        status = status_of(outcome)
        parked = outcome.message if outcome is not None and outcome.status == "parked" else None
        self.is_stuck = idle and is_stuck(
            status, idle=idle, waits=self._waits, paused=now.paused, parked=parked is not None
        )
        return RunHead(
            status,
            now.ticks,
            now.published,
            now.at,
            idle_since=now.idle_since,
            needs_worker=running and now.active > 0 and not now.paused,
            waiters=waiters,
            waiting_for=waiting_for,
            kept=now.waiting.kept_count,
            paused=now.paused,
            parked=parked,
            # A paused run keeps the reason for later.
            error=self._reason.text if idle and not self._waits else _error(outcome),
            downtime=downtime,
            link=link,
        ), changed


def _waiters(state: BrokerState, program: Program | None) -> tuple[bytes, tuple[str, ...]]:
    """What the run waits for, for people; and the types by which it is found."""
    reports = state.waiter_reports() if state.idle_since is not None or state.waiting.index or state.children else ()
    shown = json.dumps([waiter_dict(shown_waiter(program, report)) for report in reports[:MAX_WAITERS_SHOWN]])
    names = {report.event_type for report in reports}
    return shown.encode(), tuple(sorted(names | {name.rpartition(".")[2] for name in names}))


def status_of(outcome: Outcome | None) -> RunStatus:
    """The status of a run that has, or has not, come to an end."""
    return "running" if outcome is None else outcome.run_status


def _error(outcome: Outcome | None) -> str | None:
    if outcome is None or status_of(outcome) != "failed":
        return None
    if outcome.failure is None:
        return outcome.message[:_MAX_ERROR]
    name = outcome.failure.type.removeprefix("builtins.")
    return " ".join(f"{outcome.step}: {name}: {outcome.failure.message}".split())[:_MAX_ERROR]


def child_ended(now: RunFields, number: int) -> TickChildEnded:
    """What a parent is told about the end of its child."""
    outcome = now.outcome
    assert outcome is not None
    status: Literal["completed", "failed", "cancelled", "timed_out"] = (
        outcome.status if outcome.status != "parked" else "failed"
    )
    return TickChildEnded(at=now.at, child=number, status=status, event=outcome.event, failure=outcome.failure)
