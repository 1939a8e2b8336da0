"""One scripted run on all kinds of stores: the same ticks, the same stream, the same states, but for the times."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from runtime_deployments import DATABASES, Deployment, new_deployment
from runtime_watching import Watched, Witness, result, tick_names, until, until_released

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, catch_error, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.events import StepFailedEvent
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none
from loom.store.codec import encode_tick

_TIMES = {"at", "due", "since", "deadline", "deadline_s", "first_at", "last_failed_at", "failed_at", "away_s"}
_CHANCE = {"more", "mail"}
"""Which ticks came together is up to the event loop, and letters are numbered by the store."""

NAP_S = 3600


class Word(HumanResponseEvent):
    text: str = ""


class Item(Event):
    n: int


class Piece(Event):
    n: int


class Script(Watched):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> list[Item]:
        await ctx.store.set("input", ev.value)
        ctx.write_event_to_stream(Item(n=-1))
        return [Item(n=1), Item(n=2)]

    @step(num_workers=1, retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def work(self, ctx: Context, ev: Item) -> Piece:
        times = await ctx.once("times", lambda: self.witness.saw(f"work {ev.n}"))
        if ev.n == 2:
            raise ConnectionError(f"no {ev.n}, {times}")
        return Piece(n=ev.n)

    @catch_error
    async def rescue(self, ctx: Context, ev: StepFailedEvent) -> Piece:
        return Piece(n=-2)

    @step
    async def talk(self, ctx: Context, pieces: list[Piece]) -> StopEvent:
        words = []
        for _ in range(2):
            word = await ctx.wait_for_event(Word, waiter_event=Item(n=0), timeout=3600)
            words.append(word.text)
            async with ctx.store.edit_state() as state:
                state["words"] = [*state.get("words", []), word.text]
        await ctx.sleep(NAP_S)
        child = await ctx.run_child("child", n=len(words))
        return StopEvent(result=[words, [piece.n for piece in pieces], child])


class Child(Watched):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await self.witness.at("child")
        return StopEvent(result=ev.n + 1)


def timeless(value: Any) -> Any:
    """Plain data without times and what is left to chance."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in _TIMES | _CHANCE}
    if isinstance(value, list):
        return [timeless(item) for item in value]
    return value


class Player:
    """Runs the script. What happens from outside happens when nothing else can, so that there is one order of ticks."""

    def __init__(self, deployment: Deployment, how: str) -> None:
        self.deployment = deployment
        self.how = how
        self.witness = Witness()
        self.runtime: DurableRuntime

    async def open(self) -> None:
        code = {"script": Script(self.witness, timeout=None), "child": Child(self.witness)}
        self.runtime = await self.deployment.open(code, idle_timeout=0 if self.how == "released" else None)

    async def rest(self, last_tick: str, ticks: int) -> None:
        """Wait until the run can only be moved from outside, then let the process end as it is to end here."""
        await until(partial(self._ends_with, last_tick, ticks), f"{last_tick} as the last of more than {ticks} ticks")
        if self.how == "released":
            await until_released(self.runtime, "run")
        elif self.how == "crashed":
            await self.deployment.crash(self.runtime)
            await self.open()

    async def _ends_with(self, last_tick: str, ticks: int) -> bool:
        names, state = await tick_names(self.runtime, "run"), await self.runtime.state_at("run")
        return len(names) > ticks and names[-1] == last_tick and state.ticks == len(names) and state.is_blocked()

    async def play(self) -> tuple[list[Any], list[Any], Any]:
        """The ticks, the stream and the end."""
        self.witness.hold("child")
        await self.open()
        await self.runtime.start("script", {"value": ("x", 1.5)}, run_id="run")
        ticks = 0
        for word in ("one", "two"):
            await self.rest("TickAwaitEvent", ticks)
            ticks = (await self.runtime.get("run")).ticks + 2
            await self.runtime.send_event("run", Word(text=word), event_id=word)
        await self.rest("TickSleep", 0)
        await self.deployment.close(self.runtime)
        await self.deployment.pass_time(NAP_S)
        await self.open()
        await self.rest("TickStartChild", 0)
        await self.witness.came("child")
        self.witness.let("child")
        return await self.played()

    async def played(self) -> tuple[list[Any], list[Any], Any]:
        handler = await self.runtime.handler("run")
        assert await result(handler) == [["one", "two"], [1, -2], 3]
        ticks = [json.loads(encode_tick(tick)) async for _, _, tick in self.runtime.history("run")]
        published = [repr(event) async for event in handler.stream_events(after=-1)]
        outcome = (await self.runtime.state_at("run")).outcome
        assert outcome is not None
        return timeless(ticks), published, [outcome.status, msgspec.to_builtins(outcome.event)]


@pytest.mark.parametrize("how", ["at once", "released", "crashed"])
async def test_all_stores_hold_the_same_journal(tmp_path: Path, how: str) -> None:
    played = {}
    for kind in DATABASES:
        folder = tmp_path / kind
        folder.mkdir()
        deployment = new_deployment(kind, folder)
        try:
            played[kind] = await Player(deployment, how).play()
        finally:
            await deployment.dispose()
    ticks, published, outcome = played["memory"]
    assert len(ticks) > 15
    for kind in ("sqlite", "postgres"):
        assert played[kind][0] == ticks, kind
        assert played[kind][1] == published, kind
        assert played[kind][2] == outcome, kind
