"""A connection to PostgreSQL that is lost in the commit: nobody knows what came of it, so nothing is repeated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from postgres_server import fresh_database_url

from loom.store.committer import Committer
from loom.store.errors import StoreUnavailable
from loom.store.operations import PostMessage, StartRun
from loom.store.postgres import PostgresStore
from loom.store.postgres.transactions import GroupWriter


@pytest.fixture
async def store() -> AsyncIterator[PostgresStore]:
    store = PostgresStore(fresh_database_url())
    await store.open()
    yield store
    await store.close()


def lose_the_answer(store: PostgresStore) -> None:
    """The next group is committed, but the connection breaks before the server's answer has come."""
    write = GroupWriter.write

    async def lossy_write(self: GroupWriter, connection: Any, group: Any) -> Any:
        store._writer.write = write.__get__(store._writer)  # type: ignore[method-assign]
        return await write(self, _Lossy(connection), group)

    store._writer.write = lossy_write.__get__(store._writer)  # type: ignore[method-assign]


class _Lossy:
    """A connection that breaks with the first COMMIT."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, query: str, *values: Any) -> Any:
        result = await self._connection.execute(query, *values)
        if query == "COMMIT":
            self._connection.terminate()
            raise ConnectionResetError("Connection reset by peer")
        return result


async def test_a_group_of_which_nobody_knows_is_not_written_again(store: PostgresStore) -> None:
    await store.apply([StartRun("r", "w", b"", 1.0)])
    committer = Committer(store)
    lose_the_answer(store)
    letters = [committer.submit(PostMessage("r", b"%d" % number, 1.0)) for number in range(3)]
    outcomes = await asyncio.gather(*letters, return_exceptions=True)
    assert all(isinstance(outcome, StoreUnavailable) and outcome.outcome_unknown for outcome in outcomes), outcomes
    assert "nobody knows whether it was written" in str(outcomes[0])
    await committer.close()
    assert [message.data for message in await store.inbox("r", 0)] == [b"0", b"1", b"2"]
