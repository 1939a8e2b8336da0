"""Runs kill points, one after the other, each in processes of their own: `python kill_runner.py URL`.

It has imported everything once and forks: so a process costs milliseconds. A line on its standard input is a point, a
line on its standard output what came of it. It has no threads and no event loop of its own.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

from kill_checks import check
from kill_engine import engine, sender
from kill_switch import Kill
from kill_workload import workload

FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Files in memory survive a killed process as those on a disk do, and are ready sooner."""
LIMIT_S = 60.0
"""A process that has not ended by then hangs: the work takes a fraction of a second."""


class Point(NamedTuple):
    """A workload by its seed, and when its processes are killed, one after the other."""

    seed: int
    kills: tuple[Kill, ...]

    def __str__(self) -> str:
        return f"{self.seed}/" + ",".join(map(str, self.kills))

    @classmethod
    def parse(cls, text: str) -> Point:
        """The other way round."""
        seed, _, kills = text.partition("/")
        return cls(int(seed), tuple(Kill.parse(kill) for kill in kills.split(",") if kill))


class _Process:
    """A fork that does one thing and ends."""

    def __init__(self, main: Callable[[], Coroutine[Any, Any, object]], log: Path) -> None:
        self._reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os._exit(_main(main, log))
        os.close(writing)

    def wait(self, seconds: float) -> bool:
        """Whether it ends by then: its end of the pipe is closed with it."""
        return bool(select.select([self._reading], [], [], seconds)[0])

    def status(self, *, kill: bool = False) -> int:
        """How it ended: 0, or the signal as a negative number, or its exit code. May end it by force."""
        if kill:
            os.kill(self.pid, signal.SIGKILL)
        os.close(self._reading)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _main(main: Callable[[], Coroutine[Any, Any, object]], log: Path) -> int:
    """The life of a fork. What it has to say goes to its log."""
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        faulthandler.enable()
        try:
            asyncio.run(asyncio.wait_for(main(), LIMIT_S - 2))
        except BaseException:  # noqa: BLE001 - the parent reads the log
            traceback.print_exc()
            return 1
    return 0


class Outcome(NamedTuple):
    """What came of a point."""

    point: str
    kills: int
    """How many processes were really killed; the others had ended before."""
    problems: list[str]
    seconds: float


def run_point(url: str, point: Point, name: str) -> Outcome:
    """Kill, let others go on, and look at what is left."""
    began = time.perf_counter()
    folder = Path(tempfile.mkdtemp(prefix="loom-kill-", dir=FAST))
    work = workload(point.seed, f"{name}-")
    target = url or f"sqlite:///{folder}/runs.db"
    side, log = folder / "witness", folder / "log"
    problems: list[str] = []
    beside = _Process(lambda: sender(target, side, work), log) if work.beside else None
    kills = 0
    for kill in (*point.kills, None):
        process = _Process(lambda kill=kill: engine(target, side, work, kill), log)  # type: ignore[misc]
        status = _end_of(process, kill)
        if status == 0:
            break
        if status != -signal.SIGKILL or kill is None:
            problems.append(f"a process (to be killed at {kill}) ended with {status}")
            break
        kills += 1
    if beside is not None and (status := beside.status(kill=not beside.wait(0 if problems else LIMIT_S))) != 0:
        problems.append(f"the process beside ended with {status}")
    problems += _checked(target, side, folder, work)
    if problems and log.exists():
        problems.append(log.read_text()[-6000:])
    shutil.rmtree(folder)
    return Outcome(str(point), kills, problems, time.perf_counter() - began)


def _end_of(process: _Process, kill: Kill | None) -> int:
    if kill is not None and kill.place == "time":
        return process.status(kill=not process.wait(kill.number))
    if process.wait(LIMIT_S):
        return process.status()
    process.status(kill=True)
    return 124


def _checked(url: str, side: Path, folder: Path, work: Any) -> list[str]:
    """The checker, in a process of its own too."""
    answer, log = folder / "problems", folder / "log"

    async def main() -> None:
        answer.write_text(json.dumps(await check(url, side, work)))

    process = _Process(main, log)
    status = process.status(kill=not process.wait(LIMIT_S))
    return json.loads(answer.read_text()) if status == 0 else [f"the checker ended with {status}"]


def main(url: str) -> None:
    """Answer points until there are no more."""
    if url:
        import loom.store.postgres  # noqa: F401 - once, before the forks

    gc.freeze()  # so that no fork copies what all of them share
    for number, line in enumerate(sys.stdin):
        outcome = run_point(url, Point.parse(line.strip()), f"p{os.getpid()}-{number}")
        sys.stdout.write(json.dumps(outcome._asdict()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
