"""Workflows that the tests on a real server run, in this process and in others."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step

BIG = 200_000
WIDE = 25


class Word(HumanResponseEvent):
    n: int


class Begun(Event):
    pass


class Counting(Workflow):
    """Counts words from outside, each by a step of its own, until the last one is counted."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> None:
        await ctx.store.set("words", ev.words)

    @step(num_workers=4)
    async def count(self, ctx: Context, ev: Word) -> StopEvent | None:
        async with ctx.store.edit_state() as state:
            heard = state["heard"] = [*state.get("heard", []), ev.n]
            return StopEvent(result=heard) if len(heard) == state["words"] else None


class Blocking(Workflow):
    """Does not let anything else happen in its process for a while, the first time."""

    begun = 0

    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        Blocking.begun += 1
        if Blocking.begun == 1:
            time.sleep(ev.seconds)  # noqa: ASYNC251 - that is what it is for
        return StopEvent(result="done")


class Text(Event):
    text: str


class Read(Event):
    size: int


class Wide(Workflow):
    """A large event that many steps take, so that all of them are asked for at once, each with the whole of it."""

    @step
    async def begin(self, ev: StartEvent) -> Text:
        return Text(text="x" * BIG)

    @step
    async def join(self, ctx: Context, ev: Read) -> StopEvent | None:
        found = ctx.collect_events(ev, [Read] * WIDE)
        return None if found is None else StopEvent(result=sum(read.size for read in found))


def _add_reader(number: int) -> None:
    async def read(ev: Text) -> Read:
        return Read(size=len(ev.text))

    read.__name__ = read.__qualname__ = f"read_{number}"
    step(workflow=Wide)(read)


for _number in range(WIDE):
    _add_reader(_number)


class Item(Event):
    n: int


class Many(Workflow):
    """Very many steps at once."""

    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        return [Item(n=number) for number in range(ev.pieces)]

    @step(num_workers=10_000)
    async def work(self, ev: Item) -> Read:
        return Read(size=1)

    @step
    async def join(self, ev: list[Read]) -> StopEvent:
        return StopEvent(result=sum(read.size for read in ev))


class Held(Workflow):
    """A step that never ends in the first process that runs it, and tells where it is in a file."""

    def __init__(self, place: Path) -> None:
        super().__init__(timeout=None)
        self._place = place

    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        with self._place.open("a") as told:
            told.write(f"{os.getpid()}\n")
        if len(self._place.read_text().split()) == 1:
            await asyncio.Event().wait()
        return StopEvent(result=ctx.idempotency_key)


class Talk(Workflow):
    """Waits for words, one after the other."""

    @step
    async def talk(self, ctx: Context, ev: StartEvent) -> StopEvent:
        words = [(await ctx.wait_for_event(Word, timeout=None)).n for _ in range(ev.words)]
        return StopEvent(result=words)
