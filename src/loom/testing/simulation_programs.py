"""Programs that are simulated: a user's workflow, or one that is made up from a seed.

A program names the workflows, answers their events, and says what must come out. The bodies of the made-up program
follow scripts. Each work item has a name; its name and that of the run's script determine what its body does. So a body
that runs again does the same, and the expected result of a run is known without running it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

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
    from collections.abc import Callable, Iterator, Sequence


class Ended(NamedTuple):
    """A run that has ended, for its check."""

    run_id: str
    status: str
    result: Any
    """Its result; None unless it completed."""
    events: list[Event]
    """Its whole stream, the engine's own reports among them."""
    retried: bool
    """True if it had failed before, and was retried."""


class Program(Protocol):
    """A program that can be simulated."""

    def workflows(self) -> dict[str, Workflow]:
        """Make the workflows by name, anew for every worker that starts."""
        ...

    def start(self, number: int) -> tuple[str, dict[str, Any] | StartEvent]:
        """Choose the workflow and the input for the run of a number."""
        ...

    def answer(self, run_id: str, event: Event) -> Event | None:
        """Answer an event that a run has published; None: send nothing."""
        ...

    def noise(self, chance: Random) -> Event | None:
        """Make an event that no run has asked for; None: there are none."""
        ...

    def heal(self, run_id: str) -> bool:
        """Heal the cause of a run's failure, so that it can be retried; False: leave it failed."""
        ...

    def check(self, ended: Ended) -> Iterator[str]:
        """Yield the problems of a run that has ended."""
        ...


class OwnProgram:
    """A user's workflow as a program."""

    def __init__(
        self,
        make: Callable[[], Workflow],
        inputs: dict[str, Any] | StartEvent | Callable[[int], dict[str, Any] | StartEvent] | None,
        answer: Callable[[Event], Event | None] | None,
        check: Callable[[Ended], None] | None,
    ) -> None:
        self._make = make
        self._inputs = inputs
        self._answer = answer
        self._check = check

    def workflows(self) -> dict[str, Workflow]:
        """Make the one workflow anew."""
        return {"simulated": self._make()}

    def start(self, number: int) -> tuple[str, dict[str, Any] | StartEvent]:
        """Give all runs the same input, or each one by its number."""
        inputs = self._inputs
        given = inputs(number) if callable(inputs) else inputs
        return "simulated", given if isinstance(given, StartEvent) else dict(given or {})

    def answer(self, run_id: str, event: Event) -> Event | None:
        """Ask the user's function."""
        del run_id
        return self._answer(event) if self._answer is not None else None

    def noise(self, chance: Random) -> Event | None:
        """Return None: nothing comes by itself."""
        del chance
        return None

    def heal(self, run_id: str) -> bool:
        """Return False: a failed run is a result like others."""
        del run_id
        return False

    def check(self, ended: Ended) -> Iterator[str]:
        """Yield what the user's function asserts in vain."""
        if self._check is not None:
            try:
                self._check(ended)
            except AssertionError as error:
                yield f"check: {error}"


class Begin(StartEvent):
    """The input: the name of the script."""

    script: str
    is_child: bool = False


class Piece(Event):
    """A work item."""

    path: str


class Thought(Event):
    """A work item before its turn, at a depth of a chain of pure steps."""

    path: str
    depth: int = 0


class Extra(HumanResponseEvent):
    """A work item that no body waits for, from a body or from outside."""

    path: str


class Done(Event):
    """The end of a work item."""

    path: str


class Mark(Event):
    """A line on the stream."""

    token: str


class Chat(Event):
    """A token of an answer that is another one each time."""

    number: int


class Ask(InputRequiredEvent):
    """A body's question."""

    to: str


class Reply(HumanResponseEvent):
    """The answer to a question."""

    to: str
    token: str


class ScriptAct(NamedTuple):
    """One act of a body."""

    kind: str
    amount: float = 0.0


class Script(NamedTuple):
    """The acts of a work item's body, and its failures."""

    acts: list[ScriptAct]
    fails: int
    fails_at: int
    is_fatal: bool


_FATAL = 0.01
"""Share of scripts that fail until an operator heals them."""

_CHATTY = 0.3
"""Share of scripts that stream something else each time that their body runs."""

_HASTE_S = 30.0

NOISE = "extra noise"
"""Mark of events without an id: their sender may send them twice."""

_CHEAP = ("publish", "publish", "publish", "edit", "edit", "send")
_DEAR = ("sleep", "sleep", "wait", "wait", "wait_briefly", "once", "once", "await", "sleep_in_task", "child")


def script_of(name: str, path: str, is_child: bool) -> Script:
    """Make the script of a work item, equal for equal names."""
    chance = Random(f"{name}|{path}")  # noqa: S311 - chance that can be repeated
    acts: list[ScriptAct] = []
    for _ in range(chance.randint(0, 6)):
        acts += [ScriptAct(chance.choice(_CHEAP)) for _ in range(chance.choice([0, 2, 10, 40]))]
        acts.append(ScriptAct(chance.choice(_DEAR), chance.choice([0.0, 0.01, 0.5, 3.0, 20.0]) * chance.random()))
    acts = [act for act in acts if not (is_child and act.kind == "child")]
    fails = chance.choice([0, 0, 0, 0, 1, 2])
    script = Script(acts, fails, chance.randint(0, len(acts)), not is_child and chance.random() < _FATAL)
    if acts and chance.random() < _CHATTY:
        acts.insert(chance.randrange(len(acts)), ScriptAct("chat"))
    return script


def pieces_of(name: str) -> list[str]:
    """List the work items of a run."""
    return [str(number) for number in range(Random(name).randint(1, 5))]  # noqa: S311 - as above


def thoughts_of(name: str, path: str) -> int:
    """Return how many pure steps come before a work item of a `Mixed` run; at least one."""
    return Random(f"{name}|{path}|thoughts").randint(1, 6)  # noqa: S311 - as above


class Scripted(Workflow):
    """A workflow whose bodies follow scripts."""

    def __init__(self, witness: ScriptedProgram, **options: Any) -> None:
        super().__init__(**options)
        self.witness = witness

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


class LaidOut(Scripted):
    """Begins with all work items at once."""

    @step
    async def begin(self, ctx: Context, ev: Begin) -> list[Piece]:
        """Lay out the work."""
        await ctx.store.set("script", [ev.script, ev.is_child])
        return [Piece(path=path) for path in pieces_of(ev.script)]


class Joined(LaidOut):
    """Ends when the stream of work items is through."""

    @step
    async def finish(self, ctx: Context, done: list[Done]) -> StopEvent:
        """Tell what was done."""
        return StopEvent(result=await _summary(ctx, [one.path for one in done]))


class Collected(LaidOut):
    """Ends when all work items are collected."""

    @step(num_workers=2)
    async def finish(self, ctx: Context, ev: Done) -> StopEvent | None:
        """Tell what was done, with the last of them."""
        name, _ = await ctx.store.get("script")
        found: Any = ctx.collect_events(ev, [Done] * len(pieces_of(name)))
        return StopEvent(result=await _summary(ctx, [one.path for one in found])) if found else None


class Mixed(Scripted):
    """Mixes chains of pure steps, which go ahead of their commits, with bodies that must not."""

    @step(pure=True)
    async def begin(self, ctx: Context, ev: Begin) -> list[Thought]:
        """Lay out the work, each piece with some thought before it."""
        await ctx.store.set("script", [ev.script, ev.is_child])
        return [Thought(path=path) for path in pieces_of(ev.script)]

    @step(pure=True)
    async def think(self, ctx: Context, ev: Thought) -> Thought | Piece:
        """Leave marks in the store and on the stream, and go on."""
        name, _ = await ctx.store.get("script")
        ctx.write_event_to_stream(Mark(token=f"thought {ev.path} {ev.depth}"))
        await ctx.store.set(f"thoughts {ev.path}", ev.depth + 1)
        if ev.depth + 1 < thoughts_of(name, ev.path):
            return Thought(path=ev.path, depth=ev.depth + 1)
        return Piece(path=ev.path)

    @step(pure=True)
    async def finish(self, ctx: Context, done: list[Done]) -> StopEvent:
        """Tell what was done, and what was thought."""
        summary = await _summary(ctx, [one.path for one in done])
        thoughts = {one.path: await ctx.store.get(f"thoughts {one.path}") for one in done}
        return StopEvent(result={**summary, "thoughts": thoughts})


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

    async def _act(self, act: ScriptAct, token: str, number: int) -> None:
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
            await self._ctx.wait_for_event(Reply, waiter_event=Ask(to=token), requirements={"to": token}, timeout=limit)
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
            self._witness.orphaned += 1  # an operator cancelled it


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
        """Make four that are started, one of them with little time and one with pure steps, and one for children."""
        return {
            "joined": Joined(self, timeout=None),
            "collected": Collected(self, timeout=None),
            "hasty": Joined(self, timeout=_HASTE_S),
            "mixed": Mixed(self, timeout=None),
            "leaf": Joined(self, timeout=None),
        }

    def start(self, number: int) -> tuple[str, dict[str, Any] | StartEvent]:
        """Start each in turn."""
        return ("joined", "mixed", "collected", "hasty")[number % 4], {"script": f"{self._seed}/{number}"}

    def answer(self, run_id: str, event: Event) -> Event | None:
        """Answer every question."""
        if not isinstance(event, Ask):
            return None
        self._tokens += 1
        return Reply(to=event.to, token=f"{run_id} {self._tokens}")

    def noise(self, chance: Random) -> Event | None:
        """Make an answer to no question, or a piece of extra work."""
        if chance.random() < 0.5:  # noqa: PLR2004 - a coin
            return Reply(to="nobody", token="")
        return Extra(path="noise")

    def chat(self) -> range:
        """Make the tokens of an answer: other ones each time, and another number of them."""
        self._chats += 1
        return range(10 * self._chats, 10 * self._chats + self._chats % 4)

    def heal(self, run_id: str) -> bool:
        """Let nothing be fatal to the run from now on."""
        self.healed.add(run_id)
        return True

    def work_out(self, key: tuple[str, str, str]) -> str:
        """Make a value that differs each time."""
        self.worked_out[key] += 1
        return f"{key} {self.worked_out[key]}"

    def check(self, ended: Ended) -> Iterator[str]:
        """Check that every act came once, and that keys and recorded values stayed the same."""
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
    """Return the events of a whole stream that are not superseded. An event's index is its cursor."""
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
    for path, thoughts in ended.result.get("thoughts", {}).items():
        if thoughts != thoughts_of(name, path):
            yield f"work item {path} has {thoughts} thoughts, not {thoughts_of(name, path)}"
        wanted = {f"thought {path} {depth}" for depth in range(thoughts)}
        if missing := wanted - tokens.keys():
            yield f"never published: {sorted(missing)}"
