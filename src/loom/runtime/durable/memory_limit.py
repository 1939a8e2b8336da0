"""How much memory the process uses, and whether that is more than it may: then it takes no more work.

The limit is a watermark, not a wall: what is under way goes on and may need more. Work is taken again below nine tenths
of the limit, so that a process near it does not open and close its door all the time. A process that cannot get there,
because its memory is in fragments, takes one run at a time after a while: else it would stand still for ever.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from time import monotonic
from typing import TYPE_CHECKING

from loom.effects.off_loop import aside
from loom.store.errors import MemoryExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Container

LOWER = 0.9
"""The share of the limit below which work is taken again."""
_FRESH_S = 0.1
_TIDY_EVERY_S = 10.0
_STANDS_STILL_S = 30.0
"""After how long above the limit runs are let in one by one. By then garbage was given back several times."""
_ARENAS = 2
"""Heaps of the C library, which else makes up to eight for each core and fills none of them."""
_M_ARENA_MAX = -8
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
        self._over_since = float("inf")
        self._alone: str | None = None
        """The run that was let in last above the limit, while it is in memory."""
        if limit is not None:
            _use_few_heaps()

    def used(self) -> int:
        """Bytes in use now."""
        return self._read()

    def look(self) -> bool:
        """See whether there is too little memory for more work. What was read within a tenth of a second counts."""
        now = monotonic()
        if self.limit is not None and now - self._looked_at >= _FRESH_S:
            self._looked_at = now
            mark = self.limit * LOWER if self.is_over else self.limit
            is_over = self._read() > mark
            if is_over and not self.is_over:
                self.times_over += 1
                self._over_since = now
            self.is_over = is_over
        return self.is_over

    @property
    def has_room(self) -> bool:
        """Whether a run may be begun or come into memory, as far as the last look tells."""
        if not self.is_over:
            return True
        return self._alone is None and monotonic() - self._over_since >= _STANDS_STILL_S

    def let_in(self, run_id: str) -> None:
        """Note that a run has come into memory. Above the limit no other one comes before it has left."""
        if self.is_over:
            self._alone = run_id

    def see(self, in_memory: Container[str]) -> None:
        """Note which runs are in memory now."""
        if self._alone is not None and self._alone not in in_memory:
            self._alone = None

    def check(self) -> None:
        """Refuse to start a run for which there is no memory: `MemoryExceeded`."""
        if self.look() and not self.has_room:
            self.refused += 1
            raise MemoryExceeded(self.words)

    @property
    def words(self) -> str:
        """Why nothing is begun, in a sentence."""
        limit = self.limit or 0
        return (
            f"The process uses {self._read() / _MIB:,.0f} MiB of memory and may use {limit / _MIB:,.0f}: it begins no "
            f"run until it is below {limit * LOWER / _MIB:,.0f} MiB."
        )

    async def tidy(self) -> None:
        """Give back what nobody uses, at most every ten seconds: cyclic garbage, and what the allocator keeps."""
        now = monotonic()
        if now - self._tidied_at >= _TIDY_EVERY_S:
            self._tidied_at = now
            await aside("replay", _give_back)
            self._looked_at = float("-inf")


def _use_few_heaps() -> None:
    """Have the threads share heaps, so that the memory that one of them frees is of use to the others."""
    option = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if option is not None:
        option(_M_ARENA_MAX, _ARENAS)


def _give_back() -> None:
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # only glibc has it
        trim(0)
