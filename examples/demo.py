"""A tour in a few seconds: a run on SQLite whose process is killed in the middle, and which goes on in another one.

`make demo` answers the question by itself; `make demo ARGS=--ask` asks you; `ARGS="--keep FILE"` keeps the database.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import loom
from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed

RUN = "cloth-1"
COLOURS = ("red", "green", "blue", "yellow", "magenta", "cyan")
console = Console(highlight=False)


class Thread(Event):
    """One thread to be spun."""

    colour: str


class Spun(Event):
    """A thread that is ready."""

    colour: str
    attempts: int


class Note(Event):
    """A line for whoever watches."""

    text: str


class Question(InputRequiredEvent):
    """What the weaver asks."""

    text: str


class Answer(HumanResponseEvent):
    """What a person says to it."""

    accepted: bool


class World:
    """What happens outside of the run, where nothing can be taken back: a file that only grows."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, what: str) -> None:
        """Something has happened."""
        with self._path.open("a") as file:
            file.write(f"{what}\n")

    def count(self, what: str) -> Counter[str]:
        """How often what has happened to whom."""
        lines = [line.split() for line in self._path.read_text().splitlines()]
        return Counter(line[1] for line in lines if line[0] == what)


class Weaver(Workflow):
    """Spins threads in parallel, weaves them, and asks whether the cloth is good."""

    def __init__(self, world: World) -> None:
        super().__init__(timeout=None)
        self.world = world

    @step
    async def plan(self, ev: StartEvent) -> list[Thread]:
        """Fan out: one event per thread."""
        return [Thread(colour=colour) for colour in ev.colours]

    @step(num_workers=3, retry_policy=retry_policy(wait=wait_fixed(0.4), stop=stop_after_attempt(3)))
    async def spin(self, ctx: Context, ev: Thread) -> Spun:
        """Buy wool and spin one thread, three at a time. The blue one breaks at the first attempt."""
        self.world.note(f"body {ev.colour}")
        attempt = ctx.retry_info().retry_number + 1
        await ctx.once("wool", lambda: self.world.note(f"wool {ev.colour}"))
        await asyncio.sleep(0.15 + 0.05 * len(ev.colour))
        if ev.colour == "blue" and attempt == 1:
            ctx.write_event_to_stream(Note(text=f"[{ev.colour}]✗ {ev.colour}[/] broke; again in 0.4 s"))
            raise RuntimeError("the thread broke")
        ctx.write_event_to_stream(Note(text=f"[{ev.colour}]✓ {ev.colour}[/] is spun, attempt {attempt}"))
        return Spun(colour=ev.colour, attempts=attempt)

    @step
    async def weave(self, ctx: Context, spun: list[Spun]) -> StopEvent:
        """Join: runs when all threads are ready. It asks a person, and costs nothing while it waits."""
        self.world.note("body weave")
        ctx.write_event_to_stream(Note(text="woven: " + "".join(f"[{thread.colour}]████[/]" for thread in spun)))
        answer = await ctx.wait_for_event(Answer, waiter_event=Question(text="Shall it be sold?"), timeout=None)
        attempts = sum(thread.attempts for thread in spun)
        return StopEvent(result=f"{'sold' if answer.accepted else 'kept'}, {attempts} attempts")


# -- the process that works ------------------------------------------------------------------------------------------


async def work(url: str, world: World) -> None:
    """Begin the run, or take it up if it is there, and work until it has ended."""
    async with loom.connect(url, idle_timeout=0.2) as runtime:
        runtime.register(Weaver(world), name="weaver")
        await (await runtime.start("weaver", {"colours": COLOURS}, run_id=RUN))


async def worker(url: str, world: Path) -> Process:
    """The same in a process of its own."""
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, "--work", url, str(world))
    console.print(f"   process {process.pid} works")
    return process


# -- the process that watches ----------------------------------------------------------------------------------------


class Watcher:
    """Reads the run's stream from the store, where it left off, whoever works on the run."""

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self._cursor = -1
        self.notes: Counter[str] = Counter()

    async def until(self, wanted: str) -> str:
        """Show notes until one says this, or until the run asks something."""
        async for event in self._handler.stream_events(after=self._cursor):
            self._cursor = event_cursor(self._handler, self._cursor)
            if isinstance(event, Note):
                self.notes[event.text] += 1
                console.print("  ", event.text)
                if wanted in event.text:
                    return event.text
            elif isinstance(event, Question):
                return event.text
        raise RuntimeError("The run has ended without a question.")
