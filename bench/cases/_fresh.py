"""The CPU time of fresh processes, with all bytecode compiled before."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TRIES = 3

_ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
"""Some machines tell Python to keep no bytecode. Then every process would compile Loom anew."""


PREPARATION_S = 90.0
"""Seconds more for a sample: on a busy machine, starting eight processes takes long."""


def once(*arguments: str, place: Path) -> None:
    """Run Python with these arguments, unmeasured."""
    _once(arguments, place)


def cpu_ms(*arguments: str, place: Path | None = None) -> float:
    """Measure Python with these arguments, in CPU milliseconds; what a bare interpreter needs is included.

    It is the least of a few tries: the machine makes them longer, never shorter.
    """
    _once(arguments, place)  # the first try may have to compile the modules
    return min(_once(arguments, place) for _ in range(TRIES)) * 1e3


def _once(arguments: Sequence[str], place: Path | None) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=place, env=_ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
