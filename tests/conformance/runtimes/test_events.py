"""Sending events: durable before the call returns, once per event id, in order, kept until somebody asks for them."""

from __future__ import annotations

import asyncio

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until_idle, until_info, until_status

from loom import Context, Event, HumanResponseEvent, RunFinished, RunNotFound, StartEvent, StopEvent, step
from loom.steps.errors import WorkflowRuntimeError
from loom.store.errors import RunBusy


class Word(HumanResponseEvent):
    text: str


class Go(HumanResponseEvent):
    pass


class Number(Event):
    n: int


class Listener(Watched):
    """Gathers words until the last one, each by a wait of its own."""

    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        heard: list[str] = []
        while not heard or heard[-1] != "end":
            heard.append((await ctx.wait_for_event(Word, timeout=None)).text)
        return StopEvent(result=heard)


class Late(Watched):
    """Asks for words only when it was told to."""

    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Go, timeout=None)
        words = [(await ctx.wait_for_event(Word, timeout=None)).text for _ in range(ev.get("words", 1))]
        return StopEvent(result=words)


class Adder(Watched):
    """Takes numbers by a step, not by a wait."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Number | None:
        return None

    @step(num_workers=1)
    async def add(self, ctx: Context, ev: Number) -> StopEvent | None:
        self.witness.saw(str(ev.n))
        total = await ctx.store.get("total", default=0) + ev.n
        await ctx.store.set("total", total)
        return StopEvent(result=total) if ev.n == 0 else None


async def test_an_event_for_nobody_is_refused(deployment: Deployment) -> None:
    runtime = await deployment.open({"listener": Listener()})
    with pytest.raises(RunNotFound, match="'nobody' was not found"):
        await runtime.send_event("nobody", Word(text="x"))
    handler = await runtime.start("listener", run_id="a")
    with pytest.raises(WorkflowRuntimeError, match="Only events can be sent into a run, not str"):
        await runtime.send_event("a", "x")  # type: ignore[arg-type]
    with pytest.raises(WorkflowRuntimeError, match="Step nowhere does not exist"):
        await runtime.send_event("a", Word(text="x"), step="nowhere")
    await runtime.send_event("a", Word(text="end"))
    assert await result(handler) == ["end"]


async def test_a_finished_run_takes_no_event(deployment: Deployment) -> None:
    runtime = await deployment.open({"listener": Listener()})
    handler = await runtime.start("listener", run_id="a")
    await handler.send_event(Word(text="end"))
    await result(handler)
    with pytest.raises(RunFinished, match=r"'a' has ended \(completed\): it takes no event any more"):
        await runtime.send_event("a", Word(text="late"))
    await runtime.start("listener", run_id="b")
    await runtime.cancel("b")
    await until_status(runtime, "b", "cancelled")
    client = await deployment.open()
    with pytest.raises(RunFinished, match=r"'b' has ended \(cancelled\)"):
        await client.send_event("b", Word(text="late"))


async def test_the_same_event_id_has_one_effect(deployment: Deployment) -> None:
    first = await deployment.open({"listener": Listener()})
    await first.start("listener", run_id="a")
    for _ in range(3):
        await first.send_event("a", Word(text="one"), event_id="1")
    await deployment.crash(first)
    second = await deployment.open({"listener": Listener()})
    client = await deployment.open()
    await client.send_event("a", Word(text="one"), event_id="1")
    await second.send_event("a", Word(text="end"), event_id="2")
    assert await result(await second.handler("a")) == ["one", "end"]
    # Also after the end: whoever repeats a call that had succeeded is told so again.
    await second.send_event("a", Word(text="one"), event_id="1")
    await client.send_event("a", Word(text="end"), event_id="2")
    with pytest.raises(RunFinished):
        await second.send_event("a", Word(text="three"), event_id="3")


async def test_event_ids_belong_to_their_run(deployment: Deployment) -> None:
    runtime = await deployment.open({"listener": Listener()})
    handlers = [await runtime.start("listener", run_id=run_id) for run_id in ("a", "b")]
    for run_id in ("a", "b"):
        await runtime.send_event(run_id, Word(text="end"), event_id="1")
    assert [await result(handler) for handler in handlers] == [["end"], ["end"]]


async def test_acknowledged_events_survive_a_crash_in_their_order(deployment: Deployment) -> None:
    words = [str(number) for number in range(20)]
    first = await deployment.open({"listener": Listener()})
    await first.start("listener", run_id="a")
    for word in words:
        await first.send_event("a", Word(text=word))
    await deployment.crash(first)
    second = await deployment.open({"listener": Listener()})
    await second.send_event("a", Word(text="end"))
    assert await result(await second.handler("a")) == [*words, "end"]


async def test_events_may_come_before_anybody_works(deployment: Deployment) -> None:
    client = await deployment.open()
    handler = await client.start("listener", run_id="a")
    for word in ("a", "b", "end"):
        await client.send_event("a", Word(text=word))
    await deployment.open({"listener": Listener()})
    assert await result(handler) == ["a", "b", "end"]


async def test_events_for_a_step_are_all_taken(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"adder": Adder(witness)})
    client = await deployment.open()
    handler = await runtime.start("adder", run_id="a")
    for number in range(1, 11):
        await (runtime if number % 2 else client).send_event("a", Number(n=number))
    await runtime.send_event("a", Number(n=0))
    assert await result(handler) == 55
    assert witness.calls == [str(number) for number in (*range(1, 11), 0)]


async def test_an_event_that_comes_early_is_kept_for_its_waiter(deployment: Deployment) -> None:
    first = await deployment.open({"late": Late()})
    await first.start("late", {"words": 2}, run_id="a")
    await first.send_event("a", Word(text="x"))
    await first.send_event("a", Word(text="y"))
    await until_info(first, "a", lambda info: info.kept_events == 2)
    await deployment.crash(first)
    second = await deployment.open({"late": Late()})
    assert (await second.get("a")).kept_events == 2
    await second.send_event("a", Go())
    assert await result(await second.handler("a")) == ["x", "y"]


async def test_a_run_keeps_a_thousand_events_and_no_more(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 1000
    if deployment.kind == "temporal":  # where each of them takes a server some milliseconds
        many = 100
        monkeypatch.setattr("loom.runtime.durable.run_client._KEEP_UNCLAIMED", many)
    runtime = await deployment.open({"late": Late()})
    handler = await runtime.start("late", {"words": 10}, run_id="a")
    await until_idle(runtime, "a")
    await asyncio.gather(*(runtime.send_event("a", Word(text=str(number))) for number in range(many)))
    with pytest.raises(RunBusy, match=f"'a' already keeps {many} events that nobody has asked for: Word is refused"):
        await runtime.send_event("a", Word(text="too much"))
    client = await deployment.open()
    with pytest.raises(RunBusy):
        await client.send_event("a", Word(text="too much"), event_id="1")
    await until_info(runtime, "a", lambda info: info.kept_events == many)
    # What the run waits for is never too much.
    await runtime.send_event("a", Go())
    assert len(set(await result(handler))) == 10


async def test_an_event_can_be_aimed_at_one_waiter(deployment: Deployment) -> None:
    runtime = await deployment.open({"two": TwoWaiters()})
    handler = await runtime.start("two", run_id="a")
    await until_info(runtime, "a", lambda info: len(info.active_waiters) == 2)
    await runtime.send_event("a", Word(text="for b"), waiter_id="b")
    await runtime.send_event("a", Word(text="for a"), waiter_id="a")
    assert await result(handler) == ["for a", "for b"]


class TwoWaiters(Watched):
    """Waits at two places at once."""

    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        waits = (ctx.wait_for_event(Word, waiter_id=name, timeout=None) for name in "ab")
        return StopEvent(result=[word.text for word in await asyncio.gather(*waits)])


async def test_requirements_choose_the_event(deployment: Deployment) -> None:
    first = await deployment.open({"picky": Picky()})
    await first.start("picky", run_id="a")
    await until_idle(first, "a")
    await first.send_event("a", Word(text="wrong"))
    await until_info(first, "a", lambda info: info.kept_events == 1)
    await deployment.crash(first)
    second = await deployment.open({"picky": Picky()})
    [waiter] = (await second.get("a")).active_waiters
    assert waiter["requirements"] == {"text": "right"}
    await second.send_event("a", Word(text="right"))
    assert await result(await second.handler("a")) == "right"


class Picky(Watched):
    """Waits for one word only."""

    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        word = await ctx.wait_for_event(Word, requirements={"text": "right"}, timeout=None)
        return StopEvent(result=word.text)
