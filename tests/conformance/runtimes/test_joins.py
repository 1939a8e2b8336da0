"""What several events come together for, and limits on workers: the same after a restart in the middle."""

from __future__ import annotations

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, failure, result, until_idle, until_info, until_released, until_status

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, catch_error, step
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import StepFailedEvent
from loom.steps.retry import retry_policy, stop_after_attempt, wait_none


class Item(Event):
    n: int


class Left(Event):
    n: int


class Right(Event):
    n: int


class Piece(Event):
    n: int


class Answer(HumanResponseEvent):
    n: int


class Collects(Watched):
    """Puts two kinds of events together, which come from outside."""

    @step
    async def begin(self, ev: StartEvent) -> Left | Right | None:
        return None

    @step
    async def gather(self, ctx: Context, ev: Left | Right) -> StopEvent | None:
        self.witness.saw(f"{type(ev).__name__} {ev.n}")
        found = ctx.collect_events(ev, [Left, Left, Right])
        return StopEvent(result=[event.n for event in found]) if found is not None else None


class FanOut(Watched):
    @step
    async def split(self, ev: StartEvent) -> list[Item]:
        self.witness.saw("split")
        return [Item(n=number) for number in range(4)]

    @step(num_workers=2)
    async def work(self, ev: Item) -> Piece:
        self.witness.saw(f"begin {ev.n}")
        await self.witness.at(f"item {ev.n}")
        self.witness.saw(f"end {ev.n}")
        return Piece(n=ev.n * 10)

    @step
    async def join(self, pieces: list[Piece]) -> StopEvent:
        self.witness.saw("join")
        return StopEvent(result=sorted(piece.n for piece in pieces))


class AsksInTheMiddle(FanOut):
    """One of the members of the stream waits for an answer, which goes into the join with its successor."""

    @step(num_workers=2)
    async def work(self, ctx: Context, ev: Item) -> Piece:
        self.witness.saw(f"work {ev.n}")
        if ev.n != 1:
            return Piece(n=ev.n)
        answer = await ctx.wait_for_event(Answer, waiter_id="middle", timeout=None)
        return Piece(n=answer.n)


class Aims(FanOut):
    """A member of the stream sends an event to the join by its name."""

    @step(num_workers=2)
    async def work(self, ctx: Context, ev: Item) -> Piece:
        if ev.n == 1:
            ctx.send_event(Piece(n=100), step="join")
        return Piece(n=ev.n)


class Rescued(Watched):
    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def work(self, ev: StartEvent) -> StopEvent:
        self.witness.saw("work")
        raise ConnectionError("gone")

    @catch_error
    async def rescue(self, ctx: Context, ev: StepFailedEvent) -> StopEvent:
        await self.witness.at("rescue")
        return StopEvent(result=[ev.step_name, str(ev.exception), ev.attempts])


@pytest.mark.parametrize("crashes", [False, True], ids=["close", "crash"])
async def test_collected_events_are_kept(deployment: Deployment, witness: Witness, crashes: bool) -> None:
    runtime = await deployment.open({"collects": Collects(witness)})
    await runtime.start("collects", run_id="a")
    for number, event in enumerate((Left(n=1), Right(n=2), Left(n=3))):
        await runtime.send_event("a", event)
        await until_info(runtime, "a", lambda info: info.status != "running" or info.idle_since)
        await witness.came(f"{type(event).__name__} {event.n}")
        if number < 2:
            await until_info(runtime, "a", lambda info, least=3 + 2 * number: info.ticks >= least)
            await (deployment.crash(runtime) if crashes else deployment.close(runtime))
            runtime = await deployment.open({"collects": Collects(witness)})
    assert await result(await runtime.handler("a")) == [1, 3, 2]


async def test_a_set_is_not_collected_twice_when_its_step_crashes(deployment: Deployment, witness: Witness) -> None:
    witness.hold("held")
    first = await deployment.open({"holds": Holds(witness)})
    await first.start("holds", run_id="a")
    await witness.came("held")
    await deployment.crash(first)
    witness.let("held")
    second = await deployment.open({"holds": Holds(witness)})
    assert await result(await second.handler("a")) == [0, 1]


class Holds(Watched):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Left | None:
        ctx.send_event(Left(n=0))
        ctx.send_event(Left(n=1))
        return None

    @step
    async def gather(self, ctx: Context, ev: Left) -> StopEvent | None:
        found = ctx.collect_events(ev, [Left, Left])
        if found is None:
            return None
        await self.witness.at("held")
        return StopEvent(result=sorted(event.n for event in found))


async def test_a_fan_out_is_joined_once_across_crashes(deployment: Deployment, witness: Witness) -> None:
    for number in range(4):
        witness.hold(f"item {number}")
    runtime = await deployment.open({"fan": FanOut(witness)})
    await runtime.start("fan", run_id="a")
    await witness.came("item 0")
    await witness.came("item 1")
    witness.let("item 0")
    await witness.came("item 2")
    # Two at a time, so that the fourth has not begun.
    assert witness.count("begin 3") == 0
    await deployment.crash(runtime)
    runtime = await deployment.open({"fan": FanOut(witness)})
    await witness.came("item 1", 2)
    await witness.came("item 2", 2)
    assert witness.count("begin 3") == 0
    for number in range(1, 4):
        witness.let(f"item {number}")
    assert await result(await runtime.handler("a")) == [0, 10, 20, 30]
    assert [witness.count(f"end {number}") for number in range(4)] == [1, 1, 1, 1]
    assert [witness.count(what) for what in ("split", "begin 0", "join")] == [1, 1, 1]


@pytest.mark.parametrize("way", ["in memory", "released", "crashed"])
async def test_a_join_gets_the_piece_of_a_member_that_had_waited(
    deployment: Deployment, witness: Witness, way: str
) -> None:
    """The join fires once, with all members, after the one that waited has gone on."""
    idle_timeout = 0 if way == "released" else None
    runtime = await deployment.open({"asks": AsksInTheMiddle(witness)}, idle_timeout=idle_timeout)
    await runtime.start("asks", run_id="a")
    await (until_released if way == "released" else until_idle)(runtime, "a")
    assert witness.count("join") == 0
    if way == "crashed":
        await deployment.crash(runtime)
        runtime = await deployment.open({"asks": AsksInTheMiddle(witness)})
    await runtime.send_event("a", Answer(n=77))
    assert await result(await runtime.handler("a")) == [0, 2, 3, 77]
    assert witness.count("join") == 1
    assert [witness.count(f"work {number}") for number in (0, 2, 3)] == [1, 1, 1]


@pytest.mark.parametrize("sender", ["a step", "outside"])
async def test_an_event_aimed_at_a_join_fails_the_run(deployment: Deployment, witness: Witness, sender: str) -> None:
    workflow = Aims(witness) if sender == "a step" else AsksInTheMiddle(witness)
    runtime = await deployment.open({"join": workflow})
    handler = await runtime.start("join", run_id="a")
    if sender == "outside":
        await until_idle(runtime, "a")
        await runtime.send_event("a", Piece(n=100), step="join")
    error = await failure(handler)
    assert isinstance(error, WorkflowRuntimeError)
    assert str(error).startswith("Piece was sent to step 'join' with send_event(step=...), but that step collects list")
    assert "collects list" in ((await until_status(runtime, "a", "failed")).error or "")
    assert witness.count("join") == 0


async def test_other_code_may_have_more_workers(deployment: Deployment, witness: Witness) -> None:
    for number in range(4):
        witness.hold(f"item {number}")
    first = await deployment.open({"fan": FanOut(witness)})
    await first.start("fan", run_id="a")
    await witness.came("item 1")
    await deployment.crash(first)
    second = await deployment.open({"fan": Wider(witness)})
    await witness.came("item 3")
    for number in range(4):
        witness.let(f"item {number}")
    assert await result(await second.handler("a")) == [0, 10, 20, 30]


class Wider(FanOut):
    @step(num_workers=4)
    async def work(self, ev: Item) -> Piece:
        await self.witness.at(f"item {ev.n}")
        return Piece(n=ev.n * 10)


async def test_a_caught_failure_stays_caught(deployment: Deployment, witness: Witness) -> None:
    witness.hold("rescue")
    first = await deployment.open({"rescued": Rescued(witness)})
    await first.start("rescued", run_id="a")
    await witness.came("rescue")
    await deployment.crash(first)
    witness.let("rescue")
    second = await deployment.open({"rescued": Rescued(witness)})
    assert await result(await second.handler("a")) == ["work", "gone", 2]
    assert witness.calls == ["work", "work", "rescue", "rescue"]
