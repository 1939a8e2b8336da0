"""PostgreSQL is stopped hard again and again under load, and workers sleep past their leases. `make chaos` is long.

make chaos                                    ten minutes
make chaos ARGS="--minutes 2 --seed 7"        shorter, other chances
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(TESTS), str(TESTS / "kill")]

from fault_waiting import until
from fault_work import Caller
from kill_checks import Words
from kill_checks import _all_runs as all_runs
from kill_witness import words_of
from kill_workload import WORKFLOWS, Plan, Workload, _plan, witness
from postgres_server import OwnServer, own_server

import loom
from loom.runtime.connect import open_store
from loom.store.postgres import driver

WORKER = Path(__file__).with_name("chaos_worker.py")
LEASE_S = 2.0
PREFIX = "c-"
OPTIONS = {"name": "worker", "lease": LEASE_S, "poll_interval": 0.2, "idle_timeout": 0.05}
"""Both workers have the same name, as copies of one program in containers may."""
_ALIVE = "SELECT count(*) FROM members WHERE lease_until > clock_timestamp()"


@dataclass
class Report:
    """What was done, and what is wrong with what is left."""

    runs: int = 0
    outages: int = 0
    in_recovery: int = 0
    pauses: int = 0
    lost_leases: int = 0
    kills: int = 0
    refusals: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.runs} runs, {self.outages} hard stops of the server ({self.in_recovery} of them in its recovery), "
            f"{self.pauses} workers paused past their lease, {self.lost_leases} leases lost, {self.kills} workers "
            f"killed, {self.refusals} calls refused, {len(self.problems)} problems, {self.seconds:.0f} s"
        )


class Chaos:
    """One server, two workers, a caller that always has `at_once` runs under way, and trouble until `enough`."""

    def __init__(
        self, server: OwnServer, folder: Path, seed: int, at_once: int, enough: Callable[[Report], bool]
    ) -> None:
        self._server = server
        self._side = folder / "witness"
        self._log = folder / "log"
        self._chance = random.Random(seed)
        self._at_once = at_once
        self._enough = enough
        self._workers: list[subprocess.Popen[bytes]] = []
        self._plans: list[Plan] = []
        self.report = Report()

    async def run(self) -> Report:
        """All of it."""
        began = time.monotonic()
        witness.open(self._side)
        self._workers = [self._worker() for _ in range(2)]
        caller = Caller(Workload(PREFIX, (), {}, False, 8), pause_s=0.1)
        try:
            async with loom.connect(self._server.url, poll_interval=0.5) as client:
                trouble = asyncio.create_task(self._trouble())
                async with asyncio.TaskGroup() as group:
                    for _ in range(self._at_once):
                        group.create_task(self._keep_busy(client, caller, trouble))
                await trouble
                await self._see_both_workers()
        except* TimeoutError as error:
            missing = sorted({plan.run_id for plan in self._plans} - set(caller.results))
            self.report.problems.append(f"stranded ({error.exceptions[0]}): {missing}")
        finally:
            self._stop_workers()
            witness.close()
        self.report.runs = len(self._plans)
        self.report.refusals = len(caller.refusals)
        self.report.problems += await _problems_of(self._plans, self._server.url, self._side)
        log = self._log.read_text()
        self.report.lost_leases = log.count("The lease of ")
        self.report.problems += _unexpected(log)
        self.report.seconds = time.monotonic() - began
        return self.report

    def _worker(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            command = [sys.executable, str(WORKER), self._server.url, PREFIX, str(self._side), json.dumps(OPTIONS)]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _stop_workers(self) -> None:
        for worker in self._workers:
            worker.send_signal(signal.SIGCONT)
            worker.terminate()
        for worker in self._workers:
            try:
                worker.wait(20)
            except subprocess.TimeoutExpired:
                self.report.problems.append("a worker did not stop when it was told to")
                worker.kill()
                worker.wait()

    async def _keep_busy(self, client: object, caller: Caller, trouble: asyncio.Task[None]) -> None:
        """One run after the other, while there is trouble. After that each has a minute to end."""
        while not trouble.done():
            plan = self._new_plan()
            seeing = asyncio.create_task(caller.see_to(client, plan, reads=len(self._plans) % 5 == 0))
            await asyncio.wait([seeing, trouble], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait_for(seeing, None if not trouble.done() else 90)

    async def _see_both_workers(self) -> None:
        """Whatever has happened to them, both are members again."""
        connection = await driver.connect(self._server.url, {"search_path": "loom"})
        try:
            await until(lambda: self._are_all_alive(connection), 30.0)
        except TimeoutError:
            self.report.problems.append("a worker does not work any more")
        finally:
            await connection.close()

    async def _are_all_alive(self, connection: driver.Connection) -> bool:
        return bool(await connection.fetchval(_ALIVE) == len(self._workers))

    def _new_plan(self) -> Plan:
        number = len(self._plans)
        kind = list(WORKFLOWS)[number % len(WORKFLOWS)]
        plan = _plan(PREFIX, f"{PREFIX}{number}-{kind}", kind, self._chance)
        self._plans.append(plan)
        return plan

    async def _trouble(self) -> None:
        """Until there was enough of it. At its end the server runs and both workers do."""
        chance, report = self._chance, self.report
        await asyncio.sleep(1.0)
        while not self._enough(report):
            await asyncio.sleep(chance.uniform(0.3, 2.5))
            what = chance.choices(["stop", "pause", "kill"], [6, 2, 1])[0]
            if report.outages > 2 and not report.pauses:
                what = "pause"
            if what == "stop":
                await self._stop_server()
            elif what == "pause":
                await self._pause_worker()
            else:
                self._kill_worker()

    async def _stop_server(self) -> None:
        self.report.outages += 1
        await asyncio.to_thread(self._server.stop_hard)
        await asyncio.sleep(self._chance.uniform(0.0, 1.0))
        if self._chance.random() < 0.4:
            self.report.outages += 1
            self.report.in_recovery += 1
            await asyncio.to_thread(self._server.start_and_stop_hard, self._chance.uniform(0.0, 0.2))
        await asyncio.to_thread(self._server.start)

    async def _pause_worker(self) -> None:
        """It sleeps past its lease, wakes, and must not write what others have taken over."""
        worker = self._chance.choice(self._workers)
        self.report.pauses += 1
        worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(1.5 * LEASE_S)
        if self._chance.random() < 0.3:
            await self._stop_server()
        worker.send_signal(signal.SIGCONT)

    def _kill_worker(self) -> None:
        self.report.kills += 1
        worker = self._chance.choice(self._workers)
        worker.kill()
        worker.wait()
        self._workers.remove(worker)
        self._workers.append(self._worker())


async def _problems_of(plans: list[Plan], url: str, side: Path) -> list[str]:
    """The checks of the kill sweep, run by run, each with what was witnessed of it: there may be thousands."""
    words: dict[str, Words] = defaultdict(lambda: defaultdict(list))
    for what, entries in words_of(side).items():
        for entry in entries:
            run_id = entry["run"] if "run" in entry else entry["key"]
            words[run_id.partition(":")[0]][what].append(entry)
    store = open_store(url)
    await store.open()
    try:
        works = [Workload(PREFIX, (plan,), {}, False, 8) for plan in plans]
        return [problem for work in works async for problem in all_runs(store, work, words[work.plans[0].run_id])]
    finally:
        await store.close()


def _unexpected(log: str) -> list[str]:
    """What a worker has said that no outage explains."""
    signs = ("by an error of the engine", "is parked", "never retrieved")
    return [f"a worker said: {line}" for line in log.splitlines() if any(sign in line for sign in signs)]


def chaos(seed: int, at_once: int, enough: Callable[[Report], bool]) -> Report:
    """With a server and files of its own."""
    with own_server() as server, tempfile.TemporaryDirectory(prefix="loom-chaos-") as folder:
        report = asyncio.run(Chaos(server, Path(folder), seed, at_once, enough).run())
        if report.problems:
            report.problems.append((Path(folder) / "log").read_text()[-20_000:])
        return report


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Stop PostgreSQL hard under load, again and again; look at the rest.")
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long (default: 10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=60, help="how many runs are under way (default: 60)")
    arguments = parser.parse_args()
    logging.getLogger("loom").setLevel(logging.CRITICAL)
    until = time.monotonic() + 60 * arguments.minutes
    report = chaos(arguments.seed, arguments.at_once, lambda _: time.monotonic() > until)
    sys.stdout.write("".join(f"{problem}\n" for problem in report.problems) + f"{report}\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
