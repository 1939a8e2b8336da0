"""Databases on which runtimes can be opened, crash and be opened again; time that passes while nobody is alive.

A crash here is that of one process: from one moment on nothing of it reaches the database any more, its tasks and
bodies end, it says goodbye to nobody, and its lease runs out. The database stays.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

from temporal_wire import Wire

import loom
from loom.runtime.durable.runtime import DurableRuntime
from loom.store.memory import MemberLease, MemoryDatabase, MemoryStore
from loom.store.ports import Store
from loom.testing.faults import FaultPlan, FaultyStore

DATABASES = ("memory", "sqlite", "postgres")
"""Stores whose runs this process moves, by a clock that a test can set forward."""
KINDS = (*DATABASES, "temporal")


class Clock:
    """The system's time, plus what the test lets pass."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


class Deployment:
    """One database and the processes that work on it."""

    kind: str
    holds_bodies = True
    """A body that waits stays where it is, while its process holds its run. Else it runs again from the top."""
    brief: ClassVar[dict[str, float]] = {"probation": 0.05}
    """Options of every process here: runs that crash twice or more are recovered one after the other, but soon."""
    stride = 1
    """Where a test goes through all ticks of a run, it may take so many at a time: a server is slower than a file."""

    def __init__(self) -> None:
        self.clock = Clock()
        self._open: list[DurableRuntime] = []

    async def open(self, workflows: dict[str, loom.Workflow] | None = None, **options: Any) -> DurableRuntime:
        """A process with the code of these workflows; without any it is a client."""
        options = {**self.brief, **options}
        runtime = loom.connect(FaultyStore(self._new_store(), FaultPlan()), clock=self.clock, **options)
        for name, workflow in (workflows or {}).items():
            runtime.register(workflow, name=name)
        await runtime.__aenter__()
        self._open.append(runtime)
        return runtime

    async def open_reader(self, workflows: dict[str, loom.Workflow]) -> DurableRuntime:
        """A process that looks at runs of these workflows, and has their code only where nobody can look without."""
        del workflows
        return await self.open()

    async def close(self, runtime: DurableRuntime) -> None:
        """A process ends in good order."""
        self._open.remove(runtime)
        await runtime.close()

    async def crash(self, runtime: DurableRuntime) -> None:
        """A process is there no more."""
        self._open.remove(runtime)
        store = runtime.store
        assert isinstance(store, FaultyStore)
        store.crash()
        await runtime.close()
        await self._bury(store.inner)

    async def dispose(self) -> None:
        """End all processes that are left."""
        while self._open:
            await self.close(self._open[-1])

    async def pass_time(self, seconds: float) -> None:
        """Let time pass while nobody works."""
        self.clock.ahead_s += seconds

    def _new_store(self) -> Store:
        raise NotImplementedError

    async def _bury(self, store: Any) -> None:
        """Close a dead process' store, without a goodbye."""
        raise NotImplementedError


class Memory(Deployment):
    """A database in memory that outlives its stores."""

    kind = "memory"

    def __init__(self) -> None:
        super().__init__()
        self._database = MemoryDatabase()

    def _new_store(self) -> Store:
        return MemoryStore(self._database, clock=self.clock)

    async def _bury(self, store: Any) -> None:
        fences, store._fences = store._fences, []
        await store.close()
        for fence in fences:
            self._database.leases[fence] = MemberLease("dead", float("-inf"))


class Sqlite(Deployment):
    """A file. Its lock is gone with the process that held it, so that no lease has to run out."""

    kind = "sqlite"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._path = folder / "runs.db"

    def _new_store(self) -> Store:
        from loom.store.sqlite import SqliteStore

        return SqliteStore(self._path, clock=self.clock)

    async def _bury(self, store: Any) -> None:
        store._fence = None
        await store.close()


class Postgres(Deployment):
    """A schema of a real server. Leases and the time without a living member go by the server's clock."""

    kind = "postgres"

    def __init__(self) -> None:
        super().__init__()
        from postgres_server import fresh_database_url

        self._url = fresh_database_url()

    def _new_store(self) -> Store:
        from loom.store.postgres import PostgresStore

        return PostgresStore(self._url)

    async def _bury(self, store: Any) -> None:
        fences, store._fences = store._fences, []
        await store.close()
        await self._execute("UPDATE members SET lease_until = clock_timestamp() WHERE fence = ANY ($1)", fences)

    async def pass_time(self, seconds: float) -> None:
        await super().pass_time(seconds)
        passed = "- make_interval(secs => $1::float8)"
        await self._execute(f"UPDATE members SET seen_at = seen_at {passed}", seconds)
        await self._execute(f"UPDATE liveness SET last_alive = last_alive {passed}", seconds)

    async def _execute(self, statement: str, *arguments: Any) -> None:
        import asyncpg

        address = self._new_store().address
        connection = await asyncpg.connect(address.url, server_settings={"search_path": address.quoted_schema})
        try:
            await connection.execute(statement, *arguments)
        finally:
            await connection.close()


class Temporal(Deployment):
    """A namespace of a real server. A process that crashes is cut off from it, and silent from then on."""

    kind = "temporal"
    holds_bodies = False
    stride = 4

    # A body whose worker is silent, and a run that a dead worker had in its cache, go to another one this soon. A
    # process that ends lets no body go on, as on the other kinds.
    brief: ClassVar[dict[str, float]] = {
        **Deployment.brief,
        "heartbeat_timeout": 1.0,
        "retry_interval": 0.05,
        "sticky_timeout": 0.2,
        "grace": 0.0,
    }

    def __init__(self) -> None:
        super().__init__()
        from temporal_server import session_server

        self._server = session_server()
        self._namespace = self._server.fresh_namespace()
        self._wires: dict[Any, Wire] = {}

    async def open(self, workflows: dict[str, loom.Workflow] | None = None, **options: Any) -> Any:
        wire = Wire(self._server.target)
        await wire.open()
        try:
            options = {**self.brief, **options}
            runtime: Any = loom.connect(f"temporal://{wire.target}/{self._namespace}", **options)
        except ValueError:
            await wire.close()
            raise
        self._wires[runtime] = wire
        self._open.append(runtime)
        for name, workflow in (workflows or {}).items():
            runtime.register(workflow, name=name)
        await runtime.__aenter__()
        return runtime

    async def open_reader(self, workflows: dict[str, loom.Workflow]) -> Any:
        return await self.open(workflows)

    async def close(self, runtime: Any) -> None:
        await super().close(runtime)
        await self._wires.pop(runtime).close()

    async def crash(self, runtime: Any) -> None:
        self._wires[runtime].cut()
        await self.close(runtime)

    async def pass_time(self, seconds: float) -> None:
        raise NotImplementedError(f"The clock of a Temporal server cannot be set forward by {seconds} s.")


def new_deployment(kind: str, folder: Path) -> Deployment:
    """A new and empty database."""
    if kind == "memory":
        return Memory()
    if kind == "temporal":
        return Temporal()
    return Sqlite(folder) if kind == "sqlite" else Postgres()
