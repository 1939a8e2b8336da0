"""What a process counts and measures while it works on runs. It is written on the commit path, so it costs little.

Nothing here knows who reads it: `GET /metrics` does, and so may any program. May import the standard library.
"""

from __future__ import annotations

from bisect import bisect_left
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The upper bounds of buckets for what takes milliseconds, but may take seconds."""

LATENESS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0)
"""Those of timers: one that fell due while nobody worked may be late by hours."""

SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class Histogram:
    """How many values fell into each bucket, and what they add up to."""

    __slots__ = ("_bounds", "_counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        """The sum of all values."""

    def observe(self, value: float) -> None:
        """Count a value in the first bucket whose bound it does not exceed."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[float, int]]:
        """How many values were not above each bound, the last one being infinite."""
        so_far = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            so_far += count
            yield bound, so_far


class Figures:
    """The figures of one process. Counters only grow, also when the process loses its lease and joins again."""

    __slots__ = (
        "commands", "commands_undone", "commit_seconds", "commit_sizes", "given_up", "lease_losses", "parked",
        "released", "resume_seconds", "resumed", "stale_results", "store_failures", "ticks", "timer_lateness",
        "timers_armed", "timers_fired",
    )  # fmt: skip

    clock = staticmethod(perf_counter)
    """What lengths of time are measured with: an event loop's own time may be as coarse as a millisecond."""

    def __init__(self) -> None:
        self.ticks = 0
        """Ticks that were reduced and committed."""
        self.commands = 0
        """Commands that were flushed, and carried out once their batch was committed."""
        self.commands_undone = 0
        """Commands that were flushed and pushed back, because their batch could not be committed."""
        self.commit_seconds = Histogram(SECONDS)
        """How long each transaction took."""
        self.commit_sizes = Histogram(SIZES)
        """How many operations shared each transaction."""
        self.store_failures = 0
        """Transactions and looks at the store that failed."""
        self.stale_results = 0
        """Ticks that came too late to count, such as results of executions that nobody waits for any more."""
        self.timers_armed = 0
        """Timers that were set, those included that a run which came back has set again."""
        self.timers_fired = 0
        self.timer_lateness = Histogram(LATENESS)
        """How long after its time the first of the timers that woke a run was heard of, in seconds."""
        self.released = 0
        """Runs that left memory because nothing happened to them."""
        self.resumed = 0
        """Runs that were brought back into memory."""
        self.resume_seconds = Histogram(SECONDS)
        """How long that took, from the moment where something came for the run."""
        self.parked = 0
        """Runs that had to stop, because the code or the data at hand do not fit them."""
        self.given_up = 0
        """Runs that turned out to be another process' own."""
        self.lease_losses = 0
        """How often all runs were lost, because this process gave no sign of life for too long."""

    def written(self, operations: int, seconds: float) -> None:
        """A transaction with so many operations is durable."""
        self.commit_seconds.observe(seconds)
        self.commit_sizes.observe(operations)

    def failed(self, operations: int) -> None:
        """A transaction was not written, or nobody knows whether it was."""
        del operations
        self.store_failures += 1
