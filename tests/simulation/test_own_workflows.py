"""Simulating a workflow of one's own."""

from __future__ import annotations

import pytest

from loom import Context, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.settings import Settings
from loom.testing import Ended, Faults, SimulationFailure, simulate
from loom.testing.faults import FaultPlan


class Question(InputRequiredEvent):
    number: int


class Reply(HumanResponseEvent):
    number: int
    good: bool


class Rounds(Workflow):
    """Asks every few minutes."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        good = 0
        for number in range(ev.rounds):
            await ctx.sleep(300)
            reply = await ctx.wait_for_event(
                Reply, waiter_event=Question(number=number), requirements={"number": number}, timeout=None
            )
            good += reply.good
        return StopEvent(result=good)


def reply(event: object) -> Reply | None:
    return Reply(number=event.number, good=event.number % 2 == 0) if isinstance(event, Question) else None


CRASHES = Faults(store=FaultPlan(crash=0.05, slow=0.5, drop_news=0.3), lasts_s=1800.0)


def make_rounds() -> Rounds:
    return Rounds(timeout=None)


def test_half_an_hour_passes_at_once_with_crashes() -> None:
    ended: list[Ended] = []
    report = simulate(
        make_rounds, seed=7, runs=3, inputs={"rounds": 7}, answer=reply, check=ended.append, faults=CRASHES, workers=2
    )
    assert report.statuses == {"completed": 3}
    assert report.seconds >= 7 * 300
    assert report.counts["crash"] > 0
    assert [run.result for run in ended] == [4, 4, 4]


def test_inputs_may_depend_on_the_run() -> None:
    ended: dict[str, Ended] = {}
    simulate(
        make_rounds,
        seed=1,
        runs=3,
        inputs=lambda number: {"rounds": number},
        answer=reply,
        check=lambda run: ended.update({run.run_id: run}),
        faults=Faults(),
    )
    assert {run_id: run.result for run_id, run in ended.items()} == {"run-0": 0, "run-1": 1, "run-2": 1}


def test_the_input_may_be_a_start_event() -> None:
    ended: list[Ended] = []
    start = StartEvent(rounds=1)  # type: ignore[call-arg]
    simulate(make_rounds, seed=1, runs=2, inputs=start, answer=reply, check=ended.append, faults=Faults())
    assert [run.result for run in ended] == [1, 1]


def test_what_a_check_asserts_must_hold() -> None:
    def check(run: Ended) -> None:
        assert run.result == 5, "they were better rounds"

    with pytest.raises(SimulationFailure, match=r"(?s)seed 7.*they were better rounds.*simulate\(\.\.\., seed=7\)"):
        simulate(make_rounds, seed=7, runs=1, inputs={"rounds": 1}, answer=reply, check=check, faults=Faults())


def test_a_run_that_nobody_answers_does_not_end() -> None:
    with pytest.raises(SimulationFailure, match=r"(?s)this does not end.*it has not ended"):
        simulate(make_rounds, seed=7, runs=1, inputs={"rounds": 1}, faults=Faults(lasts_s=1.0))


billed: list[str] = []


class Spendthrift(Workflow):
    """Calls something that costs money, without `ctx.once`."""

    @step
    async def buy(self, ctx: Context, ev: StartEvent) -> StopEvent:
        billed.append(ctx.idempotency_key)
        await ctx.sleep(600)
        return StopEvent()


def make_spendthrift() -> Spendthrift:
    return Spendthrift(timeout=None)


def test_a_workflow_that_does_not_survive_a_crash_is_found() -> None:
    def check(run: Ended) -> None:
        assert len(billed) == 1, f"it was billed {len(billed)} times"

    def simulated(faults: Faults) -> None:
        billed.clear()
        settings = Settings(idle_timeout=None)
        simulate(make_spendthrift, seed=1, runs=1, check=check, faults=faults, settings=settings, workers=1)

    simulated(Faults())
    with pytest.raises(SimulationFailure, match="it was billed"):
        simulated(Faults(kill=0.05, lasts_s=300))
