"""How much memory the process uses, and whether that is more than it may: then it takes no more work.

The limit is a watermark, not a wall: what is under way goes on and may need more. Work is taken again below nine tenths
of the limit, so that a process near it does not open and close its door all the time. Memory that a process keeps while
it has no run counts as its own: to refuse work would not free it, and the process would stand still for ever.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
from time import monotonic
from typing import TYPE_CHECKING

from loom.effects.threads import aside
from loom.store.errors import MemoryExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger("loom.durable")

LOWER = 0.9
"""The share of the limit below which work is taken again."""
_FRESH_S = 0.1
_TIDY_EVERY_S = 10.0
_SETTLES_S = 30.0
"""For how long a process without a run may be over its limit. By then garbage was given back several times."""
_MIB = 1024 * 1024


def resident_bytes() -> int:
    """The memory of this process that is in RAM. Without `/proc`, the most that it ever was."""
    try:
        with open("/proc/self/statm", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows knows neither
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class MemoryLimit:
    """The memory of a process against its limit. All but `tidy` may be called from any thread."""

    def __init__(self, limit: int | None, read: Callable[[], int] = resident_bytes) -> None:
        self.limit = limit
        """In bytes; None: there is none, and nothing is ever over it."""
        self.is_over = False
        """Whether the last look found the process above its limit, and none since below the lower mark."""
        self.refused = 0
        """Starts that were refused."""
        self.times_over = 0
        self._read = read
        self._looked_at = self._tidied_at = float("-inf")
        self._own = 0
        """What the process kept when it had no run, if that was too much."""
        self._without_runs_since: float | None = None

    def used(self) -> int:
        """Bytes in use now."""
        return self._read()

    def look(self) -> bool:
        """See whether there is too little memory for more work. What was read within a tenth of a second counts."""
        now = monotonic()
        if self.limit is not None and now - self._looked_at >= _FRESH_S:
            self._looked_at = now
            used = self._read()
            if used <= self.limit * LOWER:
                self._own = 0
            is_over = used > (self._lower if self.is_over else max(self.limit, self._lower))
            self.times_over += is_over and not self.is_over
            self.is_over = is_over
        return self.is_over

    @property
    def _lower(self) -> float:
        """Below so many bytes work is taken again."""
        return max((self.limit or 0) * LOWER, self._own)

    def check(self) -> None:
        """Refuse to start a run for which there is no memory: `MemoryExceeded`."""
        if self.look():
            self.refused += 1
            raise MemoryExceeded(self.words)

    @property
    def words(self) -> str:
        """Why nothing is begun, in a sentence."""
        limit = self.limit or 0
        return (
            f"The process uses {self._read() / _MIB:,.0f} MiB of memory and may use {limit / _MIB:,.0f}: it begins no "
            f"run until it is below {self._lower / _MIB:,.0f} MiB."
        )

    async def tidy(self) -> None:
        """Give back what nobody uses, at most every ten seconds: cyclic garbage, and what the allocator keeps."""
        now = monotonic()
        if now - self._tidied_at >= _TIDY_EVERY_S:
            self._tidied_at = now
            await aside("replay", _give_back)
            self._looked_at = float("-inf")

    def settle(self, *, has_runs: bool) -> None:
        """Take what the process keeps for its own, once it has been over the limit without a run for a while."""
        now = monotonic()
        if has_runs or not self.is_over:
            self._without_runs_since = None
        elif self._without_runs_since is None:
            self._without_runs_since = now
        elif now - self._without_runs_since >= _SETTLES_S:
            self._without_runs_since = None
            # A little more, so that the next look does not find it over again.
            self._own = int(self._read() / LOWER)
            self._looked_at = float("-inf")
            _log.warning(
                "The process uses %s MiB of memory without a run, and may use %s. It goes on, since waiting would not "
                "free them: restart it when you can.",
                f"{self._read() / _MIB:,.0f}",
                f"{(self.limit or 0) / _MIB:,.0f}",
            )


def _give_back() -> None:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # only glibc has it
        trim(0)
