"""Every test here runs on every kind of store, through the port alone."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

# What stands beside the tests here, and `postgres_server`, which all tests share.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

from store_databases import KINDS, Database, new_database
from store_samples import Owner, started

from loom.store.ports import Store


@pytest.fixture(params=KINDS)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    """A new database, on which any number of stores can be opened."""
    database = new_database(request.param, tmp_path)
    try:
        yield database
    finally:
        await database.dispose()


@pytest.fixture
async def store(database: Database) -> Store:
    """An open store on a new database."""
    return await database.open()


@pytest.fixture
async def fence(store: Store) -> int:
    """The fence of the member that the store has become."""
    return (await store.join("tester", 60.0)).fence


@pytest.fixture
async def owner(store: Store, fence: int) -> Owner:
    """Of a run `r` of the workflow `w` that has just been started."""
    return await started(store, "r", fence)
