"""A stored loop of a great many iterations, its history pruned: whether the last ones cost what the first ones did."""

import asyncio
from pathlib import Path
from typing import Any

from bench.cases import _flow_documents
from bench.measure import Stopwatch, resident_kb
from bench.places import path_of, sqlite_url
from bench.spec import Case, Figures, Metric, Target, absolute

LOOK_S = 0.01


class _Watch:
    """Notes the time and the memory at each tenth of the loop."""

    def __init__(self, runtime: Any, run_id: str, size: int) -> None:
        self._runtime, self._run_id, self._size = runtime, run_id, size
        self._clock = Stopwatch()
        self.marks: list[tuple[int, float, float, float]] = []
        """Iterations, seconds, CPU seconds, MB: soon after the beginning, at each tenth, and at the end.

        The first mark is not the beginning itself, so that all of them see a commit under way.
        """

    def note(self, iteration: int) -> None:
        self.marks.append((iteration, *self._clock.read(), resident_kb() / 1024))

    async def look(self) -> None:
        while True:
            iteration = self._iteration()
            if iteration and iteration >= len(self.marks) * self._size // 10:
                self.note(iteration)
            await asyncio.sleep(LOOK_S)

    def _iteration(self) -> int:
        active = self._runtime.active_run(self._run_id)
        if active is None:
            return 0
        return max((loop.iteration for loop in active.state.plan.loops.values()), default=0)


def loom(size: int) -> Figures:
    async def main(url: str) -> Figures:
        import loom

        limits = {"max_iterations": size}
        async with loom.connect(url, prune=True) as runtime:
            runtime.register(loom.load(_flow_documents.until(size), limits=limits), name="long")
            await runtime.ready()
            handler = await runtime.start("long", {})
            watch = _Watch(runtime, handler.run_id, size)
            looking = asyncio.create_task(watch.look())
            result = await handler
            looking.cancel()
            watch.note(size)
            assert result.actions["loop"].outputs["count"] == size
        return _figures(watch.marks, _megabytes(url))

    with sqlite_url() as url:
        return asyncio.run(main(url))


def _figures(marks: list[tuple[int, float, float, float]], stored: float) -> Figures:
    tenth, half, before_last, last = (marks[min(n, len(marks) - 1)] for n in (1, 5, 9, len(marks)))
    first_us, last_us = _cpu_us(marks[0], tenth), _cpu_us(before_last, last)
    return {
        "us": last[1] / last[0] * 1e6,
        "cpu": last[2] / last[0] * 1e6,
        "ratio": last_us / first_us,
        "mb10": tenth[3],
        "mb50": half[3],
        "mb100": last[3],
        "stored": stored,
    }


def _cpu_us(begin: tuple[int, float, float, float], end: tuple[int, float, float, float]) -> float:
    """The processor's time for an iteration between two marks: the wall's hangs on the disk."""
    return (end[2] - begin[2]) / max(1, end[0] - begin[0]) * 1e6


def _megabytes(url: str) -> float:
    """The size of the database and its log."""
    file = Path(path_of(url))
    return sum(path.stat().st_size for path in file.parent.glob(file.name + "*")) / 1e6


CASE = Case(
    name="flow-long",
    title="a loop of a great many iterations on SQLite, pruned (--full: a million)",
    order=73,
    size=100_000,
    full_size=1_000_000,
    metrics=(
        Metric("us", "us/iteration"),
        Metric("cpu", "CPU us/iteration"),
        Metric("ratio", "x from the first tenth to the last"),
        Metric("mb10", "MB at 10 %"),
        Metric("mb50", "MB at 50 %"),
        Metric("mb100", "MB at 100 %"),
        Metric("stored", "MB stored"),
    ),
    peers={"loom": loom},
    targets=(
        Target("the last tenth takes at most 1.2x of the first", lambda medians: medians["loom"]["ratio"], at_most=1.2),
        Target(
            "from a tenth to the end at most 5 MB more memory",
            lambda medians: medians["loom"]["mb100"] - medians["loom"]["mb10"],
            at_most=5,
        ),
        absolute("at most 20 MB stored", "stored", at_most=20),
    ),
    warm_up=5_000,
    preparation_s=20,
)
