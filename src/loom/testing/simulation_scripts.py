"""A made-up program for simulations: a workflow whose bodies follow scripts.

Each work item has a name, and its name and the name of the run's script tell what its body does. So a body that runs
again does the same, and what must be left of a run can be told without running it. May import loom.steps.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import override

from loom.steps.context import Context  # noqa: TC001 - read from the annotations at run time
from loom.steps.decorators import step
from loom.steps.errors import ChildRunFailed
from loom.steps.events import (
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    StartEvent,
    StopEvent,
    StreamSupersededEvent,
)
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.steps.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loom.testing.simulation_programs import Ended


class Begin(StartEvent):
    """The input: the name of the script."""

    script: str
    is_child: bool = False


class Piece(Event):
    """A work item."""

    path: str


class Extra(HumanResponseEvent):
    """A work item that nobody waits for, from a body or from outside."""

    path: str


class Done(Event):
    """A work item is done."""

    path: str


class Mark(Event):
    """A line on the stream."""

    token: str


class Chat(Event):
    """A token of an answer that is another one each time."""

    number: int


class Ask(InputRequiredEvent):
    """A body waits for an answer."""

    to: str


class Answer(HumanResponseEvent):
    """What it waits for."""

    to: str
    token: str


class Act(NamedTuple):
    """One act of a body."""

    kind: str
    amount: float = 0.0


class Script(NamedTuple):
    """What the body of one work item does, and in how many attempts."""

    acts: list[Act]
    fails: int
    fails_at: int
    is_fatal: bool


_FATAL = 0.01
"""How many scripts fail until somebody puts right what they fail for."""

_CHATTY = 0.3
"""How many scripts stream something else each time that their body runs."""

_HASTE_S = 30.0

NOISE = "extra noise"
"""The mark of events without an id: whoever sends them may send them twice."""

_CHEAP = ("publish", "publish", "publish", "edit", "edit", "send")
_DEAR = ("sleep", "sleep", "wait", "wait", "wait_briefly", "once", "once", "await", "sleep_in_task", "child")


def script_of(name: str, path: str, is_child: bool) -> Script:
    """The script of a work item, the same for the same name."""
    chance = Random(f"{name}|{path}")  # noqa: S311 - chance that can be repeated
    acts: list[Act] = []
    for _ in range(chance.randint(0, 6)):
        acts += [Act(chance.choice(_CHEAP)) for _ in range(chance.choice([0, 2, 10, 40]))]
        acts.append(Act(chance.choice(_DEAR), chance.choice([0.0, 0.01, 0.5, 3.0, 20.0]) * chance.random()))
    acts = [act for act in acts if not (is_child and act.kind == "child")]
    fails = chance.choice([0, 0, 0, 0, 1, 2])
    script = Script(acts, fails, chance.randint(0, len(acts)), not is_child and chance.random() < _FATAL)
    if acts and chance.random() < _CHATTY:
        acts.insert(chance.randrange(len(acts)), Act("chat"))
    return script


def pieces_of(name: str) -> list[str]:
    """The work items of a run."""
    return [str(number) for number in range(Random(name).randint(1, 5))]  # noqa: S311 - as above


class Scripted(Workflow):
    """A workflow whose bodies follow scripts."""

    def __init__(self, witness: ScriptedProgram, **options: Any) -> None:
        super().__init__(**options)
        self.witness = witness

    @step
    async def begin(self, ctx: Context, ev: Begin) -> list[Piece]:
        """Lay out the work."""
        await ctx.store.set("script", [ev.script, ev.is_child])
        return [Piece(path=path) for path in pieces_of(ev.script)]

    @step(num_workers=3, retry_policy=retry_policy(wait=wait_fixed(0.7), stop=stop_after_attempt(4)))
    async def work(self, ctx: Context, ev: Piece) -> Done:
        """Follow the script."""
        name, is_child = await ctx.store.get("script")
        await _Body(self.witness, ctx, ev.path).perform(script_of(name, ev.path, is_child))
        return Done(path=ev.path)

    @step(num_workers=2)
    async def extra(self, ctx: Context, ev: Extra) -> None:
        """Leave a mark."""
        ctx.write_event_to_stream(Mark(token=f"extra {ev.path}"))


class Joined(Scripted):
    """Ends when the stream of work items is through."""

    @step
    async def finish(self, ctx: Context, done: list[Done]) -> StopEvent:
        """Tell what was done."""
        return StopEvent(result=await _summary(ctx, [one.path for one in done]))


class Collected(Scripted):
    """Ends when all work items are collected."""

    @step(num_workers=2)
    async def finish(self, ctx: Context, ev: Done) -> StopEvent | None:
        """Tell what was done, with the last of them."""
        name, _ = await ctx.store.get("script")
        found: Any = ctx.collect_events(ev, [Done] * len(pieces_of(name)))
        return StopEvent(result=await _summary(ctx, [one.path for one in found])) if found else None


async def _summary(ctx: Context, paths: list[str]) -> dict[str, Any]:
    edits = {path: await ctx.store.get(f"edits {path}", 0) for path in sorted(paths)}
    return {"script": await ctx.store.get("script"), "edits": edits}


class _Body:
    """One execution of a script."""

    def __init__(self, witness: ScriptedProgram, ctx: Context, path: str) -> None:
        self._witness = witness
        self._ctx = ctx
        self._path = path
        self._attempt = ctx.retry_info().retry_number
        self._run_id = ctx.idempotency_key.rpartition(":work:")[0]
        witness.keys[self._run_id, path].add(ctx.idempotency_key)

    async def perform(self, script: Script) -> None:
        for number, act in enumerate(script.acts):
            if self._attempt < script.fails and number == script.fails_at:
                raise RuntimeError(f"attempt {self._attempt} fails, as the script says")
            await self._act(act, f"{self._path}/{self._attempt}/{number}", number)
        if self._attempt < script.fails and script.fails_at == len(script.acts):
            raise RuntimeError(f"attempt {self._attempt} fails at its end, as the script says")
        if script.is_fatal and self._run_id not in self._witness.healed:
            raise RuntimeError("nothing helps but somebody who puts it right")

    async def _act(self, act: Act, token: str, number: int) -> None:
        ctx = self._ctx
        match act.kind:
            case "publish" | "chat":
                self._write(act.kind, token)
            case "edit":
                key = f"edits {self._path}"
                await ctx.store.set(key, await ctx.store.get(key, 0) + 1)
            case "send":
                ctx.send_event(Extra(path=token))
            case "sleep":
                await ctx.sleep(act.amount)
            case "sleep_in_task":
                await asyncio.ensure_future(ctx.sleep(act.amount))
            case "await":
                await asyncio.sleep(act.amount)
            case "wait" | "wait_briefly":
                await self._wait(token, act.amount if act.kind == "wait_briefly" else None)
            case "once":
                await self._once(f"once {number}")
            case "child":
                await self._child(token)
            case _:
                raise ValueError(f"No body knows how to {act.kind}.")

    def _write(self, kind: str, token: str) -> None:
        if kind == "publish":
            self._ctx.write_event_to_stream(Mark(token=token))
            return
        for number in self._witness.chat():
            self._ctx.write_event_to_stream(Chat(number=number))

    async def _wait(self, token: str, limit: float | None) -> None:
        try:
            await self._ctx.wait_for_event(
                Answer, waiter_event=Ask(to=token), requirements={"to": token}, timeout=limit
            )
        except TimeoutError:
            if limit is None:
                raise

    async def _once(self, name: str) -> None:
        key = self._run_id, self._path, name
        value = await self._ctx.once(name, lambda: self._witness.work_out(key))
        self._witness.recorded[key].add(value)

    async def _child(self, token: str) -> None:
        try:
            await self._ctx.run_child("leaf", script=f"{self._run_id}>{token}", is_child=True)
        except ChildRunFailed:
            self._witness.orphaned += 1  # somebody cancelled it


class ScriptedProgram:
    """The made-up program. It also witnesses what bodies see, from outside of all workers."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.keys: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """The idempotency keys of each work item."""
        self.recorded: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)
        """The values of `ctx.once` that bodies went on with."""
        self.worked_out: Counter[tuple[str, str, str]] = Counter()
        self.healed: set[str] = set()
        self.orphaned = 0
        self._tokens = self._chats = 0

    def workflows(self) -> dict[str, Workflow]:
        """Three that are started, one of them with little time, and one for children."""
        return {
            "joined": Joined(self, timeout=None),
            "collected": Collected(self, timeout=None),
            "hasty": Joined(self, timeout=_HASTE_S),
            "leaf": Joined(self, timeout=None),
        }

    def start(self, number: int) -> tuple[str, dict[str, Any] | StartEvent]:
        """Of each in turn."""
        return ("joined", "collected", "hasty")[number % 3], {"script": f"{self._seed}/{number}"}

    def answer(self, run_id: str, event: Event) -> Event | None:
        """Whoever asks is answered."""
        if not isinstance(event, Ask):
            return None
        self._tokens += 1
        return Answer(to=event.to, token=f"{run_id} {self._tokens}")

    def noise(self, chance: Random) -> Event | None:
        """An answer that nobody asked for, or a piece of extra work."""
        if chance.random() < 0.5:  # noqa: PLR2004 - a coin
            return Answer(to="nobody", token="")
        return Extra(path="noise")

    def chat(self) -> range:
        """The tokens of an answer: other ones each time, and another number of them."""
        self._chats += 1
        return range(10 * self._chats, 10 * self._chats + self._chats % 4)

    def heal(self, run_id: str) -> bool:
        """From now on nothing is fatal to the run."""
        self.healed.add(run_id)
        return True

    def work_out(self, key: tuple[str, str, str]) -> str:
        """A value that is another one each time."""
        self.worked_out[key] += 1
        return f"{key} {self.worked_out[key]}"

    def check(self, ended: Ended) -> Iterator[str]:
        """Every act once, every key the same, every recorded value the same."""
        run_id = ended.run_id
        for (owner, path), keys in self.keys.items():
            if owner == run_id and len(keys) > 1:
                yield f"work item {path} had the idempotency keys {sorted(keys)}"
        for key, values in self.recorded.items():
            if key[0] == run_id and len(values) > 1:
                yield f"{key[2]} of work item {key[1]} had the values {sorted(values)}"
        marks = [event for event in _standing(ended.events) if isinstance(event, Mark)]
        tokens = Counter(event.token for event in marks if event.token != NOISE)
        if not ended.retried and tokens and max(tokens.values()) > 1:
            yield f"published twice: {[token for token, times in tokens.items() if times > 1]}"
        if ended.status == "completed" and not ended.retried:
            yield from _check_completed(ended, tokens)

    @override
    def __repr__(self) -> str:
        return "the made-up program"


def _standing(events: Sequence[Event]) -> list[Event]:
    """What counts of a whole stream, where the place of an event is its cursor."""
    rows = [row for event in events if isinstance(event, StreamSupersededEvent) for row in event.cursors]
    gone = {cursor for first, last in rows for cursor in range(first, last + 1)}
    return [event for cursor, event in enumerate(events) if cursor not in gone]


def _check_completed(ended: Ended, tokens: Counter[str]) -> Iterator[str]:
    (name, is_child), counted = ended.result["script"], ended.result["edits"]
    for path in pieces_of(name):
        script = script_of(name, path, is_child)
        reached = [(a, n) for a in range(script.fails) for n in range(script.fails_at)]
        reached += [(script.fails, n) for n in range(len(script.acts))]
        wanted = {f"{path}/{a}/{n}" for a, n in reached if script.acts[n].kind == "publish"}
        if missing := wanted - tokens.keys():
            yield f"never published: {sorted(missing)}"
        edits = sum(script.acts[n].kind == "edit" for _, n in reached)
        if counted.get(path) != edits:
            yield f"work item {path} has {counted.get(path)} edits, not {edits}"
