"""A program in a child process with limits, for tests of what takes a process down. Used by tests/hostile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

_LIMITS = """import resource
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_CPU, ({cpu}, {cpu} + 1))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
"""


class Confined(NamedTuple):
    """How a confined program ended, and what it took."""

    code: int
    """Its exit code; negative if a signal ended it."""
    out: str
    err: str
    cpu_s: float
    peak_mib: float
    """At least what it took: the kernel begins to count with what the test process had."""

    def check(self) -> str:
        """Give what it printed, or fail with what it said instead."""
        assert self.code == 0, f"exit code {self.code}\n{self.out}\n{self.err[-4000:]}"
        return self.out


def confined(program: str, *arguments: str, cwd: Path, memory_mib: int = 1024, cpu_s: int = 60) -> Confined:
    """Run the text of a program with bounded memory (address space) and CPU time; past them it is ended.

    The bound on CPU time also ends a program that spins. One that only waits is ended after three times as long.
    """
    out, err = cwd / "confined.out", cwd / "confined.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        child = subprocess.Popen(
            [sys.executable, "-c", _LIMITS.format(memory=memory_mib << 20, cpu=cpu_s) + program, *arguments],
            cwd=cwd,
            stdout=stdout,
            stderr=stderr,
        )
        watch = threading.Timer(3.0 * cpu_s, child.kill)
        watch.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
        finally:
            watch.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    return Confined(
        child.returncode,
        out.read_text(errors="replace"),
        err.read_text(errors="replace"),
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
    )
