"""Simulating a workflow of one's own."""

from __future__ import annotations

import pytest

from loom import Context, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.testing import Ended, Faults, SimulationFailure, simulate
from loom.testing.faults import FaultPlan


class Question(InputRequiredEvent):
    day: int


class Reply(HumanResponseEvent):
    day: int
    good: bool


class Diary(Workflow):
    """Asks every day for a week."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        good = 0
        for day in range(ev.days):
            await ctx.sleep(24 * 3600)
            reply = await ctx.wait_for_event(
                Reply, waiter_event=Question(day=day), requirements={"day": day}, timeout=None
            )
            good += reply.good
        return StopEvent(result=good)


def reply(event: object) -> Reply | None:
    return Reply(day=event.day, good=event.day % 2 == 0) if isinstance(event, Question) else None


CRASHES = Faults(store=FaultPlan(crash=0.05, slow=0.5, drop_news=0.3), lasts_s=7 * 24 * 3600.0)


def make_diary() -> Diary:
    return Diary(timeout=None)


def test_a_week_passes_at_once_with_crashes() -> None:
    ended: list[Ended] = []
    report = simulate(
        make_diary, seed=7, runs=3, inputs={"days": 7}, answer=reply, check=ended.append, faults=CRASHES, workers=2
    )
    assert report.statuses == {"completed": 3}
    assert report.seconds >= 7 * 24 * 3600
    assert report.counts["crash"] > 0
    assert [run.result for run in ended] == [4, 4, 4]


def test_inputs_may_depend_on_the_run() -> None:
    ended: dict[str, Ended] = {}
    simulate(
        make_diary,
        seed=1,
        runs=3,
        inputs=lambda number: {"days": number},
        answer=reply,
        check=lambda run: ended.update({run.run_id: run}),
        faults=Faults(),
    )
    assert {run_id: run.result for run_id, run in ended.items()} == {"run-0": 0, "run-1": 1, "run-2": 1}


def test_what_a_check_asserts_must_hold() -> None:
    def check(run: Ended) -> None:
        assert run.result == 5, "it was a better week"

    with pytest.raises(SimulationFailure, match=r"(?s)seed 7.*it was a better week.*simulate\(\.\.\., seed=7\)"):
        simulate(make_diary, seed=7, runs=1, inputs={"days": 7}, answer=reply, check=check, faults=Faults())


def test_a_run_that_nobody_answers_does_not_end() -> None:
    with pytest.raises(SimulationFailure, match=r"(?s)nothing has gone wrong for.*it has not ended"):
        simulate(make_diary, seed=7, runs=1, inputs={"days": 1}, faults=Faults(lasts_s=1.0))


class Forgetful(Workflow):
    """Keeps what it has done where a crash does not leave it."""

    def __init__(self) -> None:
        super().__init__(timeout=None)
        self.seen = 0

    @step
    async def count(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for _ in range(5):
            self.seen += 1
            await ctx.sleep(60)
        return StopEvent(result=self.seen)


def test_a_workflow_that_does_not_survive_a_crash_is_found() -> None:
    def check(run: Ended) -> None:
        assert run.result == 5

    calm = simulate(Forgetful, seed=1, runs=1, check=check, faults=Faults(), settings=_in_memory(), workers=1)
    assert calm.statuses == {"completed": 1}
    with pytest.raises(SimulationFailure, match="check"):
        simulate(
            Forgetful,
            seed=1,
            runs=1,
            check=check,
            faults=Faults(kill=0.05, lasts_s=300),
            settings=_in_memory(),
            workers=1,
        )


def _in_memory() -> object:
    from loom.runtime.durable.settings import Settings

    return Settings(idle_timeout=None)
