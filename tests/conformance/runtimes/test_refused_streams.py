"""Bodies that stream, and are answered wrongly: what a reader shows while they wait on, and in the end."""

from __future__ import annotations

from typing import Any

from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, in_background, result, soon, tick_names, until, until_info

import loom
from loom import Context, Event, HumanResponseEvent, RunInfo, StartEvent, StopEvent, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.registry import wire_name
from loom.steps.stand_ins import stand_in


class Token(Event):
    text: str


class Approval(HumanResponseEvent):
    by: str


class Agent(Watched):
    """Streams an answer that differs from call to call, and asks twice."""

    @step
    async def think(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answers: list[str] = ev.answers
        times = self.witness.saw(f"begin {ev.name}")
        for text in answers[min(times, len(answers)) - 1].split():
            ctx.write_event_to_stream(Token(text=text))
        first = await ctx.wait_for_event(Approval, waiter_id="first", timeout=3600)
        ctx.write_event_to_stream(Token(text="on"))
        second = await ctx.wait_for_event(Approval, waiter_id="second", timeout=3600)
        ctx.write_event_to_stream(Token(text="end"))
        return StopEvent(result=[first.by, second.by])


CASES = {"held": ["a b c"], "fewer": ["a b c", "a"], "other": ["a b c", "x y", "z"], "none": ["a b c", ""]}


def standing(seen: list[tuple[int, Event]]) -> list[str]:
    """The tokens that a reader shows."""
    shown: dict[int, str] = {}
    for cursor, event in seen:
        if isinstance(event, loom.StreamSupersededEvent):
            for first, last in event.cursors:
                shown = {number: text for number, text in shown.items() if not first <= number <= last}
        elif isinstance(event, Token):
            shown[cursor] = event.text
    return list(shown.values())


async def read(runtime: DurableRuntime, run_id: str, seen: list[tuple[int, Event]]) -> None:
    async for entry in (await runtime.handler(run_id)).stream_with_cursors():
        seen.append(entry)


def _refused(info: RunInfo, waiter: str) -> bool:
    assert info.parked is None
    return info.idle_since is not None and any(
        each["waiter_id"] == waiter and each.get("refused") for each in info.active_waiters
    )


def _waits(info: RunInfo, waiter: str) -> bool:
    return info.idle_since is not None and any(each["waiter_id"] == waiter for each in info.active_waiters)


async def test_a_wrong_answer_between_streams(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"agent": Agent(witness)}, idle_timeout=0)
    client = await deployment.open()
    wrong: Any = stand_in(wire_name(Approval))
    shown: dict[str, list[tuple[int, Event]]] = {}
    for name, answers in CASES.items():
        await runtime.start("agent", {"name": name, "answers": answers}, run_id=name)
        in_background(read(client, name, shown.setdefault(name, [])))
    waiting: tuple[tuple[str, list[str]], ...] = (("first", []), ("second", ["on"]))
    for waiter, after in waiting:
        for name in CASES:
            await until_info(runtime, name, lambda info, waiter=waiter: _waits(info, waiter) and not info.in_memory)
            await client.send_event(name, wrong(by_whom="ann"))
        for name, answers in CASES.items():
            await until_info(runtime, name, lambda info, waiter=waiter: _refused(info, waiter) and not info.in_memory)
            times = witness.count(f"begin {name}")
            expected = answers[min(times, len(answers)) - 1].split() + after
            await until(
                lambda name=name, expected=expected: standing(shown[name]) == expected, f"{name} at {waiter}: {shown}"
            )
            await client.send_event(name, wrong(by="ann"))
    for name, answers in CASES.items():
        assert await result(await runtime.handler(name)) == ["ann", "ann"]
        assert (await tick_names(runtime, name)).count("TickRefuseEvent") == 2
        seen: list[tuple[int, Event]] = []
        await soon(read(runtime, name, seen))
        times = witness.count(f"begin {name}")
        assert standing(seen) == [*answers[min(times, len(answers)) - 1].split(), "on", "end"], name
