"""What the killed processes work on: workflows that use every promise, and what must come out of each run.

A body leaves marks: in `ctx.store`, on the stream and in the witness file. The first two must be there once per
execution, however often the process was killed; the third tells how often bodies really ran.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import Any

from kill_witness import Witness

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed

witness = Witness()
"""Where bodies tell what they do; whoever runs them opens it."""


class Mark(Event):
    """A line on the stream."""

    text: str


class Middle(Event):
    """Between two steps."""


class Last(Event):
    """Between two other steps."""

    token: str


class Thought(Event):
    """Between two pure steps."""

    depth: int = 0
    token: str = ""


class Thread(Event):
    """One of many."""

    number: int


class Spun(Event):
    """One of many, done."""

    number: int


class Reader(Event):
    """Somebody who waits for letters."""

    name: str


class HasRead(Event):
    """Somebody who got all letters."""

    name: str
    tokens: list[str]


class Question(InputRequiredEvent):
    """What a body asks before it waits."""

    text: str


class Letter(HumanResponseEvent):
    """Something from outside that a body waits for."""

    to: str
    token: str


class Vote(HumanResponseEvent):
    """Something from outside that a step takes."""

    token: str


async def mark(ctx: Context, text: str) -> None:
    """An effect of each kind."""
    witness.note("body", key=ctx.idempotency_key, text=text)
    async with ctx.store.edit_state() as state:
        state["marks"] = [*state.get("marks", ()), text]
    ctx.write_event_to_stream(Mark(text=text))


class Chain(Workflow):
    """Steps one after the other, with a result that must not be worked out twice."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Middle:
        await mark(ctx, "begin")
        return Middle()

    @step
    async def middle(self, ctx: Context, ev: Middle) -> Last:
        await mark(ctx, "middle")
        token = await ctx.once("token", lambda: _new_token(ctx.idempotency_key))
        await ctx.store.set("token", token)
        await mark(ctx, f"token {token}")
        return Last(token=token)

    @step
    async def end(self, ctx: Context, ev: Last) -> StopEvent:
        await mark(ctx, "end")
        return StopEvent(result=[ev.token, await ctx.store.get("token")])


def _new_token(key: str) -> str:
    token = uuid.uuid4().hex
    witness.note("once", key=key, value=token)
    return token


DEPTH = 5
"""The length of each of the two chains of pure steps in `Mixed`."""


class Mixed(Workflow):
    """Pure steps, which go ahead of their commits, then a step that must not, then pure steps again."""

    @step(pure=True)
    async def begin(self, ctx: Context, ev: StartEvent) -> Thought:
        await mark(ctx, "begin")
        return Thought()

    @step(pure=True)
    async def think(self, ctx: Context, ev: Thought) -> Thought | Middle | StopEvent:
        await mark(ctx, f"think {ev.depth} {ev.token}")
        if (ev.depth + 1) % DEPTH:
            return Thought(depth=ev.depth + 1, token=ev.token)
        if not ev.token:
            return Middle()
        return StopEvent(result=[ev.token, await ctx.store.get("token")])

    @step
    async def act(self, ctx: Context, ev: Middle) -> Thought:
        await mark(ctx, "act")
        token = await ctx.once("token", lambda: _new_token(ctx.idempotency_key))
        await ctx.store.set("token", token)
        return Thought(depth=DEPTH, token=token)


class Fan(Workflow):
    """Many at once, two at a time; one fails at first and is tried again after a while."""

    @step
    async def plan(self, ctx: Context, ev: StartEvent) -> list[Thread]:
        await mark(ctx, "plan")
        return [Thread(number=number) for number in range(4)]

    @step(num_workers=2, retry_policy=retry_policy(wait=wait_fixed(0.01), stop=stop_after_attempt(5)))
    async def spin(self, ctx: Context, ev: Thread) -> Spun:
        attempt = ctx.retry_info().retry_number
        await mark(ctx, f"spin {ev.number} attempt {attempt}")
        if ev.number == 1 and attempt < 2:
            raise RuntimeError("the thread broke")
        return Spun(number=ev.number)

    @step
    async def weave(self, ctx: Context, spun: list[Spun]) -> StopEvent:
        await mark(ctx, "weave")
        return StopEvent(result=sorted(thread.number for thread in spun))


class Letters(Workflow):
    """Two bodies that wait for letters of their own, one after the other."""

    @step
    async def begin(self, ev: StartEvent) -> list[Reader]:
        return [Reader(name=name) for name in ("red", "blue")]

    @step
    async def read(self, ctx: Context, ev: Reader) -> HasRead:
        tokens = []
        for number in range(2):
            await mark(ctx, f"{ev.name} asks {number}")
            letter = await ctx.wait_for_event(
                Letter,
                waiter_event=Question(text=f"{ev.name} {number}"),
                requirements={"to": ev.name},
                timeout=None,
            )
            tokens.append(letter.token)
            await mark(ctx, f"{ev.name} reads {letter.token}")
        return HasRead(name=ev.name, tokens=tokens)

    @step
    async def end(self, read: list[HasRead]) -> StopEvent:
        return StopEvent(result={reader.name: reader.tokens for reader in sorted(read, key=lambda r: r.name)})


class Votes(Workflow):
    """Events from outside that a step takes and collects, without a body that waits."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Middle | Question:
        await mark(ctx, "begin")
        ctx.send_event(Middle())
        return Question(text="votes")

    @step(num_workers=1)
    async def count(self, ctx: Context, ev: Vote | Middle) -> StopEvent | None:
        # Votes may come before a killed `begin` has come again, and must not end the run without it.
        collected = ctx.collect_events(ev, [Middle, Vote, Vote, Vote])
        if collected is None:
            return None
        await mark(ctx, "counted")
        return StopEvent(result=sorted(vote.token for vote in collected[1:]))


class Sleeps(Workflow):
    """A sleep, and a wait that nobody answers."""

    @step
    async def rest(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await mark(ctx, "tired")
        await ctx.sleep(0.02)
        await mark(ctx, "slept")
        try:
            await ctx.wait_for_event(Letter, timeout=0.02)
        except TimeoutError:
            await mark(ctx, "nobody came")
        return StopEvent(result="rested")


class Parent(Workflow):
    """A run with children."""

    @step
    async def raise_them(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await mark(ctx, "begin")
        first, again = await ctx.run_child(ev.chain)
        await mark(ctx, "one child")
        rested = await ctx.run_child(ev.sleeps)
        await mark(ctx, "two children")
        return StopEvent(result=[first == again, rested])


WORKFLOWS: dict[str, Workflow] = {
    "chain": Chain(timeout=60),
    "mixed": Mixed(timeout=60),
    "fan": Fan(timeout=60),
    "letters": Letters(timeout=60),
    "votes": Votes(timeout=60),
    "sleeps": Sleeps(timeout=60),
    "parent": Parent(timeout=60),
}


@dataclass(frozen=True)
class Plan:
    """One run: how it is started, what it is sent, and what must be left of it."""

    run_id: str
    kind: str
    workflow: str
    inputs: dict[str, str] = field(default_factory=dict)
    events: tuple[Letter | Vote, ...] = ()


@dataclass(frozen=True)
class Workload:
    """What a seed gives: the runs, and how the process that works on them is set up."""

    prefix: str
    plans: tuple[Plan, ...]
    options: dict[str, Any]
    beside: bool
    """Whether the events come from a second process."""
    snapshot_ticks: int

    def workflow_names(self) -> dict[str, str]:
        """The names that workflows are registered with, by kind: nobody else works for them."""
        return {kind: self.prefix + kind for kind in WORKFLOWS}


def workload(seed: int, prefix: str) -> Workload:
    """The same seed is the same work. Seed 0 is the plain one that is swept point by point."""
    chance = random.Random(seed)
    kinds = ["letters", "votes", "fan", "parent", "chain", "mixed"]
    if seed:
        kinds = chance.choices(list(WORKFLOWS), k=chance.randint(2, 7))
        if not {"letters", "votes"} & set(kinds):
            kinds.append("letters")
    plans = tuple(_plan(prefix, f"{prefix}{number}-{kind}", kind, chance) for number, kind in enumerate(kinds))
    options = {
        "idle_timeout": chance.choice([0.0, 0.0, 0.005, None]) if seed else 0.0,
        "max_in_memory": chance.choice([None, None, 2]) if seed else None,
    }
    beside = bool(seed) and chance.random() < 0.4
    return Workload(prefix, plans, options, beside, chance.choice([4, 8, 500]) if seed else 8)


def _plan(prefix: str, run_id: str, kind: str, chance: random.Random) -> Plan:
    inputs = {"chain": prefix + "chain", "sleeps": prefix + "sleeps"} if kind == "parent" else {}
    events: list[Letter | Vote] = []
    if kind == "letters":
        events = [Letter(to=to, token=f"{run_id}/{to}{number}") for to in ("red", "blue") for number in range(2)]
        chance.shuffle(events)
    elif kind == "votes":
        events = [Vote(token=f"{run_id}/{number}") for number in range(3)]
    return Plan(run_id, kind, prefix + kind, inputs, tuple(events))
