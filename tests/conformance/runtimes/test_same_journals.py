"""One scripted run on all kinds of stores: the same ticks, the same stream, the same states, but for the times."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from runtime_deployments import KINDS, Deployment, new_deployment
from runtime_watching import Watched, Witness, result, until, until_idle, until_released

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, catch_error, step
from loom.core.ticks import TickAddEvent
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.events import StepFailedEvent
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none
from loom.store.codec import encode_tick

_TIMES = {"at", "due", "since", "deadline", "deadline_s", "first_at", "last_failed_at", "failed_at", "away_s"}
_CHANCE = {"more", "mail"}
"""Which ticks came together is up to the event loop, and letters are numbered by the store."""


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
        await ctx.sleep(0.01)
        child = await ctx.run_child("child", n=len(words))
        return StopEvent(result=[words, [piece.n for piece in pieces], child])


class Child(Watched):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=ev.n + 1)


def timeless(value: Any) -> Any:
    """Plain data without times and what is left to chance."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in _TIMES | _CHANCE}
    if isinstance(value, list):
        return [timeless(item) for item in value]
    return value


async def play(deployment: Deployment, how: str) -> tuple[list[Any], list[Any], Any]:
    """Run the script. What is sent is sent when nothing else can happen, so that there is one order of ticks."""
    witness = Witness()

    async def open_again() -> DurableRuntime:
        options = {"idle_timeout": 0 if how == "released" else None}
        return await deployment.open({"script": Script(witness), "child": Child(witness)}, **options)

    runtime = await open_again()
    await runtime.start("script", {"value": ("x", 1.5)}, run_id="run")
    for word in ("one", "two"):
        await until_idle(runtime, "run")
        if how == "released":
            await until_released(runtime, "run")
        elif how == "crashed":
            await deployment.crash(runtime)
            runtime = await open_again()
        await runtime.send_event("run", Word(text=word), event_id=word)
        await until(partial(_took, runtime, word), word)
    assert await result(await runtime.handler("run")) == [["one", "two"], [1, -2], 3]
    ticks = [json.loads(encode_tick(tick)) async for _, _, tick in runtime.history("run")]
    handler = await runtime.handler("run")
    published = [repr(event) async for event in handler.stream_events(after=-1)]
    state = await runtime.state_at("run")
    return timeless(ticks), published, timeless(json.loads(msgspec.json.encode(_plain(state.outcome))))


async def _took(runtime: DurableRuntime, word: str) -> bool:
    """Whether an event with this word is in the journal."""
    events = [tick.event async for _, _, tick in runtime.history("run") if isinstance(tick, TickAddEvent)]
    return any(f'"{word}"' in str(event.body) for event in events)


def _plain(outcome: Any) -> Any:
    return {"status": outcome.status, "event": msgspec.to_builtins(outcome.event)}


@pytest.mark.parametrize("how", ["at once", "released", "crashed"])
async def test_all_stores_hold_the_same_journal(tmp_path: Path, how: str) -> None:
    played = {}
    for kind in KINDS:
        folder = tmp_path / kind
        folder.mkdir()
        deployment = new_deployment(kind, folder)
        try:
            played[kind] = await play(deployment, how)
        finally:
            await deployment.dispose()
    ticks, published, outcome = played["memory"]
    assert len(ticks) > 15
    for kind in ("sqlite", "postgres"):
        assert played[kind][0] == ticks, kind
        assert played[kind][1] == published, kind
        assert played[kind][2] == outcome, kind
