"""Stores on a real server, each test in a schema of its own."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

# What stands beside the tests here, and `postgres_server`, which all tests share.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[3]))

from postgres_server import fresh_database_url

from loom.store.postgres import PostgresStore

Opener = Callable[..., Awaitable[PostgresStore]]


@pytest.fixture
def url() -> str:
    """An address under which nothing is stored yet."""
    return fresh_database_url()


@pytest.fixture
async def opened(url: str) -> AsyncIterator[Opener]:
    """Opens stores on the test's database, which are closed at its end."""
    stores: list[PostgresStore] = []

    async def open_store(
        on_notification: Callable[[Sequence[str]], None] | None = None, at: str = url
    ) -> PostgresStore:
        store = PostgresStore(at)
        if on_notification is not None:
            store.on_notification = on_notification
        await store.open()
        stores.append(store)
        return store

    yield open_store
    for store in stores:
        await store.close()


@pytest.fixture
async def store(opened: Opener) -> PostgresStore:
    return await opened()
