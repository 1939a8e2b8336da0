"""A tour in a few seconds: two runs on SQLite whose process is killed in the middle, and which go on in another one.

One is a workflow in Python, the other a flow: a loop in JSON, which goes on at the iteration where it was.
`make demo` answers the question by itself; `make demo ARGS=--ask` asks you; `ARGS="--keep FILE"` keeps the database.
`make demo ARGS=--ui` serves a shop with runs in every state instead, and its page.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import loom
from loom import (
    Context,
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    Workflow,
    retry_policy,
    step,
    stop_after_attempt,
    wait_fixed,
)

RUN, LOOP = "cloth-1", "rows-1"
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
        self.path = path

    def note(self, what: str) -> None:
        """Something has happened."""
        with self.path.open("a") as file:
            file.write(f"{what}\n")

    def count(self, what: str) -> Counter[str]:
        """How often what has happened to whom."""
        return Counter(line[0] for line in self.all(what))

    def all(self, what: str) -> list[list[str]]:
        """Everything that has happened of that kind, in its order."""
        lines = [line.split() for line in self.path.read_text().splitlines()]
        return [line[1:] for line in lines if line[0] == what]


class Wanted(StartEvent):
    """The colours of a cloth."""

    colours: list[str]


class Weaver(Workflow):
    """Spins threads in parallel, weaves them, and asks whether the cloth is good."""

    def __init__(self, world: World) -> None:
        super().__init__(timeout=None)
        self.world = world

    @step
    async def plan(self, ev: Wanted) -> list[Thread]:
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


ROWS = {
    "weaveRows": {
        "type": "until",
        "condition": "@equals(variables('loopIndex'), 12)",
        "actions": {
            "weave": {"type": "activity", "inputs": {"activityType": "row", "input": "@variables('loopCount')"}},
        },
        "delay": {"interval": {"count": 0.1, "unit": "second"}},
        "limit": {"count": 100, "timeout": "PT5M"},
    },
}
"""A flow: a loop with a condition, limits, and a pause between its iterations."""


# -- the process that works -------------------------------------------------------------------------------------------


async def work(url: str, world: World) -> None:
    """Begin the runs, or take them up if they are there, and work until they have ended."""

    @loom.activity("row")
    def row(number: int) -> str:
        world.note(f"row {number} {os.getpid()}")
        return f"row {number}"

    async with loom.connect(url, idle_timeout=0.1) as runtime:
        runtime.register(Weaver(world), name="weaver")
        runtime.register(loom.load(ROWS), name="rows")
        cloth = await runtime.start("weaver", {"colours": COLOURS}, run_id=RUN)
        await (await runtime.start("rows", run_id=LOOP))
        await cloth


@asynccontextmanager
async def worker(url: str, world: World) -> AsyncIterator[Process]:
    """The same in a process of its own. Whoever leaves while it still works kills it, as `kill -9` does."""
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, "--work", url, str(world.path))
    console.print(f"   process {process.pid} works on the run")
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


# -- the process that watches -----------------------------------------------------------------------------------------


async def show(handler: Any, seen: list[str], until: str) -> str:
    """Show the stream of a run from where it was left, until it says something or asks a question."""
    async for event in handler.stream_events():
        if isinstance(event, Question):
            return event.text
        if isinstance(event, Note):
            seen.append(event.text)
            console.print("  ", event.text)
            if until in event.text:
                return event.text
    raise RuntimeError("The run has ended without a question.")


async def person(question: str, ask: bool) -> bool:
    """Ask whoever sits at the keyboard, or let somebody type a yes."""
    console.print(f"   [bold]{question}[/] \\[y/n] ", end="")
    if ask:
        return (await asyncio.to_thread(input)).strip().lower().startswith("y")
    await asyncio.sleep(0.8)
    console.print("[bold]y[/]")
    return True


async def found(runtime: Any) -> Any:
    """The handler of the run, as soon as somebody has started it."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await runtime.handler(RUN)
            except loom.RunNotFound:
                await asyncio.sleep(0.02)


async def released(runtime: Any) -> Any:
    """What is stored of the run, as soon as nobody has it in memory."""
    while (info := await runtime.get(RUN)).in_memory:  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.02)
    return info


async def show_loop(runtime: Any, world: World, first: Process, second: Process) -> None:
    """Show which process ran which iteration of the flow."""
    result = await (await runtime.handler(LOOP))
    rows = {
        process.pid: [row for row, pid in world.all("row") if pid == str(process.pid)] for process in (first, second)
    }
    console.print(f"   process {first.pid} wove the rows {' '.join(rows[first.pid])}")
    console.print(f"   process {second.pid} wove the rows {' '.join(rows[second.pid])}")
    loop = result.actions["weaveRows"]
    console.print(f"   the file says: {result.status}, {loop.iterations} iterations, last result {loop.outputs}")


def summary(rows: dict[str, str]) -> Table:
    """What happened, in a table."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, value)
    return table


async def watch(url: str, world: World, ask: bool) -> None:
    """Let a process work, kill it, let another one go on, and answer the question."""
    began = time.perf_counter()
    seen: list[str] = []
    async with loom.connect(url) as runtime:
        console.rule("[bold]1[/]  six threads, three workers, one that breaks")
        async with worker(url, world) as first:
            handler = await found(runtime)
            await show(handler, seen, until="green")
            await asyncio.sleep(0.1)  # the others are in the middle of their work

        console.rule(f"[bold]2[/]  [red]kill -9 {first.pid}[/]: the process is gone in mid-run")
        info, before = await runtime.get(RUN), world.count("body")
        console.print(f"   the file says: {info.status}, {info.ticks} ticks, {info.events} events; nobody works on it")
        await asyncio.sleep(0.5)

        console.rule("[bold]3[/]  another process takes the run up from the file")
        async with worker(url, world) as second:
            question = await show(handler, seen, until="?")
            again = world.count("body") - before
            info = await released(runtime)
            [waiter] = info.active_waiters
            console.rule("[bold]4[/]  the run waits for a person, and is in no process's memory")
            console.print(f"   the file says: {info.status}, idle, waits for {waiter['event_type'].rpartition('.')[2]}")
            await handler.send_event(Answer(accepted=await person(question, ask)))
            result = await handler
            await second.wait()
        console.rule("[bold]5[/]  beside it a flow, a loop in JSON, went through the same kill")
        await show_loop(runtime, world, first, second)
        info, wool = await runtime.get(RUN), world.count("wool")

    console.rule("[bold]done[/]")
    repeated = [colour for colour in again if colour in before and colour != "blue"]
    rows = {
        "the cloth is": f"[bold]{result}[/]",
        "bodies begun before the kill": ", ".join(before),
        "begun again after it": ", ".join(repeated),
        "wool bought, with ctx.once": f"{wool.total()} times for {len(wool)} threads",
        "lines on the stream": f"{len(seen)}, {len(seen) - len(set(seen))} of them twice",
        "the run": f"{info.status}: {info.ticks} ticks, {info.events} events",
        "time": f"{time.perf_counter() - began:.1f} s",
    }
    console.print(summary(rows))
    console.print("\n   See runs in every state on a page, and answer them: [bold]make demo ARGS=--ui[/]")


def is_free(port: int) -> bool:
    """Tell whether a server can listen on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return True
    return False


def answers(port: int) -> bool:
    """Tell whether a server listens on a port of this machine."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def serve(url: str, port: int) -> int:
    """Serve a shop with runs in every state, and its page, until Ctrl-C."""
    import showcase

    if not is_free(port):
        console.print(f"   port {port} is in use; choose another one: make demo ARGS='--ui --port {port + 1}'")
        return 1
    console.print("   starting runs in every state ...")
    logging.disable(logging.WARNING)  # the runs that fail, park and get stuck do so on purpose
    asyncio.run(showcase.seed(url))
    targets = showcase.targets(Path(showcase.__file__).resolve())
    options = ("--store", url, "--port", str(port), "--log-level", "error")
    with subprocess.Popen([sys.executable, "-m", "loom", "serve", *targets, *options]) as server:  # noqa: S603 - its own command
        # Who ends the demo ends its server too.
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        with suppress(KeyboardInterrupt):
            while server.poll() is None and not answers(port):
                time.sleep(0.1)
            if server.poll() is None:
                console.print(f"\n   [bold]Open http://127.0.0.1:{port}/ in a browser.[/] Ctrl-C ends it.\n")
            return server.wait()
        return server.wait()


def main() -> None:
    """Watch, or work if the watching process says so."""
    parser = argparse.ArgumentParser(description="A run that is killed in the middle, and goes on.")
    parser.add_argument("--ask", action="store_true", help="let me answer the question")
    parser.add_argument("--keep", metavar="FILE", type=Path, help="keep the database in this file")
    parser.add_argument("--ui", action="store_true", help="serve runs in every state, with their page")
    parser.add_argument("--port", type=int, default=8080, help="the port of --ui")
    parser.add_argument("--work", nargs=2, metavar=("URL", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        url, file = arguments.work
        with suppress(KeyboardInterrupt):
            asyncio.run(work(url, World(Path(file))))
        return
    if arguments.keep is not None and arguments.keep.exists():
        parser.error(f"{arguments.keep} exists already: name a new file.")
    with tempfile.TemporaryDirectory(prefix="loom-demo-") as folder:
        database = (arguments.keep or Path(folder) / "demo.db").resolve()
        if arguments.ui:
            sys.exit(serve(f"sqlite:///{database}", arguments.port))
        asyncio.run(watch(f"sqlite:///{database}", World(Path(folder) / "world.txt"), arguments.ask))


if __name__ == "__main__":
    main()
