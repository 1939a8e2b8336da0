"""The checker finds what it is there to find: a journal, row, stream or witness that was tampered with."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kill_checks import check, run_problems
from kill_engine import engine
from kill_journal import Journal
from kill_sweep import Points
from kill_switch import Kill, Switch
from kill_witness import words_of
from kill_workload import Plan, Workload, witness, workload
from msgspec.structs import replace

from loom.core.records import Published
from loom.core.ticks import (
    TickAddEvent,
    TickEditStore,
    TickPublishEvent,
    TickRecordResult,
    TickTimerFired,
    WorkflowTick,
)
from loom.runtime.connect import open_store
from loom.runtime.durable import adapter
from loom.store import codec
from loom.store.records import StoredRun

Change = Callable[[WorkflowTick], list[WorkflowTick]]


class Finished(NamedTuple):
    """A workload that nobody disturbed."""

    path: Path
    side: Path
    work: Workload
    runs: dict[str, StoredRun]

    def plan(self, kind: str) -> Plan:
        return next(plan for plan in self.work.plans if plan.kind == kind)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("kill")
    path, side, work = folder / "runs.db", folder / "witness", workload(0, "t-")

    async def main() -> dict[str, StoredRun]:
        await engine(f"sqlite:///{path}", side, work, None)
        store = open_store(f"sqlite:///{path}")
        await store.open()
        runs = {plan.kind: await store.export(plan.run_id) for plan in work.plans}
        await store.close()
        return {kind: run for kind, run in runs.items() if run is not None}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adapter, "SNAPSHOT_TICKS", adapter.SNAPSHOT_TICKS)
        yield Finished(path, side, work, asyncio.run(main()))
    witness.close()


async def _problems(finished: Finished, kind: str, stored: StoredRun | None = None, **more: list[Any]) -> str:
    words = words_of(finished.side)
    for what, lines in more.items():
        words[what] += lines
    journal = Journal(stored or finished.runs[kind], kind)
    return "\n".join([problem async for problem in run_problems(journal, finished.plan(kind), words)])


def _changed(stored: StoredRun, change: Change) -> StoredRun:
    """The same run with other ticks in its journal; its stream stays as it is."""
    chunks, ticks, events = [], 0, 0
    for chunk in stored.chunks:
        changed = [other for tick in codec.decode_ticks("", chunk) for other in change(tick)]
        published: list[Published] = codec.decode_published("", chunk)
        chunks.append(codec.encode_chunk(changed, published, ticks, events))
        ticks, events = ticks + len(changed), events + len(published)
    return replace(stored, chunks=tuple(chunks), row=replace(stored.row, head=replace(stored.row.head, ticks=ticks)))


def _doubling(kind: type[Any]) -> Change:
    return lambda tick: [tick, tick] if isinstance(tick, kind) else [tick]


def _dropping(kind: type[Any]) -> Change:
    return lambda tick: [] if isinstance(tick, kind) else [tick]


async def test_a_workload_that_nobody_disturbed_has_no_problems(finished: Finished) -> None:
    assert await check(f"sqlite:///{finished.path}", finished.side, finished.work) == []
    assert finished.runs["letters"].snapshot is not None


async def test_a_doubled_event_is_found(finished: Finished) -> None:
    stored = _changed(finished.runs["letters"], _doubling(TickAddEvent))
    found = await _problems(finished, "letters", stored)
    assert "is in the journal 2 times" in found
    assert "it took the events" in found


async def test_a_lost_event_is_found(finished: Finished) -> None:
    stored = _changed(finished.runs["votes"], _dropping(TickAddEvent))
    assert "it took the events {} and not each of" in await _problems(finished, "votes", stored)


async def test_a_lost_effect_is_found(finished: Finished) -> None:
    for kind in (TickPublishEvent, TickEditStore):
        stored = _changed(finished.runs["fan"], _dropping(kind))
        assert "replay" in await _problems(finished, "fan", stored)


async def test_a_result_that_was_recorded_twice_is_found(finished: Finished) -> None:
    stored = _changed(finished.runs["chain"], _doubling(TickRecordResult))
    assert "recorded result (2, 'token') is in the journal 2 times" in await _problems(finished, "chain", stored)


async def test_an_early_timer_is_found(finished: Finished) -> None:
    def earlier(tick: WorkflowTick) -> list[WorkflowTick]:
        return [replace(tick, at=tick.at - 0.02) if isinstance(tick, TickTimerFired) else tick]

    found = await _problems(finished, "fan", _changed(finished.runs["fan"], earlier))
    assert "was due at" in found


async def test_a_gap_in_the_stream_is_found(finished: Finished) -> None:
    stored = finished.runs["fan"]
    assert "a chunk begins at" in await _problems(finished, "fan", replace(stored, chunks=stored.chunks[1:]))


async def test_a_row_that_replay_does_not_give_is_found(finished: Finished) -> None:
    stored = finished.runs["fan"]
    head = replace(stored.row.head, updated_at=1.0)
    wrong = replace(stored, row=replace(stored.row, head=head))
    assert "replay gives the row" in await _problems(finished, "fan", wrong)


async def test_a_run_that_has_not_ended_is_found(finished: Finished) -> None:
    stored = finished.runs["fan"]
    running = replace(stored, row=replace(stored.row, head=replace(stored.row.head, status="running")))
    assert "it should be completed and is running" in await _problems(finished, "fan", running)


async def test_contradictions_with_what_was_witnessed_are_found(finished: Finished) -> None:
    run_id = finished.plan("chain").run_id
    found = await _problems(
        finished,
        "chain",
        seen=[{"run": run_id, "number": 0, "text": "end"}],
        result=[{"run": run_id, "result": "other"}],
        body=[{"key": f"{run_id}:begin:77", "text": "begin"}],
    )
    assert "a reader saw 'end' as mark 0" in found
    assert "somebody was told the result 'other'" in found
    assert "the work 'begin' had several idempotency keys" in found


async def test_a_lost_run_is_found(finished: Finished, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    source, target = sqlite3.connect(finished.path), sqlite3.connect(copy)
    source.backup(target)
    run_id = finished.plan("chain").run_id
    target.execute("DELETE FROM runs WHERE run_id = ?", (run_id,))
    target.commit()
    source.close()
    target.close()
    problems = await check(f"sqlite:///{copy}", finished.side, finished.work)
    assert problems == [f"{run_id}: the run is not there", "there are 7 runs and not 8"]


def test_a_switch_counts_its_own_place_only(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr("kill_switch.os.kill", lambda pid, _signal: killed.append(pid))
    switch = Switch(Kill.parse("inside:2"))
    for place in ("inside", "before", "after", "statement"):
        switch.reached(place)
    assert killed == []
    switch.reached("inside")
    assert len(killed) == 1


def test_points_are_the_same_for_the_same_seed_and_end_where_the_workload_ends() -> None:
    first, second = ([points.next() for _ in range(40)] for points in (_points(), _points()))
    assert first == second
    points = _points()
    for _ in range(8):
        point = points.next()
        assert point is not None
        if point.startswith("0/"):
            points.missed(point)
    assert all(not str(points.next()).startswith("0/") for _ in range(20))


def _points() -> Points:
    return Points({"before": 1, "after": 1}, seed=5, count=100)
