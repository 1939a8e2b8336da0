"""Disks that fail under the runtime: callers are told, nothing acknowledged is lost, and all goes on afterwards.

`make faults` tries a thousand such points.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fault_disk import Disk, Fault
from fault_points import Point, random_point, run_point
from fault_waiting import until
from fault_work import Caller, register_all
from kill_checks import check
from kill_workload import Workload, workload

import loom
from loom import StartEvent, StopEvent, Workflow, step
from loom.runtime.durable import adapter
from loom.store.errors import StoreUnavailable
from loom.store.sqlite import SqliteStore
from loom.store.sqlite.connection import Sqlite3Connection


@pytest.fixture(autouse=True)
def _own_snapshot_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workload sets it."""
    monkeypatch.setattr(adapter, "SNAPSHOT_TICKS", adapter.SNAPSHOT_TICKS)


CHOSEN = [
    "0/sync:wal:3/heals",
    "0/sync:wal:3:lasts/restarts",
    "0/sync:wal:6/power",
    "0/sync:wal:9:lasts/power",
    "1/sync:wal:5:lasts/power",
    "0/write:wal:25/heals",
    "0/write:wal:60:lasts/restarts",
    "1/write:wal:40/power",
    "0/short:wal:31/heals",
    "0/short:wal:50:lasts/restarts",
    "1/short:wal:44/power",
    "0/full:wal:21:lasts/heals",
    "0/full:wal:70:lasts/restarts",
    "0/read:wal:4:lasts/heals",
    "0/read:db:2:lasts/heals",
]


@pytest.mark.parametrize("text", CHOSEN)
async def test_a_disk_that_fails_at_a_chosen_place(text: str, tmp_path: Path, side: Path) -> None:
    outcome = await run_point(Point.parse(text), tmp_path, side)
    assert outcome.problems == []
    assert outcome.struck


@pytest.mark.parametrize("seed", range(1, 25))
async def test_a_disk_that_fails_at_random(seed: int, tmp_path: Path, side: Path) -> None:
    point = random_point(seed)
    outcome = await run_point(point, tmp_path, side)
    assert outcome.problems == [], f"repeat: make faults ARGS='--repeat {point}'"


@pytest.mark.parametrize("text", ["sync:db:1:lasts", "write:db:3:lasts", "short:db:2", "full:db:1:lasts", "read:wal:3"])
async def test_a_checkpoint_that_fails_costs_nobody_anything(text: str, tmp_path: Path, side: Path) -> None:
    disk, work = Disk(remembers=True, checkpoint_pages=8), workload(0, "c-")
    caller = Caller(work)
    path = tmp_path / "runs.db"
    async with asyncio.timeout(60), loom.connect(SqliteStore(path, connect=disk.connect)) as runtime:
        register_all(runtime, work)
        await runtime.ready()
        disk.fail(Fault.parse(text))
        await caller.see_to_all(runtime)
        assert disk.failed_checkpoints
        # All runs are over and acknowledged: so they are, whatever the checkpoints did, if the power goes now.
        disk.cut_power(path, tmp_path / "left.db")
        disk.fault = None
    assert await check(f"sqlite:///{tmp_path / 'left.db'}", side, work) == []
    assert await check(f"sqlite:///{path}", side, work) == []


async def test_these_tests_notice_a_disk_that_only_says_that_it_has_saved(tmp_path: Path, side: Path) -> None:
    disk, work = Disk(remembers=True), workload(0, "l-")
    path = tmp_path / "runs.db"
    async with asyncio.timeout(60), loom.connect(SqliteStore(path, connect=disk.connect)) as runtime:
        register_all(runtime, work)
        await runtime.ready()
        assert disk.images is not None
        before = {name: bytes(image.durable) for name, image in disk.images.items()}
        await Caller(work).see_to_all(runtime)
        for name, content in before.items():
            disk.images[name].durable[:] = content
            disk.images[name].pending.clear()
        disk.cut_power(path, tmp_path / "left.db")
    problems = await check(f"sqlite:///{tmp_path / 'left.db'}", side, work)
    assert any("the run is not there" in problem for problem in problems)


class Gate(Workflow):
    """A run whose only step ends when somebody says so."""

    begun: asyncio.Event
    opened: asyncio.Event

    @step
    async def wait(self, ev: StartEvent) -> StopEvent:
        self.begun.set()
        await self.opened.wait()
        return StopEvent(result="through")


async def test_callers_and_the_log_are_told_what_failed_and_what_came_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk()
    path = tmp_path / "runs.db"
    gate = Gate()
    gate.begun, gate.opened = asyncio.Event(), asyncio.Event()
    store = SqliteStore(path, connect=disk.connect)
    async with asyncio.timeout(60), loom.connect(store, poll_interval=0.05) as runtime:
        runtime.register(gate, name="gate")
        handler = await runtime.start("gate", run_id="g")
        await gate.begun.wait()
        disk.fail(Fault("full", "wal", 1, lasts=True))
        full = f"The database {path} cannot be used: the disk is full (database or disk is full). Nothing was written."
        for call in (runtime.start("gate", run_id="another"), runtime.cancel("g"), runtime.pause("g")):
            with pytest.raises(StoreUnavailable) as refused:
                await call
            assert (str(refused.value), refused.value.outcome_unknown) == (full, False)
        # What can be answered without writing is answered.
        assert (await runtime.get("g")).status == "running"
        disk.fail(Fault("sync", "wal", 1, lasts=True))
        gate.opened.set()
        await until(lambda: "Run g was stopped" in caplog.text)
        disk.fail(None)
        assert await handler == "through"
        with pytest.raises(loom.RunNotFound):
            await runtime.get("another")
    told = next(record for record in caplog.records if "Run g was stopped" in record.message)
    assert told.levelno == logging.ERROR
    assert told.message == (
        f"Run g was stopped until the store is back, because its commit failed: The database {path} cannot "
        "be used: the disk failed (disk I/O error). Whether it was written is not known."
    )


class Room:
    """How many pages a file may have; None: as many as it likes."""

    def __init__(self) -> None:
        self.pages: int | None = None

    def connect(self, path: str) -> Sqlite3Connection:
        return _Limited(path, self)


class _Limited(Sqlite3Connection):
    __slots__ = ("_room",)

    def __init__(self, path: str, room: Room) -> None:
        super().__init__(path)
        self._room = room

    def execute(self, sql: str, parameters: Any = (), /) -> int:
        if sql.startswith("BEGIN"):
            [(pages,)] = super().query("PRAGMA page_count")
            most = 1_000_000 if self._room.pages is None else max(pages, self._room.pages)
            super().query(f"PRAGMA max_page_count = {most}")
        return super().execute(sql, parameters)


async def test_a_full_disk_under_the_runtime(tmp_path: Path, side: Path, caplog: pytest.LogCaptureFixture) -> None:
    room, work = Room(), workload(0, "f-")
    caller = Caller(work)
    path = tmp_path / "runs.db"
    store = SqliteStore(path, connect=room.connect)
    async with asyncio.timeout(60), loom.connect(store, poll_interval=0.05, idle_timeout=0.0) as runtime:
        register_all(runtime, work)
        await runtime.ready()
        room.pages = 1
        seeing = asyncio.create_task(caller.see_to_all(runtime))
        full = f"The database {path} cannot be used: the disk is full (database or disk is full). Nothing was written."
        await until(lambda: full in caplog.text)
        await until(lambda: any(record.message.startswith("Run ") for record in caplog.records))
        await asyncio.sleep(0.2)
        assert not seeing.done()
        # It is tried again all the time, but each run is complained of once.
        told = Counter(record.message for record in caplog.records if record.message.startswith("Run "))
        assert max(told.values()) == 1
        room.pages = None
        await seeing
    assert {str(error) for error in caller.refusals} <= {full}
    assert await check(f"sqlite:///{path}", side, work) == []


async def _open_and_close(store: SqliteStore, work: Workload) -> None:
    async with loom.connect(store) as runtime:
        register_all(runtime, work)
        await runtime.ready()


async def test_a_disk_that_cannot_be_read_when_the_store_is_opened(tmp_path: Path, side: Path) -> None:
    disk, work = Disk(), workload(0, "o-")
    path = tmp_path / "runs.db"
    async with asyncio.timeout(60), loom.connect(SqliteStore(path, connect=disk.connect)) as runtime:
        register_all(runtime, work)
        await Caller(work).see_to_all(runtime)
    for fault in (Fault("read", "db", 1, lasts=True), Fault("write", "wal", 1, lasts=True)):
        disk.fail(fault)
        with pytest.raises(StoreUnavailable, match="the disk failed"):
            await _open_and_close(SqliteStore(path, connect=disk.connect), work)
    disk.fail(None)
    async with loom.connect(SqliteStore(path, connect=disk.connect)) as runtime:
        register_all(runtime, work)
        assert (await runtime.get(work.plans[0].run_id)).status == "completed"
    assert await check(f"sqlite:///{path}", side, work) == []
