"""What a program puts around its runs with `decorate`: it sees all, and what it does breaks no run and no journal."""

from __future__ import annotations

import asyncio
from inspect import iscoroutinefunction
from typing import Any

import pytest
from runtime_deployments import DATABASES, Deployment
from runtime_watching import Watched, Witness, result, until, until_info

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, step
from loom.core.adapter import InternalRunAdapter, RunAdapterDecorator
from loom.core.run import Batch
from loom.core.ticks import TickAddEvent, WorkflowTick
from loom.store.errors import StoreUnavailable

pytestmark = pytest.mark.parametrize("deployment", DATABASES, indirect=True)


class Job(Event):
    n: int = 0


class Done(Event):
    n: int = 0


class Word(HumanResponseEvent):
    text: str = ""


class Spread(Watched):
    """Sends three jobs, from the event loop or from a thread, and waits for a word before it ends."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Job | None:
        for n in range(2):
            ctx.send_event(Job(n=n))
        await asyncio.to_thread(ctx.send_event, Job(n=2))
        await self.witness.at("sent")
        return None

    @step
    async def work(self, ctx: Context, ev: Job) -> Done:
        await self.witness.at(f"work {ev.n}")
        return Done(n=ev.n)

    @step
    async def end(self, ctx: Context, ev: Done) -> StopEvent | None:
        done = ctx.collect_events(ev, [Done] * 3)
        if done is None:
            return None
        word = await ctx.wait_for_event(Word, timeout=None)
        return StopEvent(result=[sorted(each.n for each in done), word.text])


class Seeing(RunAdapterDecorator):
    """Notes what passes."""

    def __init__(self, inner: Any, seen: list[tuple[str, Any]]) -> None:
        super().__init__(inner)
        self.seen = seen

    async def commit(self, batch: Batch) -> None:
        await super().commit(batch)
        self.seen += [("committed", tick) for tick in batch.ticks]

    def on_tick(self, tick: WorkflowTick) -> None:
        self.seen.append(("tick", tick))
        super().on_tick(tick)

    def send_event(self, tick: WorkflowTick) -> None:
        self.seen.append(("sent", tick))
        super().send_event(tick)


async def journal(runtime: Any, run_id: str) -> list[WorkflowTick]:
    return [entry.tick async for entry in runtime.history(run_id)]


async def test_what_steps_and_callers_send_passes_the_adapter(deployment: Deployment, witness: Witness) -> None:
    seen: list[tuple[str, Any]] = []
    runtime = await deployment.open({"spread": Spread(witness)}, decorate=lambda inner: Seeing(inner, seen))
    await runtime.start("spread", run_id="a")
    await runtime.send_event("a", Word(text="x"))
    assert await result(await runtime.handler("a")) == [[0, 1, 2], "x"]
    sent = [tick for what, tick in seen if what == "sent" and isinstance(tick, TickAddEvent)]
    own = [tick for tick in sent if tick.source is not None]
    assert [(tick.source.ordinal, tick.event.kind.label) for tick in own if tick.source] == [
        (0, "Job"), (1, "Job"), (2, "Job")
    ]  # fmt: skip
    assert [tick.event.kind.label for tick in sent if tick.source is None] == ["Word"]
    ticks = [tick for what, tick in seen if what == "tick"]
    assert ticks == [tick for what, tick in seen if what == "committed"] == await journal(runtime, "a")


class Stuttering(RunAdapterDecorator):
    """Passes everything on twice."""

    def send_event(self, tick: WorkflowTick) -> None:
        super().send_event(tick)
        super().send_event(tick)


async def test_what_passes_twice_is_applied_once(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"spread": Spread(witness)}, decorate=Stuttering)
    await runtime.start("spread", run_id="a")
    await runtime.send_event("a", Word(text="x"), event_id="only")
    assert await result(await runtime.handler("a")) == [[0, 1, 2], "x"]
    # The run may be over before the body hears that the event of its thread has been sent.
    assert sorted(call for call in witness.calls if call != "sent") == ["work 0", "work 1", "work 2"]


class FailingCommits(RunAdapterDecorator):
    """Fails the commits with these numbers, as a store does that is gone for a moment."""

    def __init__(self, inner: Any, failing: list[int]) -> None:
        super().__init__(inner)
        self.failing = failing

    async def commit(self, batch: Batch) -> None:
        if batch.ticks and self.failing:
            self.failing[0] -= 1
            if not self.failing[0]:
                self.failing.pop(0)
                raise StoreUnavailable("chaos")
        await super().commit(batch)


async def test_failed_commits_cost_a_run_nothing(deployment: Deployment, witness: Witness) -> None:
    failing = [2, 3, 5]
    options: dict[str, Any] = {"decorate": lambda inner: FailingCommits(inner, failing), "poll_interval": 0.05}
    runtime = await deployment.open({"spread": Spread(witness)}, **options)
    await runtime.start("spread", run_id="a")
    await runtime.send_event("a", Word(text="x"))
    assert await result(await runtime.handler("a")) == [[0, 1, 2], "x"]
    assert not failing


async def test_effects_of_an_interrupted_step_are_not_repeated(deployment: Deployment, witness: Witness) -> None:
    """The events that had passed are in the journal; the body that runs again sends them, and they count once."""
    witness.hold("sent")
    seen: list[tuple[str, Any]] = []
    first = await deployment.open({"spread": Spread(witness)}, decorate=lambda inner: Seeing(inner, seen))
    await first.start("spread", run_id="a")
    await witness.came("work 2")
    await until_info(first, "a", lambda info: info.ticks >= 4)
    await deployment.crash(first)
    witness.let("sent")
    second = await deployment.open({"spread": Spread(witness)}, decorate=lambda inner: Seeing(inner, seen))
    await until(lambda: witness.calls.count("sent") == 2, "the body that runs again")
    await second.send_event("a", Word(text="x"))
    assert await result(await second.handler("a")) == [[0, 1, 2], "x"]
    ordinals = [tick.source.ordinal for what, tick in seen if what == "sent" and getattr(tick, "source", None)]
    assert ordinals == [0, 1, 2, 0, 1, 2]


class Refusing(RunAdapterDecorator):
    """Lets the first send of a step fail."""

    refused = False

    def send_event(self, tick: WorkflowTick) -> None:
        if getattr(tick, "source", None) is not None and not Refusing.refused:
            Refusing.refused = True
            raise ConnectionError("chaos")
        super().send_event(tick)


class Sure(Spread):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Job | None:
        try:
            ctx.send_event(Job(n=0))
        except ConnectionError:
            ctx.send_event(Job(n=0))
        ctx.send_event(Job(n=1))
        ctx.send_event(Job(n=2))
        return None


async def test_what_the_adapter_raises_is_raised_in_the_step(deployment: Deployment, witness: Witness) -> None:
    Refusing.refused = False
    runtime = await deployment.open({"sure": Sure(witness)}, decorate=Refusing)
    await runtime.start("sure", run_id="a")
    await runtime.send_event("a", Word(text="x"))
    assert await result(await runtime.handler("a")) == [[0, 1, 2], "x"]
    assert Refusing.refused


async def test_a_decorator_that_cannot_be_made_parks_the_run(deployment: Deployment, witness: Witness) -> None:
    def broken(inner: Any) -> Any:
        raise LookupError("no such place")

    first = await deployment.open({"spread": Spread(witness)}, decorate=broken)
    await first.start("spread", run_id="a")
    info = await until_info(first, "a", lambda info: info.parked)
    assert "no such place" in (info.parked or "")
    await deployment.close(first)
    second = await deployment.open({"spread": Spread(witness)})
    await second.send_event("a", Word(text="x"))
    assert await result(await second.handler("a")) == [[0, 1, 2], "x"]


def broken_at(method: str) -> type[RunAdapterDecorator]:
    """Make decorators that fail in one of their methods; what steps send gets through."""
    plain = getattr(RunAdapterDecorator, method)

    def fails(self: RunAdapterDecorator, *given: Any) -> Any:
        if given and getattr(given[0], "source", None) is not None:
            return plain(self, *given)
        raise LookupError(f"no {method}")

    async def fails_later(self: RunAdapterDecorator, *_: Any) -> Any:
        raise LookupError(f"no {method}")

    return type("Broken", (RunAdapterDecorator,), {method: fails_later if iscoroutinefunction(plain) else fails})


METHODS = [name for name, value in vars(RunAdapterDecorator).items() if callable(value) and name[0] != "_"]


@pytest.mark.parametrize("method", [name for name in METHODS if name != "close"])
async def test_a_decorator_that_raises_parks_its_run_and_no_other(
    deployment: Deployment, witness: Witness, method: str
) -> None:
    kind = broken_at(method)

    def decorate(inner: InternalRunAdapter) -> InternalRunAdapter:
        return kind(inner) if inner.run_id == "bad" else inner

    workflows = {"spread": Spread(witness)}
    first = await deployment.open(workflows, decorate=decorate)
    for run_id in ("bad", "good"):
        await first.start("spread", run_id=run_id)
        await first.send_event(run_id, Word(text="x"))
    info = await until_info(first, "bad", lambda info: info.parked)
    assert f"no {method}" in (info.parked or "")
    assert await result(await first.handler("good")) == [[0, 1, 2], "x"]
    await deployment.close(first)
    second = await deployment.open(workflows)
    assert await result(await second.handler("bad")) == [[0, 1, 2], "x"]
