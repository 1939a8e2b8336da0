"""A store with runs, deadly and long ones, and the processes that work on them and are restarted when they die."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import deadly_bodies

import loom
from loom.runtime.connect import open_store
from loom.runtime.durable.store_client import StoreClient

HERE = Path(__file__).parent
TARGETS = [f"{HERE / 'deadly_bodies.py'}:{name}" for name in ("Deadly", "DeadlyClass", "Long")]
_PATH = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
PATIENCE_S = 180.0
PROBATION = "0.1s"
"""Deadly bodies need none of it: they kill their process as soon as they begin."""
LONG = [f"long-{number}" for number in range(20)]


def poison(kind: str) -> str:
    """The id of the run of a deadly kind."""
    return f"deadly-{kind}"


class Rig:
    """One store, and what happens to its runs."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.runs: StoreClient
        self.long = LONG
        self._services: list[subprocess.Popen[bytes]] = []

    def work(self, *arguments: str, name: str = "one", command: str = "worker") -> subprocess.Popen[bytes]:
        """A service: a process that is restarted until it ends in order."""
        program = [str(HERE / "deadly_supervisor.py"), "400", command, *TARGETS, "--store", self.url]
        return self.serve(name, *program, "--name", name, "--probation", PROBATION, *arguments)

    def serve(self, name: str, *program: str) -> subprocess.Popen[bytes]:
        """A service of any program."""
        with (self.folder / f"{name}.out").open("ab") as out, (self.folder / f"{name}.log").open("ab") as log:
            service = subprocess.Popen(
                [sys.executable, *program],
                cwd=self.folder,
                stdout=out,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(_PATH), "PYTHONWARNINGS": "ignore"},
            )
        self._services.append(service)
        return service

    def stop(self) -> list[int]:
        """Stop all services in order, and tell how they ended."""
        services, self._services = self._services, []
        for service in services:
            service.terminate()
        return [service.wait(PATIENCE_S) for service in services]

    def log(self, name: str = "one") -> str:
        """What a service has logged."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def ends(self, name: str = "one") -> list[int]:
        """The exit codes of the processes of a service that have ended. Others may print there too."""
        lines = (self.folder / f"{name}.out").read_text().splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith("ended ")]

    def deaths(self, name: str = "one") -> list[int]:
        """The exit codes of those that have died."""
        return [code for code in self.ends(name) if code != 0]

    async def begin(self, *kinds: str, long: int = len(LONG)) -> None:
        """Start the long runs, and one of each kind."""
        self.long = LONG[:long]
        async with loom.connect(self.url) as runtime:
            for run_id in self.long:
                await runtime.start("Long", {}, run_id=run_id)
            for kind in kinds:
                name = "DeadlyClass" if kind == "class" else "Deadly"
                await runtime.start(name, {"kind": kind}, run_id=poison(kind))

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait for a condition."""
        ends_at = time.monotonic() + PATIENCE_S
        while not await holds():
            if time.monotonic() > ends_at:
                tails = {log.name: log.read_text(errors="replace")[-1500:] for log in self.folder.glob("*.log")}
                raise AssertionError(f"{what}: {tails}")
            await asyncio.sleep(0.05)

    async def until_parked(self, *run_ids: str) -> None:
        """Wait until these runs are parked."""

        async def parked() -> bool:
            return all([(await self.runs.get(run_id)).parked is not None for run_id in run_ids])

        await self.until(parked, f"parked: {run_ids}")

    async def finish(self) -> None:
        """Let the long steps end, and wait until all of them have."""
        (self.folder / deadly_bodies.MAY_END).touch()

        async def finished() -> bool:
            return (await self.runs.store.counts())["completed"] == len(self.long)

        await self.until(finished, "the long runs")

    async def has_ended(self, times: int, name: str = "one") -> bool:
        """Say whether the processes of a service have ended so many times."""
        return len(self.ends(name)) >= times

    async def all_at_work(self) -> bool:
        """Say whether a process owns every long run."""
        rows = [await self.runs.store.get(run_id) for run_id in LONG]
        return all(row is not None and row.owner is not None for row in rows)

    async def parked(self) -> list[str]:
        """The runs that are parked."""
        return sorted([info.run_id async for info in self.runs.list(parked=True)])


@asynccontextmanager
async def rig(url: str, folder: Path) -> AsyncIterator[Rig]:
    """A rig that leaves no process behind."""
    made = Rig(url, folder)
    async with StoreClient(open_store(url)) as runs:
        made.runs = runs
        try:
            yield made
        finally:
            made.stop()
