"""Clocks and scales for the cases."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def _status_kb(field: str) -> float:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return float(line.split()[1])
    raise RuntimeError(f"{_STATUS} has no {field}: memory is measured on Linux only")


def resident_kb() -> float:
    """Return the memory in use now, after a garbage collection."""
    gc.collect()
    return _status_kb("VmRSS")


def reset_peak() -> float:
    """Forget the peak so far (imports reach one that hides what follows); return the memory in use."""
    now = resident_kb()
    _CLEAR.write_text("5")
    return now


def peak_kb() -> float:
    """Return the peak since `reset_peak`."""
    return _status_kb("VmHWM")


class Stopwatch:
    """Runs from the beginning: the time on the wall, and that of the processor, which a busy machine spoils less."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Return the seconds so far: on the wall, and of all threads of this process."""
        return time.perf_counter() - self._wall, time.process_time() - self._cpu


async def until_idle(ready: Callable[[], bool]) -> None:
    """Run the loop until `ready()` holds and nothing but this coroutine is scheduled."""
    loop = asyncio.get_running_loop()
    # The loop's own queue is the only exact answer to "has everyone come to rest?".
    while not ready() or loop._ready:  # type: ignore[attr-defined]  # noqa: ASYNC110
        await asyncio.sleep(0)
