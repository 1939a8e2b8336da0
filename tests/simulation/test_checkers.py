"""The checkers find what they are for: each test breaks the engine in one place, and some seed must tell."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from loom.core.kernel import executions, workers
from loom.runtime import run_head
from loom.runtime.control_loop import ArmedTimers
from loom.runtime.durable import adapter, recovery
from loom.store import memory_tables
from loom.store.committer import Committer
from loom.store.memory_tables import Transaction
from loom.store.operations import CommitRun, PostMessage, ReleaseRun
from loom.testing import FaultPlan, Faults, SimulationFailure, simulate
from loom.testing.simulation_checks import Checker
from loom.testing.simulation_world import listening

SEEDS = range(6, 18)
"""The first of them finds most within its first seconds."""

CRASHES = Faults(store=FaultPlan(crash=0.03, slow=0.3, slow_s=0.1), kill=0.05, noise=0.2, lasts_s=60.0)
STALLS = Faults(store=FaultPlan(stall=0.01, lose_lease=0.2, slow=0.3), lasts_s=60.0)


def found(faults: Faults) -> str:
    """What the first seed says that finds something."""
    for seed in SEEDS:
        try:
            simulate(seed=seed, faults=faults, workers=2)
        except SimulationFailure as failure:
            return str(failure)
    return "nothing"


def write_as(monkeypatch: pytest.MonkeyPatch, operation: type, action: Callable[[Transaction, Any], Any]) -> None:
    monkeypatch.setitem(memory_tables._ACTIONS, operation, action)


def test_mail_that_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(self: Transaction, asked: ReleaseRun) -> bool:
        run = self._runs.get(asked.run_id)
        if run is not None and run.row.owner == asked.fence:
            self._keep(asked.run_id, replace(run, row=replace(run.row, owner=None), inbox=memory_tables.EMPTY))
        return True

    write_as(monkeypatch, ReleaseRun, release)
    assert "but has mail" in found(CRASHES)


def test_mail_that_comes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Transaction._commit
    write_as(monkeypatch, CommitRun, lambda self, asked: commit(self, replace(asked, messages_taken=())))
    assert "came twice" in found(CRASHES)


def test_mail_that_leaves_the_inbox_before_it_is_in_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    operation = adapter.DurableDecorator._operation
    monkeypatch.setattr(
        adapter.DurableDecorator,
        "_operation",
        lambda self, batch, written: replace(operation(self, batch, written), messages_taken=(*range(1, 100),)),
    )
    assert "left the inbox" in found(CRASHES)


def test_an_event_id_that_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    post = Transaction._post
    write_as(monkeypatch, PostMessage, lambda self, asked: post(self, replace(asked, event_id=None)))
    assert "known: True" in found(CRASHES)


def test_a_timer_that_fires_early(monkeypatch: pytest.MonkeyPatch) -> None:
    fire = ArmedTimers.fire

    def fire_early(self: ArmedTimers, now: float) -> Any:
        return [replace(tick, at=now) for tick in fire(self, now + 0.5)]

    monkeypatch.setattr(ArmedTimers, "fire", fire_early)
    assert "s early" in found(CRASHES)


def test_a_timer_that_stays_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Transaction._commit
    write_as(monkeypatch, CommitRun, lambda self, asked: commit(self, replace(asked, timers_gone=())))
    assert "are armed" in found(CRASHES)


def test_a_fence_that_nobody_respects(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = Transaction._commit

    def trust(self: Transaction, asked: CommitRun) -> bool:
        run = self._runs.get(asked.run_id)
        owner = run.row.owner if run is not None and run.row.owner is not None else asked.fence
        return commit(self, replace(asked, fence=owner))

    write_as(monkeypatch, CommitRun, trust)
    assert "does not follow its journal" in found(STALLS)


def test_an_effect_that_is_applied_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        executions, "claim", lambda d, source, kind: workers.find(d, source.step, source.item, source.seq)
    )
    assert "twice" in found(CRASHES)


def test_a_commit_that_is_told_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    submit = Committer.submit

    def hasty(self: Committer, operation: Any) -> Any:
        answer = submit(self, operation)
        if not isinstance(operation, CommitRun):
            return answer
        told = self._loop.create_future()
        told.set_result(True)
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return told

    monkeypatch.setattr(Committer, "submit", hasty)
    assert found(CRASHES) != "nothing"


def test_a_row_that_says_something_else_than_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    head = run_head.HeadWriter.head

    def never_idle(self: Any, *arguments: Any) -> Any:
        written, changed = head(self, *arguments)
        return replace(written, idle_since=None), changed

    monkeypatch.setattr(run_head.HeadWriter, "head", never_idle)
    assert "the row says idle_since" in found(CRASHES)


def test_a_recovery_that_forgets_the_ticks_behind_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(run_id: str, snapshot: Any, chunks: Any, *more: Any) -> Any:
        return restored(run_id, snapshot, () if snapshot is not None else chunks, *more)

    restored = recovery.restored
    monkeypatch.setattr(recovery, "restored", short)
    assert "nothing" not in found(CRASHES)[:10]


def test_the_log_is_as_loud_as_before_when_nobody_listens_any_more() -> None:
    below = logging.getLogger("loom.steps")
    assert below.isEnabledFor(logging.WARNING)
    with listening(Checker(lambda: 0.0)):
        assert not below.isEnabledFor(logging.WARNING)
    assert below.isEnabledFor(logging.WARNING)
