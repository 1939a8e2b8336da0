"""The watchdog: stalls in the log, and the health port."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import StartEvent, StopEvent, Workflow, step
from loom.core.run import Run
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.watchdog import Answer, HealthPort, LoopWatch, watchdog
from loom.testing import run_virtual

sys.path.insert(0, str(Path(__file__).parents[2]))

PATIENCE_S = 60.0
SOON_S = 0.3
LONG = "a" * 24 + "b"


class Told(logging.Handler):
    """What the watchdog has logged. A body that holds the loop waits for it: so no test depends on a quick machine."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.stalled = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        if "has not turned" in record.getMessage():
            self.stalled.set()

    def hold(self) -> None:
        """Block until a stall is told of that begins now."""
        self.stalled.clear()
        assert self.stalled.wait(PATIENCE_S), "nobody has told of the stall"

    def that(self, words: str) -> logging.LogRecord:
        """The first line with some words. A machine that is busy may have given cause for others."""
        return next(record for record in self.records if words in record.getMessage())


@pytest.fixture
def told() -> Iterator[Told]:
    handler = Told()
    logger = logging.getLogger("loom.watchdog")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - nobody is told of it
            await asyncio.sleep(0.005)


class Holds(Workflow):
    """Holds the event loop as its body wants."""

    def __init__(self, body: Callable[[], Awaitable[object]]) -> None:
        super().__init__(timeout=None)
        self.body = body

    @step
    async def hold(self, ev: StartEvent) -> StopEvent:
        await self.body()
        return StopEvent(result="over")


async def held(
    told: Told, body: Callable[[], Awaitable[None]], stall_s: float = SOON_S, url: str = "memory://"
) -> LoopWatch:
    """Run a body to its end, and wait until the loop turns again."""
    async with loom.connect(url, watchdog=stall_s) as runtime:
        runtime.register(Holds(body), name="holds")
        handler = await runtime.start("holds", run_id="r-1")
        watch = runtime.watch
        assert watch is not None
        assert await handler == "over"
        runtime.watch_always()
        await until(lambda: any("turns again" in record.getMessage() for record in told.records))
    return watch


@pytest.mark.parametrize("database", ["memory", "sqlite", "postgres"])
async def test_a_body_that_blocks_is_named_with_its_stack(told: Told, database: str, tmp_path: Path) -> None:
    async def body() -> None:
        told.hold()

    url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/runs.db", "postgres": ""}[database]
    if not url:
        from postgres_server import fresh_database_url

        url = fresh_database_url()
    watch = await held(told, body, url=url)
    begun = told.that("step hold of run r-1 holds it")
    assert (begun.run_id, begun.workflow, begun.step) == ("r-1", "holds", "hold")  # type: ignore[attr-defined]
    # The author's own frames come first: the innermost of them is where it stands.
    assert begun.stack_info is not None
    assert begun.stack_info.splitlines()[0].endswith("in hold")
    assert 'In libraries and the engine:\n  File "' in begun.stack_info
    assert "run_until_complete" not in begun.stack_info
    over = told.that("turns again")
    assert re.search(r"after \d+\.\d s: step hold of run r-1 held it", over.getMessage())
    assert (over.run_id, over.step) == ("r-1", "hold")  # type: ignore[attr-defined]
    assert watch.stalls >= 1
    assert watch.stalled_s >= SOON_S


async def test_one_line_tells_of_a_stall_however_long(told: Told) -> None:
    async def body() -> None:
        told.hold()
        time.sleep(3 * SOON_S)  # noqa: ASYNC251 - that is the point

    await held(told, body)
    assert len([record for record in told.records if "step hold of run r-1 holds it" in record.getMessage()]) == 1


async def test_native_code_that_keeps_the_lock_is_named_when_it_is_over(told: Told) -> None:
    async def body() -> None:
        assert re.match(r"(a+)+$", LONG) is None

    await held(told, body, stall_s=0.04)
    stacks = [record.stack_info or "" for record in told.records if "step hold of run" in record.getMessage()]
    assert any("(a+)+" in stack for stack in stacks)


async def test_a_task_that_a_body_has_begun_is_named_as_its_own(told: Told) -> None:
    async def inner() -> None:
        told.hold()

    async def body() -> None:
        await asyncio.gather(inner())

    await held(told, body)
    begun = told.that("step hold of run r-1 holds it")
    assert begun.stack_info is not None
    assert "in inner" in begun.stack_info


async def test_a_run_that_is_reduced_for_long_is_named(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    drain = Run.drain

    def slow(self: Run, units: int | None = None) -> Any:
        told.hold()
        return drain(self, units)

    async def body() -> None:
        monkeypatch.setattr(Run, "drain", slow)

    await held(told, body)
    begun = told.that(": run r-1 holds it")
    assert (begun.run_id, hasattr(begun, "step")) == ("r-1", False)  # type: ignore[attr-defined]
    assert begun.stack_info is not None
    assert "in slow" in begun.stack_info


async def test_what_belongs_to_no_run_is_told_with_its_stack(told: Told) -> None:
    async with loom.connect("memory://", watchdog=SOON_S) as runtime:
        runtime.register(Holds(lambda: asyncio.sleep(0)), name="holds")
        await runtime.ready()
        runtime.watch_always()
        await asyncio.sleep(0)
        told.hold()
    assert told.that("belongs to no run").stack_info


async def test_a_loop_that_turns_is_not_told_of(told: Told) -> None:
    async def body() -> None:
        watch = runtime.watch
        assert watch is not None
        for _ in range(3):  # several questions, each answered
            asked = watch._asked_at
            await until(lambda asked=asked: watch._asked_at != asked)  # type: ignore[misc]

    runtime: DurableRuntime
    async with loom.connect("memory://", watchdog=20.0) as runtime:
        runtime.register(Holds(body), name="holds")
        assert await (await runtime.start("holds")) == "over"
        assert runtime.watch is not None
        assert runtime.watch.stalls == 0
    assert not told.records


async def test_it_sleeps_while_no_run_is_in_memory() -> None:
    async with loom.connect("memory://", watchdog=0.02) as runtime:
        over = asyncio.Event()
        runtime.register(Holds(over.wait), name="holds")
        await runtime.ready()
        dog = watchdog()
        await until(lambda: dog._is_asleep)
        handler = await runtime.start("holds")
        assert not dog._is_asleep
        over.set()
        await handler
        await until(lambda: dog._is_asleep)


def test_it_is_off_under_a_virtual_clock_and_by_option() -> None:
    async def work(**options: Any) -> LoopWatch | None:
        async with loom.connect("memory://", **options) as runtime:
            runtime.register(Holds(lambda: asyncio.sleep(0)), name="holds")
            await runtime.ready()
            return runtime.watch

    assert run_virtual(work()) is None
    assert asyncio.run(work(watchdog=None)) is None
    assert asyncio.run(work()) is not None


async def test_a_client_is_not_watched() -> None:
    async with loom.connect("memory://") as runtime:
        await runtime.ready()
        assert runtime.watch is None


def test_two_runtimes_on_a_loop_share_a_watch() -> None:
    async def work() -> None:
        async with loom.connect("memory://") as one, loom.connect("memory://", watchdog=0.5) as two:
            for runtime in (one, two):
                runtime.register(Holds(lambda: asyncio.sleep(0)), name="holds")
                await runtime.ready()
            assert one.watch is two.watch is not None
            assert one.watch.stall_s == 0.5
        assert asyncio.get_running_loop() not in watchdog()._watches

    asyncio.run(work())


async def test_a_process_that_was_stopped_is_told_of_when_it_goes_on(told: Told) -> None:
    watch = LoopWatch(asyncio.get_running_loop(), 1.0)
    watch._users.append(lambda: True)
    now = time.monotonic()
    assert watch.look(now, now)
    watch._turned_at = now + 7.0  # it goes on, and the loop is faster than the watchdog
    assert watch.look(now + 7.0, now + 0.25)
    assert (watch.stalls, watch.stalled_s) == (1, pytest.approx(7.0))
    assert told.that("The process stood still for 7.0 s")


@pytest.mark.parametrize("wrong", [0, -1, float("nan")])
def test_a_watchdog_without_patience_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="watchdog must be greater than 0"):
        loom.connect("memory://", watchdog=wrong)


# -- the health port --------------------------------------------------------------------------------------------------


@pytest.fixture
def port() -> Iterator[HealthPort]:
    def answer(path: str, query: str) -> Answer | None:
        if path == "/broken":
            raise RuntimeError("on purpose")
        return Answer.json(200, {"path": path, "query": query}) if path == "/live" else None

    found = HealthPort("127.0.0.1", 0, answer)
    watchdog().open(found)
    yield found
    watchdog().close(found)


def connected(port: HealthPort) -> socket.socket:
    return socket.create_connection(port.socket.getsockname()[:2], timeout=30)


def asked(port: HealthPort, request: bytes) -> tuple[int, bytes]:
    """Status and body of an answer; status 0 if there is none."""
    with connected(port) as visitor:
        visitor.sendall(request)
        answer = b"".join(iter(lambda: visitor.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body


def test_what_it_knows_and_what_not(port: HealthPort) -> None:
    status, body = asked(port, b"GET /live?a=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (status, json.loads(body)) == (200, {"path": "/live", "query": "a=1"})
    assert asked(port, b"HEAD /live HTTP/1.0\r\n\r\n") == (200, b"")
    assert asked(port, b"GET /else HTTP/1.1\r\n\r\n")[0] == 404
    assert asked(port, b"POST /live HTTP/1.1\r\n\r\n")[0] == 405
    assert asked(port, b"\x16\x03\x01 hello\r\n\r\n")[0] == 400
    assert asked(port, b"GET /" + b"x" * 9000)[0] in (0, 400)
    assert port.url.startswith("http://127.0.0.1:")


def test_a_failure_of_its_own_ends_one_visit_only(port: HealthPort, caplog: pytest.LogCaptureFixture) -> None:
    assert asked(port, b"GET /broken HTTP/1.1\r\n\r\n") == (0, b"")
    assert "A request to the health port has failed." in caplog.text
    assert asked(port, b"GET /live HTTP/1.1\r\n\r\n")[0] == 200


def test_visitors_who_say_nothing_hold_up_nobody(port: HealthPort) -> None:
    with ExitStack() as all_of_them:
        silent = [all_of_them.enter_context(connected(port)) for _ in range(60)]
        silent[-1].sendall(b"GET /live HTTP/1.1\r\n")
        for _ in range(3):
            assert asked(port, b"GET /live HTTP/1.1\r\n\r\n")[0] == 200
        # The first ones had to leave for others.
        assert silent[0].recv(1) == b""
        silent[-1].sendall(b"\r\n")
        assert silent[-1].recv(20).startswith(b"HTTP/1.1 200")


def test_a_port_that_is_closed_is_free_again() -> None:
    first = HealthPort("127.0.0.1", 0, lambda _path, _query: Answer.json(200, 1))
    place = first.socket.getsockname()
    watchdog().open(first)
    assert asked(first, b"GET / HTTP/1.1\r\n\r\n") == (200, b"1")
    watchdog().close(first)
    deadline = 30_000
    while first.socket.fileno() != -1 and deadline:
        deadline -= 1
        socket.create_server(("127.0.0.1", 0)).close()
    second = HealthPort("127.0.0.1", place[1], lambda _path, _query: None)
    second.socket.close()
