"""The kinds of databases that the suite runs on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from loom.store.encrypted import EncryptedStore
from loom.store.keyring import Keyring
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.store.ports import Store

KINDS = ("memory", "sqlite", "postgres", "encrypted")


class Database(Protocol):
    """What the tests need of a kind of database beside the port."""

    many_members: bool
    """Whether several members may work on it at once."""
    unreadable: bool
    """Whether it refuses values that are not what the records say."""

    async def open(self, on_notification: Callable[[Sequence[str]], None] | None = None) -> Store:
        """One more store on it, opened."""
        ...

    async def pass_time(self, seconds: float) -> None:
        """Let leases run out."""
        ...

    def now(self) -> float:
        """The time by which entries expire."""
        ...

    async def dispose(self) -> None:
        """Close all stores and remove the database."""
        ...


class _Stores:
    """Closes at the end what was opened."""

    many_members = True
    unreadable = True

    def __init__(self, new: Callable[[], Store]) -> None:
        self._new = new
        self._open: list[Store] = []

    async def open(self, on_notification: Callable[[Sequence[str]], None] | None = None) -> Store:
        store = self._new()
        if on_notification is not None:
            store.on_notification = on_notification
        await store.open()
        self._open.append(store)
        return store

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def now(self) -> float:
        return time.time()

    async def dispose(self) -> None:
        for store in self._open:
            await store.close()


def _as_it_is(store: Store) -> Store:
    return store


def _encrypted(store: Store) -> Store:
    return EncryptedStore(store, Keyring({"k": b"k" * 32}))


class Memory(_Stores):
    unreadable = False

    def __init__(self, wrapped: Callable[[Store], Store] = _as_it_is) -> None:
        self._now = 1000.0
        kept = MemoryDatabase()
        super().__init__(lambda: wrapped(MemoryStore(kept, clock=lambda: self._now)))

    async def pass_time(self, seconds: float) -> None:
        self._now += seconds

    def now(self) -> float:
        return self._now


class Sqlite(_Stores):
    many_members = False

    def __init__(self, folder: Path, wrapped: Callable[[Store], Store] = _as_it_is) -> None:
        from loom.store.sqlite import SqliteStore

        super().__init__(lambda: wrapped(SqliteStore(folder / "runs.db")))


class Postgres(_Stores):
    def __init__(self) -> None:
        from postgres_server import fresh_database_url

        from loom.store.postgres import PostgresStore

        url = fresh_database_url()
        self._address = PostgresStore(url).address
        super().__init__(lambda: PostgresStore(url))

    async def pass_time(self, seconds: float) -> None:
        """Put what the server remembers back in time. Nobody waits, and no lease runs out on a slow machine."""
        import asyncpg

        schema = {"search_path": self._address.quoted_schema}
        connection = await asyncpg.connect(self._address.url, server_settings=schema)
        try:
            for table, columns in (("members", ("seen_at", "lease_until")), ("liveness", ("last_alive",))):
                earlier = ", ".join(f"{name} = {name} - make_interval(secs => $1::float8)" for name in columns)
                await connection.execute(f"UPDATE {table} SET {earlier}", seconds)
        finally:
            await connection.close()


def new_database(kind: str, folder: Path) -> Database:
    """A new and empty database."""
    match kind:
        case "memory":
            return Memory()
        case "encrypted":
            return Memory(_encrypted)
        case "sqlite":
            return Sqlite(folder)
        case "encrypted sqlite":
            return Sqlite(folder, _encrypted)
        case _:
            return Postgres()
