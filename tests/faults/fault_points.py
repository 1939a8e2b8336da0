"""One fault under a workload: what fails, when it is over, and what must hold then. `make faults` is the long form.

make faults                                   1,000 faults
make faults ARGS="--points 100 --seed 7"      others, fewer of them
make faults ARGS="--repeat 17/sync:wal:4"     one again, as a failure names it
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "kill"))

from fault_disk import Disk, Fault
from fault_waiting import until
from fault_work import Caller, register_all
from kill_checks import check
from kill_workload import witness, workload

import loom
from loom.runtime.durable import adapter
from loom.store.errors import StoreUnavailable
from loom.store.sqlite import SqliteStore

LIMIT_S = 60.0
_OUTAGE_S = 0.1
_OPTIONS = {"poll_interval": 0.05}

PLACES = (
    ("write", "wal"),
    ("sync", "wal"),
    ("short", "wal"),
    ("full", "wal"),
    ("read", "wal"),
    ("read", "db"),
    ("write", "db"),
    ("sync", "db"),
    ("full", "db"),
    ("truncate", "db"),
)


class Point(NamedTuple):
    """A workload by its seed, and what fails under it."""

    seed: int
    fault: Fault
    ending: str = "heals"
    """`heals`: the same process goes on; `restarts`: another one does; `power`: and only what was synced is left."""

    def __str__(self) -> str:
        return f"{self.seed}/{self.fault}/{self.ending}"

    @classmethod
    def parse(cls, text: str) -> Point:
        """The other way round."""
        seed, fault, *ending = text.split("/")
        return cls(int(seed), Fault.parse(fault), *ending)


class Outcome(NamedTuple):
    """What came of a point."""

    struck: int
    refusals: int
    problems: list[str]


async def run_point(point: Point, folder: Path, side: Path) -> Outcome:
    """The workload under the fault; what is wrong with what is left."""
    work = workload(point.seed, f"p{point.seed}-")
    adapter.SNAPSHOT_TICKS = work.snapshot_ticks
    disk = Disk(remembers=point.ending == "power", checkpoint_pages=8)
    caller = Caller(work)
    path = folder / "runs.db"
    try:
        async with asyncio.timeout(LIMIT_S):
            if point.ending == "heals":
                await _until_healed(path, disk, caller, point.fault)
            else:
                path = await _until_struck(path, disk, caller, point)
                await _afterwards(path, caller)
    except TimeoutError:
        ended = sorted(caller.results)
        return Outcome(disk.struck, len(caller.refusals), [f"only these runs have ended: {ended}"])
    problems = await check(f"sqlite:///{path}", side, work)
    problems += [f"an unclear refusal: {error}" for error in caller.refusals if not _is_clear(error, folder)]
    return Outcome(disk.struck, len(caller.refusals), problems)


async def _until_healed(path: Path, disk: Disk, caller: Caller, fault: Fault) -> None:
    """The fault comes and goes under one process."""
    store = SqliteStore(path, connect=disk.connect)
    async with loom.connect(store, **_OPTIONS, **caller.work.options) as runtime:
        register_all(runtime, caller.work)
        await runtime.ready()
        disk.fail(fault)
        healing = asyncio.create_task(_heal(disk))
        try:
            await caller.see_to_all(runtime)
        finally:
            healing.cancel()
            disk.fault = None


async def _heal(disk: Disk) -> None:
    await until(lambda: disk.struck, LIMIT_S)
    await asyncio.sleep(_OUTAGE_S)
    disk.fault = None


async def _until_struck(path: Path, disk: Disk, caller: Caller, point: Point) -> Path:
    """The process ends a little after the fault, while it still lasts. The place where the file is that is left."""
    store = SqliteStore(path, connect=disk.connect)
    left = path
    async with loom.connect(store, **_OPTIONS, **caller.work.options) as runtime:
        register_all(runtime, caller.work)
        await runtime.ready()
        disk.fail(point.fault)
        seeing = asyncio.create_task(caller.see_to_all(runtime))
        await until(lambda: disk.struck or seeing.done(), LIMIT_S)
        await asyncio.sleep(random.Random(str(point)).uniform(0.0, _OUTAGE_S))
        if point.ending == "power":
            left = path.with_name("left.db")
            disk.cut_power(path, left, random.Random(point.seed) if point.seed % 2 else None)
            # What is told from now on is told by nobody: the process is dead.
            witness.close()
        seeing.cancel()
        await asyncio.gather(seeing, return_exceptions=True)
    return left


async def _afterwards(path: Path, caller: Caller) -> None:
    """Another process, on a sound disk."""
    witness.open(path.with_name("witness"))
    async with loom.connect(SqliteStore(path), **_OPTIONS, **caller.work.options) as runtime:
        register_all(runtime, caller.work)
        await caller.see_to_all(runtime)


def _is_clear(error: StoreUnavailable, folder: Path) -> bool:
    """It says where, what, and what came of it."""
    text = str(error)
    causes = ("the disk failed (", "the disk is full (")
    outcomes = ("Nothing was written.", "Whether it was written is not known.")
    return str(folder) in text and any(cause in text for cause in causes) and text.endswith(outcomes)


def random_point(seed: int) -> Point:
    """Any fault, early or late, once or for a while, with any end."""
    chance = random.Random(seed)
    kind, place = chance.choice(PLACES)
    most = {"write": 400, "short": 400, "full": 400, "read": 60, "sync": 90, "truncate": 12}[kind]
    fault = Fault(kind, place, 1 + int(most * chance.random() ** 2), chance.random() < 0.5)
    return Point(seed, fault, chance.choice(["heals", "heals", "restarts", "power", "power"]))


def try_point(point: Point) -> Outcome:
    """A point with files and a witness of its own."""
    base = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="loom-fault-", dir=base) as folder:
        side = Path(folder) / "witness"
        witness.open(side)
        try:
            return asyncio.run(run_point(point, Path(folder), side))
        finally:
            witness.close()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Let the disk fail under a workload, and look at what is left.")
    parser.add_argument("--points", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="where they begin (default: 0)")
    parser.add_argument("--repeat", metavar="POINT", help="one of them")
    arguments = parser.parse_args()
    seeds = range(arguments.seed + 1, arguments.seed + 1 + arguments.points)
    points = [Point.parse(arguments.repeat)] if arguments.repeat else [random_point(seed) for seed in seeds]
    began, struck, refused, failed = time.monotonic(), 0, 0, 0
    for number, point in enumerate(points, 1):
        outcome = try_point(point)
        struck += outcome.struck > 0
        refused += outcome.refusals
        if outcome.problems:
            failed += 1
            sys.stdout.write(f"fault {point}\n  " + "\n  ".join(outcome.problems) + "\n")
        if number % 50 == 0:
            sys.stdout.write(f"{number} faults, {struck} of them struck, {failed} failures\n")
            sys.stdout.flush()
    seconds = time.monotonic() - began
    sys.stdout.write(
        f"{len(points)} faults, {struck} of them struck, {refused} calls refused, {failed} failures, {seconds:.0f} s\n"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
