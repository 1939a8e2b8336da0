"""Many simulations, one after the other and side by side: `python -m loom.testing.simulation_sweep`."""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TYPE_CHECKING

from loom.testing.simulation import Report, SimulationFailure, simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOW_EVERY_S = 10.0
_FEWER_COLLECTIONS = 50_000


def main(arguments: Sequence[str]) -> int:
    """Simulate one seed, or as many as it takes. Return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m loom.testing.simulation_sweep", description="Simulate a made-up program."
    )
    parser.add_argument("--sim-seed", type=int, default=None, metavar="N", help="this seed, or the first one")
    parser.add_argument("--ticks", type=int, default=None, metavar="N", help="as many seeds as N ticks take")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="so many at a time")
    given = parser.parse_args(arguments)
    first = given.sim_seed if given.sim_seed is not None else 0
    if given.ticks is not None:
        return sweep(first, given.ticks, given.jobs)
    try:
        report = simulate(seed=first)
    except SimulationFailure as failure:
        _say(str(failure))
        return 1
    for name in Report.__struct_fields__:
        _say(f"{name}: {getattr(report, name)}")
    return 0


def sweep(first: int, ticks: int, jobs: int) -> int:
    """Simulate seed after seed until they have this many ticks. Stop at the first failure."""
    began_at = shown_at = time.monotonic()
    total = seeds = 0
    counts: Counter[str] = Counter()
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawning, initializer=_prepare) as pool:
        seed = first
        going: set[Future[Report]] = set()
        while total < ticks:
            while len(going) < 2 * jobs:
                going.add(pool.submit(_one, seed))
                seed += 1
            done, going = wait(going, return_when=FIRST_COMPLETED)
            for future in done:
                if isinstance(failure := future.exception(), SimulationFailure):
                    pool.shutdown(wait=False, cancel_futures=True)
                    _say(str(failure))
                    return 1
                report = future.result()
                total, seeds = total + report.ticks, seeds + 1
                counts.update(report.counts)
            if total >= ticks or time.monotonic() - shown_at > _SHOW_EVERY_S:
                shown_at = time.monotonic()
                _say(f"{total:,} ticks, {seeds} seeds, {shown_at - began_at:.0f} s")
        pool.shutdown(wait=False, cancel_futures=True)
    _say(", ".join(f"{name} {number:,}" for name, number in sorted(counts.items())))
    return 0


def _prepare() -> None:
    # Simulations make little garbage with cycles in it: looking for it less often saves a tenth of the time.
    gc.set_threshold(_FEWER_COLLECTIONS, 20, 50)


def _one(seed: int) -> Report:
    return simulate(seed=seed)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
