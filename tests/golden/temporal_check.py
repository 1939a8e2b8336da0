"""Replays the recorded histories of Temporal and compares them: `python tests/golden/temporal_check.py`."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import temporal_cases
import temporal_history
from temporal_history import KeepingRunner


async def problems(path: Path) -> list[str]:
    """What is not as it was recorded."""
    runner = KeepingRunner(temporal_cases.codes())
    found = []
    for number, execution in enumerate(temporal_history.read(path)):
        ended = await temporal_history.replayed(execution, runner)
        for name in ("row", "state", "stream"):
            if getattr(ended, name) != getattr(execution.ended, name):
                found.append(f"{path.name}: execution {number} gives another {name}")
    return found


async def _all_problems() -> list[str]:
    return [problem for path in temporal_history.files() for problem in await problems(path)]


if __name__ == "__main__":
    all_problems = asyncio.run(_all_problems())
    number = len(temporal_history.files())
    sys.stdout.write("\n".join([*all_problems, f"{number} cases", ""]))
    sys.stdout.flush()
    os._exit(bool(all_problems) or not number)  # a process that used temporalio may die of its threads at exit
