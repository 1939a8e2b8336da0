"""Clocks and scales for the cases."""

from __future__ import annotations

import asyncio
import gc
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


async def until_idle(ready: Callable[[], bool]) -> None:
    """Run the loop until `ready()` holds and nothing but this coroutine is scheduled."""
    loop = asyncio.get_running_loop()
    # The loop's own queue is the only exact answer to "has everyone come to rest?".
    while not ready() or loop._ready:  # type: ignore[attr-defined]  # noqa: ASYNC110
        await asyncio.sleep(0)
