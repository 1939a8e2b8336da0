"""The real runtime in a simulated world, seed by seed: every promise holds, whatever goes wrong.

One seed alone: `pytest tests/simulation --sim-seed N`, or `python -m loom.testing.simulation_sweep --sim-seed N`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from loom.testing import Faults, simulate
from loom.testing.faults import FaultPlan

PARTS = 10
"""The work is divided into so many tests, for processes that run side by side."""

Recorder = Callable[[str, Any], None]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_holds_whatever_goes_wrong(
    part: int, sim_seed: int | None, sim_ticks: int, record_property: Recorder
) -> None:
    if sim_seed is not None:
        if part:
            pytest.skip("one seed was asked for")
        assert simulate(seed=sim_seed).ticks > 0
        return
    ticks = seeds = 0
    counts: Counter[str] = Counter()
    while ticks < sim_ticks / PARTS:
        report = simulate(seed=part * 1_000_000 + seeds)
        ticks, seeds = ticks + report.ticks, seeds + 1
        counts.update(report.counts)
    record_property("simulated ticks", ticks)
    record_property("simulated seeds", seeds)
    record_property("simulated crashes", counts["crash"] + counts["kill"])


def test_a_seed_is_the_same_simulation_in_every_process_and_another_seed_another_one() -> None:
    """Also where strings hash to other numbers."""
    program = "from loom.testing import simulate; print(*[simulate(seed=seed).digest for seed in (7, 17)])"
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    digests = [job.communicate()[0].split() for job in jobs]
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 2


EVERYTHING = Faults(
    store=FaultPlan(
        fail_before=0.02,
        fail_after=0.02,
        slow=0.2,
        slow_s=0.2,
        fail_read=0.01,
        slow_read=0.2,
        drop_news=0.2,
        repeat_news=0.2,
        delay_news=0.2,
        shuffle_news=0.2,
        lose_lease=0.02,
        stall=0.003,
        crash=0.01,
    ),
    kill=0.05,
    leave=0.05,
    jump=0.2,
    cancel=0.01,
    pause=0.05,
    noise=0.3,
    lasts_s=90.0,
)


def test_everything_that_can_go_wrong_does() -> None:
    store = [name for name in FaultPlan.__struct_fields__ if getattr(EVERYTHING.store, name) and name[-2:] != "_s"]
    wanted = {*store, "kill", "leave", "jump", "pause", "noise", "died", "left", "snapshot", "sent StartRun"}
    counts: Counter[str] = Counter()
    for seed in (7, 1, 3):  # the first is short, and had all of it
        counts.update(simulate(seed=seed, faults=EVERYTHING, workers=3).counts)
        if wanted <= counts.keys():
            return
    raise AssertionError(f"Never happened: {sorted(wanted - counts.keys())}")
