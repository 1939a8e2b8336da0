"""What the server is asked to do with the disk, whatever its defaults are."""

from __future__ import annotations

import logging
from contextlib import suppress
from uuid import uuid4

import asyncpg
import pytest
from postgres_server import session_url, with_fresh_schema

from loom.store.errors import StoreUnavailable
from loom.store.operations import StartRun
from loom.store.postgres import PostgresStore


@pytest.fixture
async def hasty() -> str:
    """The address of a database whose sessions do not wait for the disk by default."""
    name = f"hasty_{uuid4().hex[:12]}"
    connection = await asyncpg.connect(session_url())
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    await connection.close()
    before, _, after = session_url().partition("?")
    address = f"{before.rpartition('/')[0]}/{name}?{after}"
    connection = await asyncpg.connect(address)
    assert await connection.fetchval("SHOW synchronous_commit") == "off"
    await connection.close()
    return with_fresh_schema(address)


async def test_every_session_waits_for_the_disk_where_the_database_would_not(hasty: str) -> None:
    store = PostgresStore(hasty)
    await store.open()
    try:
        await store.apply([StartRun("r", "w", b"", 1.0)])
        connections = store._connections
        assert connections is not None
        async with connections.writer() as writer, connections.reader() as reader:
            for connection in (writer, reader):
                assert await connection.fetchval("SHOW synchronous_commit") == "on"
                assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "10s"
        # Also in place of those that the server has ended.
        async with connections.reader() as reader:
            await reader.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        with suppress(StoreUnavailable):
            await store.apply([StartRun("s", "w", b"", 1.0)])
        await store.apply([StartRun("t", "w", b"", 1.0)])
        async with connections.writer() as writer:
            assert await writer.fetchval("SHOW synchronous_commit") == "on"
    finally:
        await store.close()


async def test_a_server_that_does_not_wait_for_its_disk_is_told_of_once(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection = await asyncpg.connect(session_url())
    assert await connection.fetchval("SHOW fsync") == "off", "the server of the tests"
    await connection.close()
    store = PostgresStore(url)
    await store.open()
    try:
        assert "fsync" not in caplog.text, "who only looks in is not told"
        for name in ("first", "again"):
            await store.join(name, 60.0)
    finally:
        await store.close()
    [told] = [record for record in caplog.records if "has fsync = off" in record.getMessage()]
    assert told.levelno == logging.WARNING
