"""A process that uses more memory than it may: it takes no more work, says so, and goes on when there is enough."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.admission import MemoryLimit, resident_bytes
from loom.runtime.durable.runtime import DurableRuntime

sys.path.insert(0, str(Path(__file__).parents[3]))

LIMIT = 1000


class Word(HumanResponseEvent):
    pass


class Asker(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Word, timeout=None)
        return StopEvent(result="heard")


class Used:
    """How much memory the process says that it uses."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self) -> int:
        return self.bytes


@asynccontextmanager
async def working(url: str = "memory://", **options: Any) -> AsyncIterator[tuple[DurableRuntime, Used]]:
    used = Used()
    async with loom.connect(url, max_memory=LIMIT, poll_interval=0.02, **options) as runtime:
        runtime.memory = MemoryLimit(LIMIT, used)  # before it begins to work
        runtime.register(Asker(timeout=None), name="asker")
        await runtime.ready()
        yield runtime, used


async def until(condition: Callable[[], Awaitable[bool] | bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            found = condition()
            if await found if isinstance(found, Awaitable) else found:
                return
            await asyncio.sleep(0.005)


async def is_idle(runtime: DurableRuntime, run_id: str) -> bool:
    return (await runtime.get(run_id)).idle_since is not None


def test_it_is_over_above_the_limit_until_it_is_well_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.runtime.durable.admission._FRESH_S", 0.0)
    used = Used()
    memory = MemoryLimit(LIMIT, used)
    found = []
    for used.bytes in (1000, 1001, 950, 901, 900, 950, 1001):
        found.append(memory.look())
    assert found == [False, True, True, True, False, False, True]
    assert memory.times_over == 2
    assert not MemoryLimit(None, lambda: 10**15).look()


def test_a_process_that_cannot_get_below_takes_one_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.runtime.durable.admission._FRESH_S", 0.0)
    now = [0.0]
    monkeypatch.setattr("loom.runtime.durable.admission.monotonic", lambda: now[0])
    used = Used()
    memory = MemoryLimit(LIMIT, used)
    memory.let_in("before")
    used.bytes = 1500
    assert memory.look()
    assert not memory.has_room
    now[0] = 29.0
    assert not memory.has_room
    now[0] = 31.0
    memory.look()
    assert memory.has_room
    memory.check()
    memory.let_in("a")
    with pytest.raises(loom.MemoryExceeded):
        memory.check()
    memory.see({"a", "before"})
    assert not memory.has_room, "it is still there"
    memory.see({"before"})
    assert memory.has_room
    used.bytes = 0
    assert not memory.look()
    memory.let_in("b")
    assert memory.has_room
    used.bytes = 1500
    memory.look()
    assert not memory.has_room, "it stands still anew"


async def test_a_process_that_keeps_too_much_does_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.runtime.durable.admission._STANDS_STILL_S", 0.2)
    async with working() as (runtime, used):
        handlers = [await runtime.start("asker", run_id=f"r{number}") for number in range(3)]
        await until(lambda: is_idle(runtime, "r2"))
        used.bytes = LIMIT + 1
        await until(lambda: runtime.figures["in_memory"] == 0)
        for handler in handlers:
            await runtime.send_event(handler.run_id, Word())
        assert [await handler for handler in handlers] == ["heard"] * 3
        assert (await runtime.start("asker", run_id="b")).run_id == "b"
        assert runtime.hindrances() == ["memory-exceeded"]


def test_the_memory_of_this_process_is_known() -> None:
    before = resident_bytes()
    held = bytearray(64 << 20)
    held[::4096] = b"x" * (len(held) // 4096)
    assert 50 << 20 < resident_bytes() - before < 100 << 20
    del held


async def test_starts_are_refused_until_there_is_enough() -> None:
    async with working() as (runtime, used):
        used.bytes = LIMIT + 1
        await until(lambda: runtime.memory.is_over)
        for start in (runtime.start("asker"), runtime.starter.begin("asker", run_id="a")):
            with pytest.raises(loom.MemoryExceeded, match="it begins no run until it is below"):
                await start
        with pytest.raises(loom.MemoryExceeded):
            await Asker(timeout=None, runtime=runtime).run()
        assert runtime.memory.refused >= 2
        assert runtime.hindrances() == ["memory-exceeded"]
        used.bytes = 0
        await until(lambda: not runtime.memory.look())
        assert (await runtime.start("asker", run_id="a")).run_id == "a"
        assert runtime.hindrances() == []


def url_of(database: str, tmp_path: Path) -> str:
    if database == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    from postgres_server import fresh_database_url

    return fresh_database_url()


@pytest.mark.parametrize(
    ("database", "idle_timeout"), [("sqlite", None), ("sqlite", 3600.0), ("postgres", None), ("postgres", 3600.0)]
)
async def test_runs_that_wait_leave_and_come_back_for_what_came(
    database: str, idle_timeout: float | None, tmp_path: Path
) -> None:
    async with working(url_of(database, tmp_path), idle_timeout=idle_timeout) as (runtime, used):
        handlers = [await runtime.start("asker", run_id=f"r{number}") for number in range(5)]
        await until(lambda: is_idle(runtime, "r4"))
        used.bytes = LIMIT + 1
        await until(lambda: runtime.figures["in_memory"] == 0)
        # What is sent is taken, and waits.
        for handler in handlers:
            await runtime.send_event(handler.run_id, Word())
        assert runtime.memory.look()
        await until(lambda: _is_held(runtime, "r0"))
        assert runtime.figures["in_memory"] == 0
        assert "it begins no run until" in (await runtime.why("r0")).sentence
        used.bytes = 0
        assert [await handler for handler in handlers] == ["heard"] * 5


async def _is_held(runtime: DurableRuntime, run_id: str) -> bool:
    return (await runtime.why(run_id)).kind == "no_worker"


async def test_a_run_that_begins_to_wait_while_memory_is_short_leaves_at_once() -> None:
    async with working(idle_timeout=3600.0) as (runtime, used):
        await runtime.start("asker", run_id="r")
        used.bytes = LIMIT + 1
        runtime.memory.is_over = True
        await until(lambda: runtime.figures["in_memory"] == 0)
        used.bytes = 0
        await runtime.send_event("r", Word())
        assert await (await runtime.handler("r")) == "heard"


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_runs_that_others_start_are_not_claimed(database: str, tmp_path: Path) -> None:
    url = url_of(database, tmp_path)
    async with working(url) as (runtime, used):
        used.bytes = LIMIT + 1
        await until(lambda: runtime.memory.is_over)
        async with loom.connect(url) as client:
            await client.start("asker", run_id="r")
        await until(lambda: _is_not_begun(runtime))
        scans = runtime._scanner
        assert scans is not None
        for _ in range(3):
            await scans.scan()
        assert (await runtime.row("r")).owner is None
        used.bytes = 0
        await until(lambda: is_idle(runtime, "r"))


async def _is_not_begun(runtime: DurableRuntime) -> bool:
    return "it begins no run until" in (await runtime.why("r")).sentence


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="max_memory must be at least 1"):
        loom.connect("memory://", max_memory=0)
