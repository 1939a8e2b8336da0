"""Bodies that run again and stream other tokens: no run is parked, and readers learn what is superseded."""

from __future__ import annotations

from typing import Any

from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, in_background, result, soon, stored, until_idle, until_info

import loom
from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, step
from loom.runtime.durable.runtime import DurableRuntime


class Token(Event):
    text: str


class Question(InputRequiredEvent):
    pass


class Word(HumanResponseEvent):
    text: str = ""


class Sent(Event):
    text: str


class Agent(Watched):
    """Streams an answer that differs from call to call, asks, and has every kind of effect between and after."""

    @step
    async def think(self, ctx: Context, ev: StartEvent) -> StopEvent | Sent:
        answers: list[str] = ev.answers
        times = self.witness.saw(f"begin {ev.name}")
        await ctx.store.set("asked", times)
        for text in answers[min(times, len(answers)) - 1].split():
            ctx.write_event_to_stream(Token(text=text))
        await self.witness.at(f"told {ev.name}")
        first = await ctx.wait_for_event(Word, waiter_event=Question(), waiter_id="first", timeout=None)
        ctx.send_event(Sent(text=first.text))
        ctx.write_event_to_stream(Token(text="on"))
        async with ctx.store.edit_state() as state:
            state["edits"] = state.get("edits", 0) + 1
        second = await ctx.wait_for_event(Word, waiter_id="second", timeout=None)
        ctx.write_event_to_stream(Token(text="end"))
        return StopEvent(result=[first.text, second.text])

    @step
    async def take(self, ctx: Context, ev: Sent) -> None:
        self.witness.saw(f"sent {ev.text}")


CASES = {
    "fewer": ["a b c", "a"],
    "none": ["a b c", ""],
    "equal": ["a b c", "a b c"],
    "different": ["a b c", "a x c"],
    "more": ["a b c", "a b c d e"],
    "other": ["a b c", "v w x y z"],
    "every time": ["a b c", "d e", "f g h i"],
}
"""What the body streams before its first wait, each time it runs."""


async def entries(runtime: DurableRuntime, run_id: str, after: int = -1) -> list[tuple[int, Event]]:
    """The stream with its cursors, as far as every reader sees it."""
    handler = await runtime.handler(run_id)
    return [entry async for entry in handler.stream_with_cursors(after=after)]


def standing(seen: list[tuple[int, Event]]) -> list[str]:
    """The tokens that a reader shows in the end: without those that are superseded."""
    shown: dict[int, str] = {}
    for cursor, event in seen:
        if isinstance(event, loom.StreamSupersededEvent):
            for first, last in event.cursors:
                assert all(number in shown for number in range(first, last + 1)), "each is a token, and superseded once"
                shown = {number: text for number, text in shown.items() if not first <= number <= last}
        elif isinstance(event, Token):
            shown[cursor] = event.text
    return list(shown.values())


async def answered(runtime: DurableRuntime, holds: bool, **runs: list[str]) -> None:
    """Let runs stream, wait, be released and stream again, twice."""
    handlers = {name: await runtime.start("agent", {"name": name, "answers": runs[name]}, run_id=name) for name in runs}
    for text in ("yes", "no"):
        waiter = "first" if text == "yes" else "second"
        for name in runs:
            await until_info(runtime, name, lambda info, waiter=waiter: _waits(info, waiter))
            if holds:
                await until_info(runtime, name, lambda info: not info.in_memory)
        for name in runs:
            await runtime.send_event(name, Word(text=text))
    for name, handler in handlers.items():
        assert await result(handler) == ["yes", "no"], name


def _waits(info: Any, waiter: str) -> bool:
    assert info.parked is None
    return info.idle_since is not None and any(each["waiter_id"] == waiter for each in info.active_waiters)


async def test_any_number_of_tokens_may_be_streamed_again(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"agent": Agent(witness)}, idle_timeout=0)
    await answered(runtime, deployment.holds_bodies, **CASES)
    for name, answers in CASES.items():
        seen = await soon(entries(runtime, name))
        assert witness.count(f"begin {name}") == 3
        assert standing(seen) == [*answers[-1].split(), "on", "end"], name
        assert [event for _, event in seen if isinstance(event, Question)] == [Question()], "asked once"
        assert await stored(runtime, name) == {"asked": 1, "edits": 1}
        superseded = [event for _, event in seen if isinstance(event, loom.StreamSupersededEvent)]
        assert len(superseded) == {"equal": 0, "more": 0, "every time": 2}.get(name, 1), name
        assert {event.step_name for event in superseded} <= {"think"}
        assert len({event.execution for event in superseded}) <= 1
        if not superseded:
            written = [event.text for _, event in seen if isinstance(event, Token)]
            assert written == standing(seen), "what is equal is not streamed again"
    assert witness.count("sent yes") == len(CASES)
    whole = await soon(entries(runtime, "every time"))
    for place, (cursor, _) in enumerate(whole):
        assert await soon(entries(runtime, "every time", after=cursor)) == whole[place + 1 :]


async def test_a_crash_in_mid_stream_leaves_the_tokens_of_one_call(deployment: Deployment, witness: Witness) -> None:
    witness.hold("told a")
    first = await deployment.open({"agent": Agent(witness)})
    client = await deployment.open()
    await first.start("agent", {"name": "a", "answers": ["a b c", "a x", "a x y"]}, run_id="a")
    reading = in_background(entries(client, "a"))
    for times, events in ((1, 4), (2, 7 if deployment.holds_bodies else 6)):
        await witness.came("told a", times)
        await until_info(first, "a", lambda info, events=events: info.events >= events)
        await deployment.crash(first)
        if times == 2:
            witness.let("told a")
        first = await deployment.open({"agent": Agent(witness)})
    await until_idle(first, "a")
    await first.send_event("a", Word(text="yes"))
    await until_info(first, "a", lambda info: _waits(info, "second"))
    await first.send_event("a", Word(text="no"))
    assert await result(await first.handler("a")) == ["yes", "no"]
    seen = await soon(reading)
    assert standing(seen) == ["a", "x", "y", "on", "end"]
    assert [event.text for _, event in seen if isinstance(event, Token)] == ["a", "b", "c", "x", "y", "on", "end"]
    assert sum(isinstance(event, loom.StreamSupersededEvent) for _, event in seen) == 1
