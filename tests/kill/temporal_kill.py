"""Kills the workers of a Temporal cluster, and its server, again and again, and checks what was promised to clients.

`python temporal_kill.py --seconds 300` is the long form. Each client starts runs, sends them events and reads their
streams; it repeats a call until it is acknowledged, and never after that. In the end every run that was acknowledged
has ended with the right result, has taken every event once, and all its histories replay.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kill_witness import words_of
from kill_workload import Letter, Mark, Plan, Vote
from temporal_kill_checks import check_run
from temporal_kill_work import KINDS, VOTES
from temporal_server import OwnServer, own_server

import loom
from loom.store.deaths import POISON
from loom.store.errors import StoreUnavailable

T = TypeVar("T")

CONTINUE_AT = 60
"""A history of so many events goes on in a new execution."""
PATIENCE_S = 90.0
"""A run that has not ended so long after the last kill is stuck: the slowest takes a few seconds."""
SERVER_KILLS = 0.1
"""Which part of the kills the server has."""
_AGAIN_S = 0.05
_LOOK_S = 2.0


@dataclass
class Report:
    """What came of it."""

    worker_kills: int = 0
    server_kills: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    events: int = 0
    resumed: int = 0
    """Runs that were taken for poison, because processes died again and again while a step of theirs was suspected."""
    repeated: int = 0
    """Calls that had to be made again, because the server was not there or no worker answered."""
    once: int = 0
    made: int = 0
    """How many results `ctx.once` gave, and how often one was worked out: a kill may come before it is kept."""
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        runs = ", ".join(f"{number} {kind}" for kind, number in sorted(self.runs.items()))
        return (
            f"{self.worker_kills} workers and {self.server_kills} servers killed; {sum(self.runs.values())} runs "
            f"({runs}), {self.events} events, {self.repeated} calls repeated, {self.resumed} runs resumed; "
            f"{self.once} results of once, worked out {self.made} times; {len(self.failures)} failures"
        )


class WorkerProcess:
    """A worker that is killed and started again."""

    def __init__(self, url: str, side: Path, log: Path) -> None:
        self._command = (sys.executable, str(Path(__file__).with_name("temporal_kill_work.py")), url, str(side))
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it; nobody waits until it works."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*self._command, stdout=log, stderr=log)

    async def kill(self) -> None:
        """It is gone at once."""
        assert self._process is not None
        if self._process.returncode is not None:
            raise AssertionError(f"A worker has ended by itself ({self._process.returncode}): see {self._log}")
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> int:
        """End it in order; its exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.terminate()
        try:
            async with asyncio.timeout(60):
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()


class Client:
    """Starts runs and sees each to its end, until it is told to stop."""

    def __init__(self, runtime: Any, name: str, chance: random.Random, report: Report) -> None:
        self._runtime = runtime
        self._name = name
        self._chance = chance
        self._report = report
        self.words: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.plans: list[Plan] = []
        """The runs that were acknowledged."""
        self.current: Plan | None = None
        self.is_at_work = True

    async def work(self, first: str, kinds: Sequence[str], enough: asyncio.Event) -> None:
        """Make runs of these kinds, one after the other."""
        kind, number = first, 0
        while not enough.is_set():
            number += 1
            self.current = plan = _plan(kind, f"{self._name}-{number}-{kind}")
            await self._see_to(plan)
            kind = self._chance.choice(kinds)
        self.current = None
        self.is_at_work = False

    async def _see_to(self, plan: Plan) -> None:
        runtime = self._runtime
        handler = await self._until(lambda: runtime.start(plan.workflow, plan.inputs, run_id=plan.run_id))
        self.plans.append(plan)
        self._report.runs[plan.kind] += 1
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(handler))
            senders = 1 if plan.kind == "letters" else 3
            for part in range(senders):
                group.create_task(self._send(plan, plan.events[part::senders]))
        result = await self._until(lambda: _result(runtime, plan.run_id))
        self.words["result"].append({"run": plan.run_id, "result": result})

    async def _send(self, plan: Plan, events: tuple[Letter | Vote, ...]) -> None:
        for event in events:
            await asyncio.sleep(self._chance.uniform(0, 0.3))
            await self._until(lambda e=event: self._runtime.send_event(plan.run_id, e, event_id=e.token))
            self._report.events += 1

    async def _read(self, handler: Any) -> None:
        """The stream, by one reading that is taken up again where it was broken off."""
        seen = 0
        while True:
            try:
                async for event in handler.stream_events():
                    if isinstance(event, Mark):
                        self.words["seen"].append({"run": handler.run_id, "number": seen, "text": event.text})
                        seen += 1
            except StoreUnavailable:
                self._report.repeated += 1
                await asyncio.sleep(_AGAIN_S)
            else:
                return

    async def _until(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                self._report.repeated += 1
                await asyncio.sleep(_AGAIN_S)


async def _result(runtime: Any, run_id: str) -> Any:
    result = await (await runtime.handler(run_id))._result()  # not by `__await__`, which hides what it waits for
    return result.variables["n"] if isinstance(result, loom.FlowResult) else result


def _plan(kind: str, run_id: str) -> Plan:
    inputs = {"chain": "chain", "sleeps": "sleeps"} if kind == "parent" else {}
    events: list[Letter | Vote] = []
    if kind == "letters":
        events = [Letter(to=to, token=f"{run_id}/{to}{number}") for number in range(2) for to in ("red", "blue")]
    elif kind in ("votes", "tally"):
        events = [Vote(token=f"{run_id}/{number}") for number in range(3 if kind == "votes" else VOTES)]
    return Plan(run_id, kind, kind, inputs, tuple(events))


class Sweep:
    """One cluster, its workers and its clients."""

    pause_s = 4.0
    """How long there is between two kills, at most."""

    def __init__(self, server: OwnServer, folder: Path, chance: random.Random, sizes: tuple[int, int]) -> None:
        self._server = server
        self._chance = chance
        self._side = folder / "witness"
        self._url = server.fresh_url()
        self.report = Report()
        workers, self._clients = sizes
        self._workers = [WorkerProcess(self._url, self._side, folder / f"worker{n}.log") for n in range(workers)]

    async def run(self, kills: Iterable[str], kinds: Sequence[str]) -> None:
        """Kill, while clients make runs of these kinds; then look at what is left."""
        await asyncio.gather(*(worker.start() for worker in self._workers))
        try:
            async with loom.connect(self._url) as runtime:
                seeds = [random.Random(self._chance.random()) for _ in range(self._clients)]
                clients = [Client(runtime, f"c{n}", chance, self.report) for n, chance in enumerate(seeds)]
                await self._serve(runtime, clients, kills, kinds)
                for client in clients:
                    await self._check(runtime, client)
        finally:
            codes = await asyncio.gather(*(worker.stop() for worker in self._workers))
        self.report.failures += [f"A worker has ended with {code}." for code in codes if code != 0]

    async def _serve(self, runtime: Any, clients: list[Client], kills: Iterable[str], kinds: Sequence[str]) -> None:
        """Kill while clients are at work, and let them come to an end."""
        enough = asyncio.Event()
        working = {
            asyncio.create_task(client.work(kinds[n % len(kinds)], kinds, enough)): client
            for n, client in enumerate(clients)
        }
        operating = asyncio.create_task(self._operate(runtime, clients))
        try:
            await self._kill({*working, operating}, kills)
            enough.set()
            done, stuck = await asyncio.wait(working, timeout=PATIENCE_S)
            for task in done:
                task.result()
            if operating.done():
                operating.result()
            self.report.failures += [f"It is stuck: {await _where(runtime, working[task])}" for task in stuck]
            if stuck:
                self.report.failures += sorted(f"  waits at {_awaited(task)}" for task in asyncio.all_tasks())
        finally:
            for task in (*working, operating):
                task.cancel()
            await asyncio.gather(*working, operating, return_exceptions=True)

    async def _operate(self, runtime: Any, clients: list[Client]) -> None:
        """Be the operator, who knows what kills the processes: resume runs that were taken for poison."""
        while any(client.is_at_work for client in clients):
            await asyncio.sleep(_LOOK_S)
            for plan in [client.current for client in clients if client.current is not None]:
                with suppress(StoreUnavailable, loom.RunNotFound, loom.RunFinished):
                    parked = (await runtime.get(plan.run_id)).parked
                    if parked is not None and parked.startswith(POISON):
                        await runtime.resume(plan.run_id)
                        self.report.resumed += 1

    async def _kill(self, working: set[asyncio.Task[None]], kills: Iterable[str]) -> None:
        for kill in kills:
            done, _ = await asyncio.wait(
                working, timeout=self._chance.uniform(0.3, self.pause_s), return_when="FIRST_EXCEPTION"
            )
            for task in done:
                task.result()
            if kill == "server":
                self._server.stop_hard()
                await asyncio.sleep(self._chance.uniform(0, 1))
                await asyncio.to_thread(self._server.start)
                self.report.server_kills += 1
            else:
                worker = self._chance.choice(self._workers)
                await worker.kill()
                self.report.worker_kills += 1
                await worker.start()

    async def _check(self, runtime: Any, client: Client) -> None:
        words = words_of(self._side)
        words.update(client.words)
        self.report.made = len(words["once"])
        self.report.once = len({once["key"] for once in words["once"]})
        for plan in client.plans:
            if plan is client.current:
                continue
            try:
                async with asyncio.timeout(PATIENCE_S):
                    problems = [problem async for problem in check_run(runtime, plan, words)]
            except Exception as error:  # noqa: BLE001 - one run that cannot be looked at is one failure
                problems = [f"{plan.run_id} cannot be looked at: {error!r}"]
            self.report.failures += problems


async def _where(runtime: Any, client: Client) -> str:
    assert client.current is not None
    described = await runtime.client.get_workflow_handle(client.current.run_id).describe()
    pending = described.raw_description.pending_activities
    steps = [f"{each.activity_type.name} {each.activity_id} (attempt {each.attempt})" for each in pending]
    status = described.status.name if described.status is not None else "unknown"
    if described.close_time is not None:
        status += f" {time.time() - described.close_time.timestamp():.0f} s ago"
    task = described.raw_description.pending_workflow_task
    attempts = f", whose task is tried for the {task.attempt}. time" if task.attempt else ""
    return f"{client.current.run_id} ({status}), whose pending steps are {', '.join(steps) or 'none'}{attempts}"


def _awaited(task: asyncio.Task[Any]) -> str:
    """Name the calls that a task is in, the innermost last."""
    calls, waits = [], cast("Any", task.get_coro())
    while waits is not None:
        frame, inner = None, None
        for kind, awaited in (("cr", "cr_await"), ("ag", "ag_await"), ("gi", "gi_yieldfrom")):
            frame = frame or getattr(waits, f"{kind}_frame", None)
            inner = inner or getattr(waits, awaited, None)
        if frame is not None:
            calls.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}")
        waits = inner
    return " > ".join(calls) or repr(task)


async def sweep(
    folder: Path,
    kills: Iterable[str],
    *,
    chance: random.Random,
    sizes: tuple[int, int],
    kinds: Sequence[str] = KINDS,
    pause_s: float = Sweep.pause_s,
) -> Report:
    """Kill, at times that chance decides. `sizes`: how many workers and clients."""
    settings = {"limit.historyCount.suggestContinueAsNew": CONTINUE_AT}
    with own_server(database=folder / "temporal.db", settings=settings) as server:
        swept = Sweep(server, folder, chance, sizes)
        swept.pause_s = pause_s
        await swept.run(kills, kinds)
    return swept.report


def kills_for(seconds: float, chance: random.Random, servers: float = SERVER_KILLS) -> Iterator[str]:
    """Kills for so long: a server now and then, else a worker."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield "server" if chance.random() < servers else "worker"


def main() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--servers", type=float, default=SERVER_KILLS, help="how many of the kills are of the server")
    parser.add_argument("--keep", type=Path, help="a folder for the files of the sweep, which stay there")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as fresh:
        folder = chosen.keep or Path(fresh)
        folder.mkdir(exist_ok=True)
        sizes = (chosen.workers, chosen.clients)
        chance = random.Random(chosen.seed)
        kills = kills_for(chosen.seconds, chance, chosen.servers)
        report = asyncio.run(sweep(folder, kills, chance=chance, sizes=sizes))
    print(report)  # noqa: T201
    for failure in report.failures:
        print(failure)  # noqa: T201
    sys.stdout.flush()
    os._exit(1 if report.failures else 0)


if __name__ == "__main__":
    main()
