"""Delays that an operator ends while workers die: each ends once, and the run comes to the end that it would have."""

from __future__ import annotations

import pytest

from loom import Context, StartEvent, StopEvent, Workflow, step
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.testing import Ended, FaultPlan, Faults, simulate

ROUNDS = 4
TROUBLE = Faults(store=FaultPlan(crash=0.05, fail_after=0.05, slow=0.3, slow_s=0.1), kill=0.05, skip=0.5, lasts_s=120.0)


class Delayed(Workflow):
    """Sleeps a few times, and fails once after each."""

    @step(retry_policy=retry_policy(wait=wait_fixed(40), stop=stop_after_attempt(ROUNDS + 1)))
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        failures = ctx.retry_info().retry_number
        await ctx.sleep(60)
        if failures < ROUNDS:
            raise ConnectionError("not yet")
        return StopEvent(result=failures)


def make_delayed() -> Delayed:
    return Delayed(timeout=None)


@pytest.mark.parametrize("seed", range(4))
def test_a_delay_ends_once_whatever_dies(seed: int) -> None:
    ended: list[Ended] = []
    report = simulate(make_delayed, seed=seed, runs=3, check=ended.append, faults=TROUBLE, workers=2)
    assert report.statuses == {"completed": 3}
    assert [run.result for run in ended] == [ROUNDS] * 3
    assert report.counts["skip"] > 0
    assert report.seconds < 3 * ROUNDS * 100
