"""The row of a run, worked out from its state with every commit.

May import loom.core, loom.effects, loom.store and what hides secure data.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from loom.core.ticks import TickChildEnded
from loom.effects.kept import waiter_dict
from loom.runtime.masking import shown_waiter
from loom.store.records import RunHead, RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.state import BrokerState, Outcome, RunFields
    from loom.flows.program import Program

MAX_WAITERS_SHOWN = 100
"""A run with more waiters shows the oldest of them."""

_MAX_ERROR = 500


class HeadWriter:
    """Writes heads, and notices when what the run waits for has changed."""

    __slots__ = ("_children", "_idle", "_index", "_program")

    def __init__(self, program: Program | None = None) -> None:
        self._program = program
        self._index: Any = None
        self._children: Any = None
        self._idle = False

    def head(
        self, now: RunFields, whole: Callable[[], BrokerState], downtime: float, link: bytes | None = None
    ) -> tuple[RunHead, bool]:
        """The head after a batch, and whether its waiters are others than before. `whole` makes a state of `now`."""
        outcome = now.outcome
        running = outcome is None or outcome.status == "parked"
        idle = now.idle_since is not None
        index, children = (now.waiting.index, now.children) if running else (None, None)
        # The maps are immutable: the same map is the same waiters.
        changed = index is not self._index or children is not self._children or idle is not self._idle
        waiters = b"[]"
        waiting_for: tuple[str, ...] = ()
        if changed:
            self._index, self._children, self._idle = index, children, idle
            if running:
                waiters, waiting_for = _waiters(whole(), self._program)
        return RunHead(
            status_of(outcome),
            now.ticks,
            now.published,
            now.at,
            idle_since=now.idle_since,
            needs_worker=running and now.active > 0 and not now.paused,
            waiters=waiters,
            waiting_for=waiting_for,
            kept=now.waiting.kept_count,
            paused=now.paused,
            parked=outcome.message if outcome is not None and outcome.status == "parked" else None,
            error=_error(outcome),
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
    if outcome is None or outcome.status == "parked":
        return "running"
    if outcome.status == "completed":
        return "completed"
    return "cancelled" if outcome.status == "cancelled" else "failed"


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
