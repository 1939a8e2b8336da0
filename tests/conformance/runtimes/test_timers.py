"""Timers fire once and never early, whether their run is in memory, released, or nobody is alive."""

from __future__ import annotations

import asyncio

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, failure, result, soon, until_idle, until_info, until_released

from loom import Context, HumanResponseEvent, RunInfo, StartEvent, StopEvent, step
from loom.core.ticks import TickSleep, TickTimeout, TickTimerFired
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.errors import WorkflowTimeoutError


class Word(HumanResponseEvent):
    text: str = ""


class Sleeper(Watched):
    @step
    async def rest(self, ctx: Context, ev: StartEvent) -> StopEvent:
        self.witness.saw("begin")
        await ctx.sleep(ev.seconds)
        self.witness.saw("woke")
        return StopEvent(result="rested")


class Asker(Watched):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            word = await ctx.wait_for_event(Word, timeout=ev.seconds)
        except TimeoutError:
            self.witness.saw("no answer")
            return StopEvent(result="no answer")
        return StopEvent(result=word.text)


class Endless(Watched):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await self.witness.at("work")
        await asyncio.Event().wait()
        return StopEvent()


async def fired(runtime: DurableRuntime, run_id: str) -> list[float]:
    """When the run's timers fired."""
    return [at async for _, at, tick in runtime.history(run_id) if isinstance(tick, TickTimerFired | TickTimeout)]


async def slept(runtime: DurableRuntime, run_id: str) -> float:
    """How long the run's first sleep was, by its journal."""
    began = [at async for _, at, tick in runtime.history(run_id) if isinstance(tick, TickSleep)]
    [ended] = await fired(runtime, run_id)
    return ended - began[0]


@pytest.mark.parametrize("idle_timeout", [None, 0], ids=["in memory", "released"])
async def test_a_sleep_ends_in_time(deployment: Deployment, witness: Witness, idle_timeout: float | None) -> None:
    # The safety net does not come in time: it is the run's own alarm that wakes it.
    runtime = await deployment.open({"sleeper": Sleeper(witness)}, idle_timeout=idle_timeout, poll_interval=600)
    assert await result(await runtime.start("sleeper", {"seconds": 0.2}, run_id="a")) == "rested"
    assert await slept(runtime, "a") >= 0.2
    assert witness.count("woke") == 1
    assert witness.count("begin") == (1 if idle_timeout is None and deployment.holds_bodies else 2)


async def test_nothing_that_happens_meanwhile_ends_a_sleep_early(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"sleeper": Sleeper(witness)})
    # Long enough to be looked at four times, on a slow machine too.
    seconds = {"temporal": 3.0, "postgres": 1.5}.get(deployment.kind, 0.8)
    handler = await runtime.start("sleeper", {"seconds": seconds}, run_id="a")
    for number in range(3):
        await until_info(runtime, "a", lambda info, least=number: info.kept_events >= least and info.ticks > 1)
        await runtime.send_event("a", Word())
    assert await result(handler) == "rested"
    assert await slept(runtime, "a") >= seconds


@pytest.mark.parametrize("idle_timeout", [None, 0], ids=["in memory", "released"])
async def test_the_end_of_one_sleep_ends_no_other(deployment: Deployment, idle_timeout: float | None) -> None:
    runtime = await deployment.open({"two": TwoSleeps()}, idle_timeout=idle_timeout)
    await result(await runtime.start("two", run_id="a"))
    began = [at async for _, at, tick in runtime.history("a") if isinstance(tick, TickSleep)]
    first, second = await fired(runtime, "a")
    assert first - began[0] >= 0.05
    assert second - began[1] >= 0.3


class TwoSleeps(Watched):
    @step
    async def rest(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await asyncio.gather(ctx.sleep(0.05), ctx.sleep(0.3))
        return StopEvent()


@pytest.mark.parametrize("idle_timeout", [None, 0], ids=["in memory", "released"])
async def test_only_timers_that_are_armed_are_stored(deployment: Deployment, idle_timeout: float | None) -> None:
    """One that was left behind would bring the run back for nothing."""
    runtime = await deployment.open({"timers": Timers(timeout=600)}, idle_timeout=idle_timeout)
    handler = await runtime.start("timers", run_id="a")
    before: float | None = None
    for number in range(3):
        info = await until_info(runtime, "a", lambda info, last=before: _waits_anew(info, last))
        before = info.active_waiters[0]["since"]
        exported, state = await runtime.store.export("a"), await runtime.state_at("a")
        assert exported is not None
        assert {timer.seq: timer.due for timer in exported.timers} == {
            number: timer.due for number, timer in state.timers.items()
        }
        assert len(exported.timers) == 2, "the run's timeout and the wait's"
        await runtime.send_event("a", Word(text=str(number)))
    assert await result(handler) == ["0", "1", "2"]
    exported = await runtime.store.export("a")
    assert exported is not None
    assert exported.timers == ()


def _waits_anew(info: RunInfo, last: float | None) -> bool:
    return info.idle_since is not None and info.active_waiters[0]["since"] != last


class Timers(Watched):
    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        words = []
        for _ in range(3):
            await ctx.sleep(0.01)
            words.append((await ctx.wait_for_event(Word, timeout=3600)).text)
        return StopEvent(result=words)


async def test_a_sleep_that_ended_while_nobody_was_alive(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"sleeper": Sleeper(witness, timeout=None)})
    await first.start("sleeper", {"seconds": 3600}, run_id="a")
    await until_info(first, "a", lambda info: info.ticks >= 2)
    await deployment.crash(first)
    await deployment.pass_time(3601)
    second = await deployment.open({"sleeper": Sleeper(witness, timeout=None)})
    assert await result(await second.handler("a")) == "rested"
    assert await slept(second, "a") >= 3600


async def test_what_is_left_of_a_sleep_is_slept_after_a_crash(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"sleeper": Sleeper(witness)})
    await first.start("sleeper", {"seconds": 0.4}, run_id="a")
    await until_info(first, "a", lambda info: info.ticks >= 2)
    await deployment.crash(first)
    second = await deployment.open({"sleeper": Sleeper(witness)})
    assert await result(await second.handler("a")) == "rested"
    assert await slept(second, "a") >= 0.4
    assert witness.count("woke") == 1


async def test_a_sleep_goes_on_after_its_time_was_reached_and_the_process_crashed(
    deployment: Deployment, witness: Witness
) -> None:
    """A timer that has fired does not fire again."""
    witness.hold("between")
    runtime = await deployment.open({"naps": Naps(witness)})
    await runtime.start("naps", run_id="a")
    await witness.came("between")
    assert len(await fired(runtime, "a")) == 1
    await deployment.crash(runtime)
    witness.let("between")
    runtime = await deployment.open({"naps": Naps(witness)})
    assert await result(await runtime.handler("a")) == "rested"
    assert len(await fired(runtime, "a")) == 2


class Naps(Watched):
    @step
    async def rest(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(0.05)
        await self.witness.at("between")
        await ctx.sleep(0.05)
        return StopEvent(result="rested")


@pytest.mark.parametrize("idle_timeout", [None, 0], ids=["in memory", "released"])
async def test_a_wait_has_an_end(deployment: Deployment, witness: Witness, idle_timeout: float | None) -> None:
    runtime = await deployment.open({"asker": Asker(witness)}, idle_timeout=idle_timeout)
    assert await result(await runtime.start("asker", {"seconds": 0.1}, run_id="a")) == "no answer"
    assert witness.count("no answer") == 1
    assert len(await fired(runtime, "a")) == 1


async def test_the_end_of_a_wait_outlives_the_process(deployment: Deployment) -> None:
    first = await deployment.open({"asker": Asker(timeout=None)})
    for run_id in ("answered", "forgotten"):
        await first.start("asker", {"seconds": 3600}, run_id=run_id)
        await until_idle(first, run_id)
    await deployment.crash(first)
    await deployment.pass_time(1800)
    second = await deployment.open({"asker": Asker(timeout=None)})
    await second.send_event("answered", Word(text="here"))
    assert await result(await second.handler("answered")) == "here"
    assert (await second.get("forgotten")).status == "running"
    await deployment.crash(second)
    await deployment.pass_time(1801)
    third = await deployment.open({"asker": Asker(timeout=None)})
    assert await result(await third.handler("forgotten")) == "no answer"
    assert await fired(third, "answered") == []


async def test_a_runs_timeout_outlives_the_process(deployment: Deployment, witness: Witness) -> None:
    # Its body begins and its process crashes long before that, on a slow machine too.
    timeout = {"temporal": 3.0, "postgres": 2.0}.get(deployment.kind, 1.0)
    first = await deployment.open({"endless": Endless(witness, timeout=timeout)})
    await first.start("endless", run_id="a")
    await witness.came("work")
    await deployment.crash(first)
    second = await deployment.open({"endless": Endless(witness, timeout=timeout)})
    assert isinstance(await failure(await second.handler("a")), WorkflowTimeoutError)
    assert len(await fired(second, "a")) == 1


async def test_a_runs_timeout_ends_a_released_run(deployment: Deployment) -> None:
    runtime = await deployment.open({"asker": Asker(timeout=0.3)}, idle_timeout=0)
    handler = await runtime.start("asker", {"seconds": None}, run_id="a")
    await until_released(runtime, "a")
    assert isinstance(await failure(handler), WorkflowTimeoutError)


@pytest.mark.parametrize("crashes", [False, True], ids=["close", "crash"])
async def test_a_runs_timeout_counts_the_time_it_is_alive(
    deployment: Deployment, witness: Witness, crashes: bool
) -> None:
    """Nobody lived for an hour, so that a run that may take ten minutes has as good as all of them left."""
    first = await deployment.open({"asker": Asker(timeout=600)})
    await first.start("asker", {"seconds": None}, run_id="a")
    await until_idle(first, "a")
    await (deployment.crash(first) if crashes else deployment.close(first))
    await deployment.pass_time(3600)
    second = await deployment.open({"asker": Asker(timeout=600)})
    await second.send_event("a", Word(text="still here"))
    assert await result(await second.handler("a")) == "still here"


async def test_time_in_which_a_released_run_waits_counts(deployment: Deployment) -> None:
    """Somebody is alive: a run that is not in memory has a timeout all the same."""
    runtime = await deployment.open({"asker": Asker(timeout=600)}, idle_timeout=0, lease=10_000)
    handler = await runtime.start("asker", {"seconds": None}, run_id="a")
    await until_idle(runtime, "a")
    await until_released(runtime, "a")
    deployment.clock.ahead_s += 601
    assert isinstance(await failure(handler), WorkflowTimeoutError)


async def test_time_never_goes_back_within_a_run(deployment: Deployment) -> None:
    first = await deployment.open({"asker": Asker()})
    await first.start("asker", {"seconds": None}, run_id="a")
    await until_idle(first, "a")
    await deployment.crash(first)
    deployment.clock.ahead_s -= 5000
    second = await deployment.open({"asker": Asker()})
    await second.send_event("a", Word(text="x"))
    assert await result(await second.handler("a")) == "x"
    state = await second.state_at("a")
    times = [(await second.state_at("a", tick=number)).at for number in range(state.ticks)]
    assert times == sorted(times)


async def test_many_sleeping_runs_wake_each_at_its_time(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"sleeper": Sleeper(witness)}, idle_timeout=0)
    handlers = [await runtime.start("sleeper", {"seconds": 0.01 * number}, run_id=str(number)) for number in range(20)]
    assert await soon(asyncio.gather(*handlers)) == ["rested"] * 20
    for number in range(1, 20):
        assert await slept(runtime, str(number)) >= 0.01 * number
    assert witness.count("woke") == 20


async def test_one_execution_of_a_step_may_be_bounded(deployment: Deployment, witness: Witness) -> None:
    witness.hold("work")
    first = await deployment.open({"bounded": Bounded(witness)})
    await first.start("bounded", run_id="a")
    await witness.came("work")
    await deployment.crash(first)
    second = await deployment.open({"bounded": Bounded(witness)})
    assert isinstance(await failure(await second.handler("a")), TimeoutError)
    assert (await second.get("a")).status == "failed"
    assert witness.count("work") == 2, "each execution has all of its time"


class Bounded(Watched):
    @step(timeout=0.3)
    async def work(self, ev: StartEvent) -> StopEvent:
        await self.witness.at("work")
        return StopEvent()


class Unbounded(Watched):
    """Waits with the default timeout if it is told to, else with its own."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        word = await (ctx.wait_for_event(Word) if ev.default else ctx.wait_for_event(Word, timeout=2000))
        return StopEvent(result=word.text)


class Grown(Unbounded):
    """The same under another name, with a step more."""

    @step
    async def more(self, ev: Word) -> None:
        return None


async def test_the_default_timeout_of_a_wait_is_logged_once_per_step(
    deployment: Deployment, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"unbounded-{deployment.kind}"
    runtime = await deployment.open({name: Unbounded(workflow_name=name)})
    for run_id, default in (("asked", False), ("a", True), ("b", True)):
        await runtime.start(name, {"default": default}, run_id=run_id)
    for run_id in ("asked", "a", "b"):
        await until_idle(runtime, run_id)
        await runtime.send_event(run_id, Word(text="yes"))
        assert await result(await runtime.handler(run_id)) == "yes"
    [told] = [record for record in caplog.records if "default" in record.message]
    assert (told.name, told.levelname) == ("loom.durable", "WARNING")
    assert told.message.startswith(f"Step 'ask' of {name} waits for Word with the default timeout of 2,000 s")
    assert (told.__dict__["step"], told.__dict__["run_id"] in "ab") == ("ask", True)


async def test_a_run_has_a_timeout_if_one_was_asked_for_and_keeps_it(deployment: Deployment) -> None:
    first = await deployment.open({"open": Unbounded(), "asked": Unbounded(timeout=3600)})
    for name in ("open", "asked"):
        await first.start(name, {"default": False}, run_id=name)
        await until_idle(first, name)
    assert [(await first.state_at(name)).config.timeout_s for name in ("open", "asked")] == [None, 3600.0]
    await deployment.close(first)
    # Other code that asks for none takes nothing away from a run, and gives it nothing.
    second = await deployment.open({"open": Grown(), "asked": Grown()})
    for name in ("open", "asked"):
        await second.pause(name)
        await until_info(second, name, lambda info: info.paused)
    states = [await second.state_at(name) for name in ("open", "asked")]
    assert [len(state.config.steps) for state in states] == [2, 2]
    assert [(state.config.timeout_s, state.deadline is not None) for state in states] == [(None, False), (3600.0, True)]
