"""Cycles of steps have a bound: a run that reaches it is parked, says why, and goes on when it is raised."""

from __future__ import annotations

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until_idle, until_info

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.state import BrokerConfig
from loom.core.ticks import TickResume, TickStartRun
from loom.runtime.durable.runtime import DurableRuntime


class Ping(Event):
    left: int


class Pong(Event):
    left: int


class Word(HumanResponseEvent):
    text: str = ""


class Begin(StartEvent):
    laps: int = 0


class Cycle(Watched):
    """A lap has two executions; the last one ends the run. So n laps are a chain of 2n + 1."""

    @step
    async def begin(self, ev: Begin | Pong) -> Ping | StopEvent:
        left = ev.laps if isinstance(ev, Begin) else ev.left
        self.witness.calls.append("begin")
        return Ping(left=left - 1) if left else StopEvent(result="done")

    @step
    async def answer(self, ev: Ping) -> Pong:
        return Pong(left=ev.left)


async def start(runtime: DurableRuntime, run_id: str, laps: int) -> None:
    await runtime.start("cycle", {"laps": laps}, run_id=run_id)


async def configs(runtime: DurableRuntime, run_id: str) -> list[BrokerConfig]:
    """The code that the run has been told of, in order."""
    ticks = [entry.tick async for entry in runtime.history(run_id)]
    return [tick.config for tick in ticks if isinstance(tick, TickStartRun | TickResume) and tick.config is not None]


async def test_a_run_is_parked_at_its_depth_and_goes_on_with_a_higher_one(
    deployment: Deployment, witness: Witness
) -> None:
    runtime = await deployment.open({"cycle": Cycle(witness, max_depth=5)})
    await start(runtime, "short", 2)
    assert await result(await runtime.handler("short")) == "done"
    await start(runtime, "long", 5)
    info = await until_info(runtime, "long", lambda info: info.parked)
    assert info.status == "running"
    assert info.parked is not None
    assert info.parked.startswith("Step 'answer' would be execution 6 in a row, each caused by the one before")
    assert "max_depth allows 5" in info.parked
    why = await runtime.why("long")
    assert why.kind == "parked"
    assert "max_depth allows 5" in why.sentence
    assert [found.run_id async for found in runtime.list(parked=True)] == ["long"]
    # A limit that is no higher lets it stay as it is.
    await runtime.resume("long")
    await runtime.resume("long", max_depth=3)
    await start(runtime, "next", 1)
    assert await result(await runtime.handler("next")) == "done"
    assert (await runtime.get("long")).parked is not None
    await runtime.resume("long", max_depth=7)
    info = await until_info(runtime, "long", lambda info: info.parked and "allows 7" in info.parked)
    assert info.parked is not None
    assert info.parked.startswith("Step 'answer' would be execution 8 in a row")
    await runtime.resume("long", max_depth=100)
    assert await result(await runtime.handler("long")) == "done"
    assert (await runtime.get("long")).parked is None
    assert (await configs(runtime, "long"))[-1].max_depth == 100
    # Nothing was done twice: each execution once, whether or not the run was parked in between.
    assert len(witness.calls) == 3 + 2 + 6


async def test_code_with_a_higher_limit_lets_parked_runs_go_on(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"cycle": Cycle(witness, max_depth=3)})
    await start(first, "a", 4)
    await until_info(first, "a", lambda info: info.parked)
    await deployment.close(first)
    second = await deployment.open({"cycle": Cycle(witness, max_depth=9)})
    assert await result(await second.handler("a")) == "done"


async def test_a_running_run_can_be_given_a_higher_limit(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"chat": Chat(witness, max_depth=3)})
    await runtime.start("chat", run_id="a")
    await until_idle(runtime, "a")
    await runtime.resume("a", max_depth=6)
    await runtime.send_event("a", Word(text="4"))
    assert await result(await runtime.handler("a")) == "done"


class Chat(Watched):
    """Waits for a word that says how many steps follow, and then makes as many."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Ping:
        word = await ctx.wait_for_event(Word, timeout=None)
        return Ping(left=int(word.text))

    @step
    async def count(self, ev: Ping) -> Ping | StopEvent:
        return Ping(left=ev.left - 1) if ev.left else StopEvent(result="done")


async def test_stored_runs_have_a_limit_by_default(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"cycle": Cycle(witness), "free": Cycle(witness, max_depth=None)})
    await start(runtime, "a", 3)
    assert await result(await runtime.handler("a")) == "done"
    assert [config.max_depth for config in await configs(runtime, "a")] == [10_000]
    await runtime.start("free", {"laps": 3}, run_id="b")
    assert await result(await runtime.handler("b")) == "done"
    assert [config.max_depth for config in await configs(runtime, "b")] == [None]


async def test_runs_that_are_stored_without_a_limit_get_none(deployment: Deployment, witness: Witness) -> None:
    """So are all runs that were stored before there was one."""
    first = await deployment.open({"chat": Chat(witness)}, max_depth=None)
    await first.start("chat", run_id="a")
    await until_idle(first, "a")
    await deployment.close(first)
    second = await deployment.open({"chat": Chat(witness)}, max_depth=3)
    await second.resume("a", max_depth=4)
    await second.send_event("a", Word(text="9"))
    assert await result(await second.handler("a")) == "done"
    # A run that begins now has the limit of its process.
    await second.start("chat", run_id="b")
    await second.send_event("b", Word(text="9"))
    info = await until_info(second, "b", lambda info: info.parked)
    assert "max_depth allows 3" in (info.parked or "")


class Part(Event):
    n: int


class Done(Event):
    n: int


class Wide(Workflow):
    """Fifty steps beside each other, two after each other, and a join."""

    @step
    async def split(self, ev: StartEvent) -> list[Part]:
        return [Part(n=n) for n in range(50)]

    @step
    async def work(self, ev: Part) -> Done:
        return Done(n=ev.n)

    @step
    async def gather(self, evs: list[Done]) -> StopEvent:
        return StopEvent(result=len(evs))


async def test_a_wide_fan_out_is_no_cycle(deployment: Deployment) -> None:
    runtime = await deployment.open({"wide": Wide(max_depth=3)})
    assert await result(await runtime.start("wide")) == 50


async def test_operators_are_told_of_a_run_that_is_parked_at_its_depth(
    deployment: Deployment, witness: Witness
) -> None:
    problems: list[loom.Problem] = []
    runtime = await deployment.open({"cycle": Cycle(witness, max_depth=3)}, on_problem=problems.append)
    await start(runtime, "a", 4)
    await until_info(runtime, "a", lambda _info: problems)
    assert [(problem.run_id, problem.kind) for problem in problems] == [("a", "parked")]
    assert "max_depth allows 3" in (problems[0].message or "")


async def test_a_limit_that_makes_no_sense_is_refused(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"cycle": Cycle(witness)})
    with pytest.raises(loom.WorkflowValidationError, match="max_depth must be an integer greater than 0 or None"):
        await runtime.resume("a", max_depth=0)


class Sums(Watched):
    """A cycle that goes ahead of its commits."""

    @step(pure=True)
    async def begin(self, ev: Begin | Pong) -> Ping | StopEvent:
        left = ev.laps if isinstance(ev, Begin) else ev.left
        return Ping(left=left - 1) if left else StopEvent(result="done")

    @step(pure=True)
    async def answer(self, ev: Ping) -> Pong:
        return Pong(left=ev.left)


async def test_a_cycle_of_pure_steps_is_parked_as_well(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"sums": Sums(witness, max_depth=30)})
    await runtime.start("sums", {"laps": 40}, run_id="a")
    info = await until_info(runtime, "a", lambda info: info.parked)
    assert "would be execution 31 in a row" in (info.parked or "")
    await runtime.resume("a", max_depth=81)
    assert await result(await runtime.handler("a")) == "done"


async def test_a_fork_of_a_parked_run_has_its_depth(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"cycle": Cycle(witness, max_depth=5)})
    await start(runtime, "a", 5)
    await until_info(runtime, "a", lambda info: info.parked)
    await runtime.fork("a", tick=4, run_id="b")
    info = await until_info(runtime, "b", lambda info: info.parked)
    assert "would be execution 6 in a row" in (info.parked or "")
    await runtime.resume("b", max_depth=11)
    assert await result(await runtime.handler("b")) == "done"


class Stumbles(Cycle):
    """Fails once, in the middle of its laps."""

    @step
    async def answer(self, ev: Ping) -> Pong:
        self.witness.calls.append("answer")
        if ev.left == 2 and self.witness.calls.count("answer") == 3:
            raise ConnectionError("once")
        return Pong(left=ev.left)


async def test_a_retried_run_goes_on_with_its_depth(deployment: Deployment, witness: Witness) -> None:
    """Five laps, of which the third fails: what is retried is as deep as it was."""
    runtime = await deployment.open({"cycle": Stumbles(witness, max_depth=9)})
    await start(runtime, "a", 5)
    await until_info(runtime, "a", lambda info: info.status == "failed")
    await runtime.retry("a")
    info = await until_info(runtime, "a", lambda info: info.parked)
    assert "would be execution 10 in a row" in (info.parked or "")
    await runtime.resume("a", max_depth=11)
    assert await result(await runtime.handler("a")) == "done"
