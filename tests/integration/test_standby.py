"""Processes on one SQLite file of which the working one is killed: a standby goes on with all that was acknowledged."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

import loom

PATIENCE_S = 60.0

PROGRAM = """
import asyncio, json, os, sys
import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step

class Go(HumanResponseEvent):
    pass

class Counted(Event):
    number: int

class Order(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for number in range(3):
            ctx.write_event_to_stream(Counted(number=number))
            await ctx.once(f"charge {number}", lambda: number)
        await ctx.wait_for_event(Go, timeout=None)
        ctx.write_event_to_stream(Counted(number=3))
        return StopEvent(result=ev.number)

class Forked(Workflow):
    @step
    async def fork(self, ev: StartEvent) -> StopEvent:
        child = os.fork()
        if child == 0:
            os.closerange(0, 3)
            while True:
                signal.pause()
        return StopEvent(result=child)

import signal
name, tell = sys.argv[1], lambda *words: print(json.dumps(words), flush=True)

async def watch(runtime):
    role = None
    while True:
        if runtime.role != role:
            role = runtime.role
            tell("role", role)
        await asyncio.sleep(0.01)

async def read(handler):
    numbers = [event.number async for event in handler.stream_events() if isinstance(event, Counted)]
    tell("streamed", handler.run_id, numbers)

async def main():
    runtime = loom.connect("sqlite:///runs.db", name=name, when_locked=sys.argv[2])
    runtime.register(Order(timeout=None), name="order")
    runtime.register(Forked(timeout=None), name="forked")
    asks, loop = asyncio.Queue(), asyncio.get_running_loop()
    tasks = []
    async with runtime:
        loop.add_reader(0, lambda: [asks.put_nowait(line) for line in os.read(0, 100_000).decode().splitlines()])
        tasks.append(asyncio.create_task(watch(runtime)))
        while True:
            match (await asks.get()).split():
                case ["start", first, last]:
                    for number in range(int(first), int(last)):
                        handler = await runtime.start("order", {"number": number}, run_id=f"order-{number}")
                        tell("started", handler.run_id)
                        tasks.append(asyncio.create_task(read(handler)))
                case ["go", first, last]:
                    for number in range(int(first), int(last)):
                        await runtime.send_event(f"order-{number}", Go(), event_id="go")
                        tell("sent", f"order-{number}")
                case ["read", first, last]:
                    for number in range(int(first), int(last)):
                        tasks.append(asyncio.create_task(read(await runtime.handler(f"order-{number}"))))
                case ["fork"]:
                    tell("forked", await (await runtime.start("forked", {})))

asyncio.run(main())
"""


class Process:
    """One process of the program, and what it has told so far."""

    def __init__(self, name: str, when_locked: str, place: Path) -> None:
        command = [sys.executable, "-c", PROGRAM, name, when_locked]
        self._process = subprocess.Popen(command, cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines: Queue[list[Any]] = Queue()
        self.told: list[list[Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(json.loads(line))

    def ask(self, words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()

    def hear(self) -> list[list[Any]]:
        """All that it has told by now."""
        with suppress(Empty):
            while True:
                self.told.append(self._lines.get_nowait())
        return self.told

    def until(self, holds: Callable[[list[list[Any]]], bool]) -> None:
        """Wait until what it has told is enough."""
        while not holds(self.told):
            self.told.append(self._lines.get(timeout=PATIENCE_S))

    @property
    def role(self) -> str | None:
        return next((words[1] for words in reversed(self.hear()) if words[0] == "role"), None)

    def kill(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    begun: list[Process] = []

    def one(name: str, when_locked: str = "standby") -> Process:
        begun.append(Process(name, when_locked, tmp_path))
        begun[-1].until(bool)
        return begun[-1]

    yield one
    for process in begun:
        process.kill()


def count(told: list[list[Any]], what: str) -> int:
    return sum(words[0] == what for words in told)


def streamed(told: list[list[Any]]) -> dict[str, list[int]]:
    return {words[1]: words[2] for words in told if words[0] == "streamed"}


def the_worker(processes: list[Process]) -> Process:
    """The one process that works, once there is one."""
    pause = threading.Event()
    while not any(process.role == "worker" for process in processes):
        pause.wait(0.01)
    (worker,) = [process for process in processes if process.role == "worker"]
    return worker


async def stored(place: Path) -> dict[str, str]:
    """The status of all runs, as they are stored."""
    async with loom.connect(f"sqlite:///{place / 'runs.db'}") as runtime:
        return {info.run_id: info.status async for info in runtime.list()}


def test_a_standby_goes_on_with_all_that_was_acknowledged(begin: Callable[..., Process], tmp_path: Path) -> None:
    """The worker is killed twice while a client starts runs and sends events; streams are open all the time."""
    processes = [begin(f"process {n}") for n in range(3)]
    assert [process.role for process in processes] == ["worker", "standby", "standby"]
    client = begin("client", "client")
    assert client.role == "client"
    runs, expected = range(40), {f"order-{number}": [0, 1, 2, 3] for number in range(40)}
    client.ask("start 0 40")
    client.until(lambda told: count(told, "started") >= 15)
    processes[0].kill()
    second = the_worker(processes[1:])
    client.until(lambda told: count(told, "started") == len(runs))
    client.ask("go 0 40")
    client.until(lambda told: count(told, "sent") >= 10)
    second.kill()
    client.until(lambda told: count(told, "sent") == len(runs))
    # Streams that were opened before the first death go on without a gap and without a repetition.
    client.until(lambda told: count(told, "streamed") == len(runs))
    assert streamed(client.told) == expected
    third = the_worker([process for process in processes[1:] if process is not second])
    third.ask("read 0 40")
    third.until(lambda told: count(told, "streamed") == len(runs))
    assert streamed(third.told) == expected
    assert asyncio.run(stored(tmp_path)) == dict.fromkeys(expected, "completed")


def test_of_many_standbys_one_takes_over_each_time(begin: Callable[..., Process]) -> None:
    processes = [begin(f"process {n}") for n in range(4)]
    while processes:
        worker = the_worker(processes)
        assert sorted(process.role or "" for process in processes) == ["standby"] * (len(processes) - 1) + ["worker"]
        worker.kill()
        processes.remove(worker)


def test_a_forked_child_of_the_dead_does_not_keep_the_place(begin: Callable[..., Process]) -> None:
    first, second = begin("first"), begin("second")
    first.ask("fork")
    first.until(lambda told: count(told, "forked") == 1)
    child = first.told[-1][1]
    try:
        first.kill()
        os.kill(child, 0)  # it lives on
        second.until(lambda told: ["role", "worker"] in told)
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
