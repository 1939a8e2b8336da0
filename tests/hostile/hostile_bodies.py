"""Workflows and activities with hostile bodies, which a server under test loads.

Bodies of `Contained` and `Threaded` leave the event loop alone, or nearly so. Bodies of `Blocking` hold it on purpose.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step

CONTAINED = (
    *("fine", "huge", "huge-list", "unshowable", "surrogates", "nan", "bytes", "set", "object", "deep", "cycle"),
    *("str-raises", "repr-raises", "message-huge", "cause-cycle", "group", "base", "recursion", "stop-iteration"),
    *("SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "cancel-itself", "MemoryError"),
    *("none", "wrong-type", "a-class", "memory", "waits", "wait-forever", "children", "children-fail", "child-chain"),
    *(
        "store-huge",
        "store-deep",
        "store-unshowable",
        "store-keys",
        "sends",
        "sends-unknown",
        "leaked-task",
        "once-odd",
    ),
    *("stream-odd", "sleep-odd", "retry", "stop-huge-fields", "event-surrogates", "dynamic-event"),
)
THREADED = ("spin", "sleep", "flood", "memory", "SystemExit", "KeyboardInterrupt", "GeneratorExit", "recursion", "fine")
BLOCKING = ("sleep", "spin", "flood", "sleep-often", "spin-except", "sleep-in-str", "sleep-at-end")
STEP_OF_BLOCKING = "hold"


class Note(Event):
    text: Any = None


class Answer(HumanResponseEvent):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    def __repr__(self) -> str:
        raise SystemExit(3)


class OddBase(BaseException):
    pass


class Slow(Exception):
    def __str__(self) -> str:
        time.sleep(1.5)
        return "slow"


class Opaque:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def deep(depth: int) -> Any:
    """Lists in lists."""
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


def cyclic() -> Any:
    """A list that holds itself."""
    made: list[Any] = []
    made.append(made)
    return made


def recurse(depth: int = 0) -> int:
    """Never ends by itself."""
    return recurse(depth + 1) + 1


def spin(seconds: float) -> None:
    """Keep the interpreter busy."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        pass


RESULTS: dict[str, Any] = {
    "fine": lambda: "fine",
    "huge": lambda: "a" * 20_000_000,
    "huge-list": lambda: list(range(400_000)),
    "unshowable": lambda: 10**6000,
    "surrogates": lambda: ["\ud800", {"\udfff": "\ud800\udc00"}],
    "nan": lambda: [math.nan, math.inf, -math.inf, {"a": -0.0}],
    "bytes": lambda: b"\xff" * 100_000,
    "set": lambda: {1, 2, 3},
    "object": Opaque,
    "deep": lambda: deep(100_000),
    "cycle": cyclic,
    "a-class": lambda: StopEvent,
    "memory": lambda: len(bytearray(200 << 20)),
}


def cause_cycle() -> BaseException:
    """Two errors, each the cause of the other."""
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    return first


ERRORS: dict[str, Callable[[], BaseException]] = {
    "str-raises": Unprintable,
    "repr-raises": lambda: ValueError(Opaque()),
    "message-huge": lambda: ValueError("é" * 5_000_000),
    "cause-cycle": cause_cycle,
    "group": lambda: ExceptionGroup("many", [ValueError("x" * 1000) for _ in range(2000)]),
    "base": lambda: OddBase("base"),
    "stop-iteration": lambda: StopIteration("over"),
    "SystemExit": lambda: SystemExit(7),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "retry": lambda: ConnectionError("x" * 100_000),
}


def raise_it(kind: str) -> None:
    """Raise what a kind is named after, if it is an error."""
    if kind in ERRORS:
        raise ERRORS[kind]()
    if kind == "recursion":
        recurse()
    if kind == "MemoryError":
        bytearray(1 << 45)


class Contained(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent | Note:
        kind = ev.kind
        if kind in RESULTS:
            return StopEvent(result=RESULTS[kind]())
        raise_it(kind)
        if kind.startswith("store"):
            return await self._store(ctx, kind)
        if kind in ("none", "wrong-type"):
            return None if kind == "none" else {"not": "an event"}  # type: ignore[return-value]
        return StopEvent(result=await self._act(ctx, kind))

    @step
    async def take(self, ev: Note) -> StopEvent | None:
        return None

    async def _store(self, ctx: Context, kind: str) -> StopEvent:
        match kind:
            case "store-huge":
                for number in range(40):
                    await ctx.store.set(f"k{number}", "a" * 1_000_000)
            case "store-deep":
                await ctx.store.set("a", deep(50_000))
            case "store-unshowable":
                await ctx.store.set("a", [10**6000, math.nan])
            case "store-keys":
                for number in range(500):
                    await ctx.store.set(f"\ud800{number}", "\x00")
        return StopEvent(result="kept")

    async def _act(self, ctx: Context, kind: str) -> Any:
        match kind:
            case "cancel-itself":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(1)
            case "waits":
                waits = [ctx.wait_for_event(Answer, waiter_id=f"w{n}", timeout=0.2) for n in range(100)]
                return len(await asyncio.gather(*waits, return_exceptions=True))
            case "wait-forever":
                await ctx.wait_for_event(Answer)
            case "children" | "children-fail":
                child = {"kind": "fine" if kind == "children" else "unshowable"}
                made = [ctx.run_child("Contained", **child) for _ in range(30)]
                return len(await asyncio.gather(*made, return_exceptions=True))
            case "child-chain":
                await ctx.run_child("Contained", kind="child-chain")
            case "sends" | "sends-unknown":
                for number in range(3000):
                    ctx.send_event(Note(text=number), step="take" if kind == "sends" else "nowhere")
            case "leaked-task":
                self._leaked = asyncio.ensure_future(asyncio.sleep(3600))
            case "once-odd":
                return await ctx.once("a", lambda: 10**6000)
            case _:
                return await self._stream(ctx, kind)
        return "done"

    async def _stream(self, ctx: Context, kind: str) -> Any:
        match kind:
            case "stream-odd":
                for value in ("\ud800", math.nan, deep(500), "a" * 1_000_000):
                    ctx.write_event_to_stream(Note(text=value))
                    await asyncio.sleep(0)
            case "sleep-odd":
                for seconds in (-1, 0, 1e-9, 0.01):
                    await ctx.sleep(seconds)
            case "stop-huge-fields":
                return {f"k{number}": "\x00" * 100 for number in range(20_000)}
            case "event-surrogates":
                ctx.send_event(Note(text="\udc80" * 100_000))
            case "dynamic-event":
                ctx.write_event_to_stream(type("Odd\ud800Name", (Event,), {})())
        return "done"


class Threaded(Workflow):
    @step
    def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        match ev.kind:
            case "spin":
                spin(1.0)
            case "sleep":
                time.sleep(1.0)
            case "flood":
                for number in range(20_000):
                    ctx.write_event_to_stream(Note(text=number))
            case "memory":
                return StopEvent(result=len(bytearray(200 << 20)))
            case _:
                raise_it(ev.kind)
        return StopEvent(result="done")


def hold_on(seconds: float = 1.5) -> None:
    """Do nothing, and let nobody else."""
    time.sleep(seconds)


def spin_through_errors() -> None:
    """Keep the interpreter busy with deep stacks."""
    ends_at = time.monotonic() + 1.5
    while time.monotonic() < ends_at:
        try:
            recurse()
        except RecursionError:
            continue


class Blocking(Workflow):
    @step
    async def hold(self, ctx: Context, ev: StartEvent) -> StopEvent:
        match ev.kind:
            case "sleep":
                hold_on()
            case "spin":
                spin(1.5)
            case "flood":
                for number in range(100_000):
                    ctx.write_event_to_stream(Note(text=number))
            case "sleep-often":
                for _ in range(3):
                    hold_on(0.9)
                    await asyncio.sleep(0)
            case "spin-except":
                spin_through_errors()
            case "sleep-in-str":
                raise Slow
            case "sleep-at-end":
                try:
                    raise ValueError("a")
                finally:
                    hold_on()
        return StopEvent(result="done")


@loom.activity("hostile")
async def hostile(kind: str) -> Any:
    """An activity of a flow with such a result, or such an end."""
    raise_it(kind)
    return RESULTS.get(kind, RESULTS["fine"])()


@loom.activity("hostile-sync")
def hostile_sync(kind: str) -> Any:
    """The same in a thread."""
    raise_it(kind)
    return RESULTS.get(kind, RESULTS["fine"])()


@loom.actor("hoarder")
class Hoarder:
    """An actor whose state grows with every message."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def receive(self, message: Any) -> int:
        self.kept.append(message)
        return len(self.kept)
