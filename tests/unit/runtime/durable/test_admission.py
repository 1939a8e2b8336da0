"""Limits on the runs in memory: whoever waits for room gets it, and nobody keeps what it has no room for."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.admission import AdmissionQueue
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual

RARELY = 3600.0


class Word(HumanResponseEvent):
    text: str


class Ask(Workflow):
    @step
    async def ask(self, ctx: Context, _ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(Word, timeout=None)).text)


class Busy(Workflow):
    """Works until it is let go."""

    @step
    async def work(self, _ev: StartEvent) -> StopEvent:
        await asyncio.sleep(100)
        return StopEvent(result="worked")


class Quick(Workflow):
    @step
    async def work(self, _ev: StartEvent) -> StopEvent:
        return StopEvent(result="done")


async def _room_of_the_right_workflow() -> None:
    async with loom.connect(MemoryStore(), poll_interval=RARELY, lease=3 * RARELY) as runtime:
        runtime.register(Ask(timeout=None, num_concurrent_runs=1), name="ask")
        runtime.register(Busy(timeout=None, num_concurrent_runs=1), name="busy")
        await runtime.start("ask", run_id="ask 1")
        await runtime.start("busy", run_id="busy 1")
        await runtime.start("ask", run_id="ask 2")
        second = await runtime.start("busy", run_id="busy 2")
        async with asyncio.timeout(250):
            assert await second == "worked"


def test_room_is_given_to_a_run_that_can_use_it() -> None:
    run_virtual(_room_of_the_right_workflow())


async def _place_of_a_cancelled_one() -> None:
    async with loom.connect(MemoryStore(), poll_interval=RARELY, lease=3 * RARELY, max_in_memory=1) as runtime:
        runtime.register(Busy(timeout=None), name="busy")
        first = await runtime.start("busy", run_id="a")
        handlers = [await runtime.start("busy", run_id=f"b{number}") for number in range(3)]
        await runtime.cancel("b0")
        async with asyncio.timeout(450):
            assert await first == "worked"
            for handler in handlers[1:]:
                assert await handler == "worked"


def test_room_that_the_first_in_line_does_not_need_goes_to_the_next() -> None:
    run_virtual(_place_of_a_cancelled_one())


async def _several_make_way() -> None:
    options = {"poll_interval": RARELY, "lease": 3 * RARELY, "max_in_memory": 3, "idle_timeout": None}
    async with loom.connect(MemoryStore(), **options) as runtime:  # type: ignore[arg-type]
        runtime.register(Ask(timeout=None), name="ask")
        runtime.register(Busy(timeout=None), name="busy")
        for number in range(3):
            await runtime.start("ask", run_id=f"ask {number}")
        await asyncio.sleep(1)
        busy = [await runtime.start("busy") for _ in range(3)]
        async with asyncio.timeout(150):
            assert [await handler for handler in busy] == ["worked"] * 3
        assert runtime.figures["released"] == 3


def test_as_many_idle_runs_make_way_as_there_are_waiting() -> None:
    run_virtual(_several_make_way())


async def _backlog() -> float:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as client:
        handlers = [await client.start("quick") for _ in range(30)]
        async with loom.connect(MemoryStore(database), poll_interval=10.0, max_in_memory=2) as worker:
            began = asyncio.get_running_loop().time()
            worker.register(Quick(), name="quick")
            for handler in handlers:
                assert await handler == "done"
            return asyncio.get_running_loop().time() - began


def test_backlog_is_worked_off_without_waiting_for_the_next_look() -> None:
    assert run_virtual(_backlog()) < 10


async def _full_and_free() -> object:
    database = MemoryDatabase()
    async with (
        loom.connect(MemoryStore(database)) as client,
        loom.connect(MemoryStore(database), max_in_memory=1) as full,
        loom.connect(MemoryStore(database), max_in_memory=1) as free,
    ):
        full.register(Busy(timeout=None), name="busy")
        await full.start("busy")
        handler = await client.start("ask", run_id="a")
        await client.send_event("a", Word(text="hello"))
        full.register(Ask(timeout=None), name="ask")
        await asyncio.sleep(5)  # it looks for work a few times, though it has no room
        free.register(Ask(timeout=None), name="ask")
        async with asyncio.timeout(20):
            return await handler


def test_full_process_does_not_keep_a_run_from_one_that_has_room() -> None:
    assert run_virtual(_full_and_free()) == "hello"


def test_nothing_is_kept_of_runs_that_are_over() -> None:
    async def many() -> None:
        async with loom.connect(MemoryStore(), max_in_memory=3, idle_timeout=0) as runtime:
            runtime.register(Quick(num_concurrent_runs=2), name="quick")
            runtime.register(Ask(timeout=None), name="ask")
            handlers = [await runtime.start("quick") for _ in range(20)]
            asking = [await runtime.start("ask") for _ in range(5)]
            for handler in asking:
                await runtime.send_event(handler.run_id, Word(text="x"))
            for handler in handlers + asking:
                await handler
            del handler, handlers, asking
            await asyncio.sleep(100)
            active, scanner = runtime.active_runs, runtime._scanner
            assert active is not None
            assert scanner is not None
            admission = active.admission
            left = (
                active.runs, active._slots, active._logged, active._idle._since, active._background, scanner._due,
                admission._waiting, admission._places, admission._lenders,
                runtime.handles, runtime.watchers._waiting, runtime.endings._waiting,
            )  # fmt: skip
            assert [dict.fromkeys(each) for each in left] == [{}] * len(left)

    began = time.monotonic()
    run_virtual(many())
    assert time.monotonic() - began < 60


_PLACES = st.lists(
    st.tuples(st.sampled_from(["take", "admit", "free"]), st.integers(0, 7), st.integers(0, 1), st.integers(0, 7)),
    max_size=40,
)


@given(moves=_PLACES)
def test_room_is_counted_as_a_look_at_all_places_would(moves: list[tuple[str, int, int, int]]) -> None:
    limits = SimpleNamespace(concurrent_runs=3)
    codes: list[Any] = [_Code(SimpleNamespace(limits=limits)) for _ in range(2)]
    runs: dict[str, Any] = {}
    memory: Any = SimpleNamespace(is_over=False, has_room=True)
    places = AdmissionQueue(runs, _NoRuns(), None, memory)

    async def go() -> None:
        for move, number, which, parent in moves:
            run_id, code = f"r{number}", codes[which]
            if move == "free":
                places.free_place(run_id)
                runs.pop(run_id, None)
            elif move == "take":
                places.take_place(run_id, code)
                runs[run_id] = SimpleNamespace(code=code, row=SimpleNamespace(parent=None, workflow=str(which)))
            elif parent != number:
                row: Any = SimpleNamespace(run_id=run_id, parent=f"r{parent}", workflow=str(which))
                if await places.admit(row, code):
                    runs[run_id] = SimpleNamespace(code=code, row=row)
            for each in codes:
                own = sum(taken is each and one not in places._lenders for one, taken in places._places.items())
                assert places.room_for(each) == max(0, 3 - own)

    asyncio.run(go())


class _NoRuns(MemoryStore):
    @override
    async def get(self, run_id: str) -> None:
        return None


class _Code:
    """The part of a registration that admission looks at."""

    def __init__(self, definition: Any) -> None:
        self.definition = definition
