"""A tour of the engine in a few seconds: fan-out, a retry, a question to a person, and a run that changes hands.

`make demo` answers the question by itself; `make demo ARGS=--ask` asks you.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed

COLOURS = ("red", "green", "blue", "yellow", "magenta", "cyan")
BODIES: Counter[str] = Counter()
"""How often each body has begun, in this process."""
console = Console(highlight=False)


class Thread(Event):
    """One thread to be spun."""

    colour: str


class Spun(Event):
    """A thread that is ready."""

    colour: str
    attempts: int


class Cloth(Event):
    """What the threads became."""

    threads: list[str]


class Note(Event):
    """A line for whoever watches."""

    text: str


class Question(InputRequiredEvent):
    """What the weaver asks."""

    text: str


class Answer(HumanResponseEvent):
    """What a person says to it."""

    accepted: bool


class Weaver(Workflow):
    """Spins threads in parallel, weaves them, and asks whether the cloth is good."""

    @step
    async def plan(self, ev: StartEvent) -> list[Thread]:
        """Fan out: one event per thread."""
        BODIES["plan"] += 1
        return [Thread(colour=colour) for colour in ev.colours]

    @step(num_workers=3, retry_policy=retry_policy(wait=wait_fixed(0.4), stop=stop_after_attempt(3)))
    async def spin(self, ctx: Context, ev: Thread) -> Spun:
        """Spin one thread, three at a time. The blue one breaks at the first attempt."""
        BODIES["spin"] += 1
        attempt = ctx.retry_info().retry_number + 1
        await asyncio.sleep(0.15 + 0.05 * len(ev.colour))
        if ev.colour == "blue" and attempt == 1:
            ctx.write_event_to_stream(Note(text=f"[{ev.colour}]✗ {ev.colour}[/] broke; again in 0.4 s"))
            raise RuntimeError("the thread broke")
        ctx.write_event_to_stream(Note(text=f"[{ev.colour}]✓ {ev.colour}[/] is spun, attempt {attempt}"))
        return Spun(colour=ev.colour, attempts=attempt)

    @step
    async def weave(self, ctx: Context, spun: list[Spun]) -> Cloth:
        """Join: runs once, when all threads are ready."""
        BODIES["weave"] += 1
        async with ctx.store.edit_state() as state:
            state["attempts"] = sum(thread.attempts for thread in spun)
        return Cloth(threads=[thread.colour for thread in spun])

    @step
    async def show(self, ctx: Context, ev: Cloth) -> StopEvent:
        """Ask a person. The body is suspended here and holds no worker."""
        BODIES["show"] += 1
        ctx.write_event_to_stream(Note(text="woven: " + "".join(f"[{c}]████[/]" for c in ev.threads)))
        answer = await ctx.wait_for_event(Answer, waiter_event=Question(text="Shall it be sold?"), timeout=None)
        return StopEvent(result="sold" if answer.accepted else "kept")


async def until_asked(handler: Any) -> str:
    """Show the stream of a run until it asks something."""
    async for event in handler.stream_events():
        if isinstance(event, Note):
            console.print("  ", event.text)
        elif isinstance(event, Question):
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


def summary(rows: dict[str, str]) -> Table:
    """What happened, in a table."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, value)
    return table


async def main(ask: bool) -> None:
    """Weave until the question, save the run, take it up in a new workflow, and answer."""
    began = time.perf_counter()
    console.rule("[bold]1[/]  six threads, three workers, one that breaks")
    handler = Weaver(timeout=None).run(colours=COLOURS)
    question = await until_asked(handler)

    console.rule("[bold]2[/]  the run waits; it is saved as JSON, and its process lets go of it")
    saved = json.dumps(handler.ctx.to_dict())
    await handler.cancel_run()
    console.print(f"   {len(saved):,} bytes, nothing but data")
    before = Counter(BODIES)

    console.rule("[bold]3[/]  somebody else takes it up, and a person answers")
    weaver = Weaver(timeout=None)
    handler = weaver.run(ctx=Context.from_dict(weaver, json.loads(saved)))
    await handler.send_event(Answer(accepted=await person(question, ask)))
    repeated = [event.text async for event in handler.stream_events() if isinstance(event, Note)]
    result = await handler

    console.rule("[bold]done[/]")
    again = BODIES - before
    console.print(
        summary(
            {
                "the cloth is": f"[bold]{result}[/]",
                "threads spun": f"{len(COLOURS)} in {await handler.ctx.store.get('attempts')} attempts",
                "bodies run before the save": ", ".join(f"{name} {count}" for name, count in before.items()),
                "bodies run again after it": ", ".join(f"{name} {count}" for name, count in again.items()),
                "stream events repeated": str(len(repeated)),
                "time": f"{time.perf_counter() - began:.1f} s",
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main(ask="--ask" in sys.argv[1:]))
