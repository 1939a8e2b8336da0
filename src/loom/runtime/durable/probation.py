"""Runs that may have killed their process: on probation one at a time, acquitted, or parked as poison.

The store counts (`loom.store.deaths`); here is what a process makes of it. A suspected run is recovered alone. The next
one follows when it has had a result, waits, or has lived for its probation. A run whose own deaths are too many is
parked, and says what was under way; only who resumes or cancels it lets it go again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from loom.core.ticks import TickCancelRun, TickContinueRun, TickStepResult
from loom.flows.calls import ActionCall
from loom.runtime.durable.recovery import restored
from loom.runtime.logs import about
from loom.store.deaths import POISON
from loom.store.errors import StoreUnavailable
from loom.store.operations import AcquitRun, ForgetDeaths

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick
    from loom.runtime.durable.registration import Registration
    from loom.store.deaths import Deaths
    from loom.store.operations import Operation, Result
    from loom.store.records import StoredRun

_log = logging.getLogger("loom.durable")

MAX_DEATHS = 5
"""The number of deaths of its own after which a run is poison."""
LONGEST_S = 1800.0
"""No probation is longer."""

_SHOWN = 5


class Probation:
    """The suspects among the runs that one process has recovered."""

    def __init__(
        self,
        base_s: float,
        fence: int,
        submit: Callable[[Operation], asyncio.Future[Result]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        clock: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._base_s = base_s
        self._fence = fence
        self._submit = submit
        self._spawn = spawn
        self._clock = clock
        self._loop = loop
        self._marked: set[str] = set()
        """Runs in memory that have deaths to be forgotten with their next result."""
        self._on_trial: dict[str, asyncio.TimerHandle] = {}
        """Runs in memory that are on probation, with the end of it."""
        self.on_acquitted: Callable[[], None] = _nothing
        """Called when another suspect may follow."""

    def is_marked(self, run_id: str) -> bool:
        """Say whether the deaths of a run are to be forgotten with its next result."""
        return run_id in self._marked

    def begin(self, run_id: str, deaths: Deaths | None) -> None:
        """A run is in memory now, and about to begin."""
        if deaths is None:
            return
        self._marked.add(run_id)
        if deaths.suspect and deaths.trial == self._fence:
            length = probation_s(self._base_s, deaths.marks)
            _log.warning(
                "Run %s is on probation for %g s: it was at work in %s processes that died, and %s of these deaths "
                "count for it.",
                run_id,
                length,
                deaths.marks,
                deaths.own,
                extra=about(run_id),
            )
            self._on_trial[run_id] = self._loop.call_later(length, self.acquit, run_id)

    def had_result(self, run_id: str) -> None:
        """A marked run has had a result: what it did before did not kill its process."""
        self._marked.discard(run_id)
        self._end_trial(run_id)
        self._spawn(self._write(ForgetDeaths(run_id, self._fence)))

    def acquit(self, run_id: str) -> None:
        """A run waits, or has lived through its probation, if it is on one."""
        if self._end_trial(run_id):
            self._spawn(self._write(AcquitRun(run_id, self._fence, self._clock())))

    def left(self, run_id: str, *, is_over: bool) -> None:
        """A run has left memory, for good or until it is recovered again."""
        was_marked = run_id in self._marked
        self._marked.discard(run_id)
        if is_over and was_marked:
            self.had_result(run_id)
        else:
            self._end_trial(run_id)

    def _end_trial(self, run_id: str) -> bool:
        timer = self._on_trial.pop(run_id, None)
        if timer is not None:
            timer.cancel()
        return timer is not None

    async def _write(self, operation: Operation) -> None:
        try:
            await self._submit(operation)
        except StoreUnavailable as error:
            # It is suspected for longer than it must be, and has another probation.
            _log.warning("What a run is suspected of could not be noted: %s", error)
        self.on_acquitted()


def probation_s(base_s: float, marks: int) -> float:
    """Return the seconds of probation for a run that was at work in this many deaths: doubled since the second."""
    return min(LONGEST_S, base_s * 2.0 ** min(max(0, marks - 2), 60))


def _nothing() -> None:
    """Nobody waits."""


def is_poison(stored: StoredRun) -> bool:
    """Say whether a run has killed too many processes to be recovered."""
    return stored.deaths is not None and stored.deaths.own >= MAX_DEATHS


def is_let_go(ticks: Sequence[WorkflowTick]) -> bool:
    """Say whether an operator has asked that a poisonous run goes on, or ends."""
    return any(isinstance(tick, TickContinueRun | TickCancelRun) for tick in ticks)


def has_result(ticks: Sequence[WorkflowTick]) -> bool:
    """Say whether an execution has ended."""
    return any(type(tick) is TickStepResult for tick in ticks)


def reason_of(stored: StoredRun, code: Registration) -> str:
    """Tell why a poisonous run is parked."""
    deaths = stored.deaths
    assert deaths is not None
    state = restored(stored.row.run_id, stored.snapshot, stored.chunks, code.planner, code.codec.field)
    under_way = ", ".join(_under_way(state))
    what = f"Under way: {under_way}." if under_way else "No step was under way: it died while it was planned."
    return (
        f"{POISON}: {deaths.own} processes have died while it was on probation, {deaths.marks} while it was at work. "
        f"{what} Resume it to try it again, or cancel it."
    )


def _under_way(state: BrokerState) -> list[str]:
    found = []
    for step, worker in sorted(state.workers.items()):
        for execution in worker.in_progress.values():
            body = execution.item.event.body
            what = "action" if isinstance(body, ActionCall) else "step"
            found.append(f"{what} '{step}', attempt {execution.item.attempts + 1}")
        found += [f"step '{step}', queued"] * bool(worker.queue)
    return found[:_SHOWN] + [f"{len(found) - _SHOWN} more"] * (len(found) > _SHOWN)
