"""How often a process writes what it tells of itself, and what it does while it cannot."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from loom.runtime.durable.workers import WORKERS, OwnEntry, WorkerFacts
from loom.store.errors import StoreUnavailable
from loom.store.memory import MemoryDatabase, MemoryStore

_HOUR_S = 3600


class Process:
    """A process with a clock that is set by hand."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.time = 1_000_000.0
        self.facts = WorkerFacts(
            since=datetime(2026, 1, 1, tzinfo=UTC), workflows=["a"], runs_in_memory=0, host="h", pid=1, version="1"
        )
        self.entry = OwnEntry(store, 7, lambda: self.facts, lambda: self.time)

    async def writes_of(self, seconds: int) -> int:
        """Tell every second, and count the writes."""
        versions = set[int]()
        before = await self.store.entry(WORKERS, "7")
        for _ in range(seconds):
            self.time += 1.0
            await self.entry.tell()
            found = await self.store.entry(WORKERS, "7")
            assert found is not None
            versions.add(found.version)
        return len(versions - {before.version if before is not None else 0})


class Away(MemoryStore):
    """A store that can be away."""

    is_away = False

    async def put_entry(self, *args: Any, **options: Any) -> int | None:
        self._check()
        return await super().put_entry(*args, **options)

    async def drop_entry(self, *args: Any, **options: Any) -> bool:
        self._check()
        return await super().drop_entry(*args, **options)

    def _check(self) -> None:
        if self.is_away:
            raise StoreUnavailable("It is away.")


@pytest.fixture
async def store() -> Away:
    # By the system's clock, an entry that expires an hour after the test's clock would be gone.
    store = Away(MemoryDatabase(), clock=lambda: 1_000_000.0)
    await store.open()
    return store


async def test_an_idle_process_writes_less_than_once_a_minute(store: Away) -> None:
    process = Process(store)
    assert await process.writes_of(1) == 1
    assert 1 <= await process.writes_of(_HOUR_S) <= 60
    entry = await store.entry(WORKERS, "7")
    assert entry is not None
    assert entry.expires_at is not None
    assert entry.expires_at > process.time + 60.0  # it never expires while its process lives


async def test_numbers_are_written_every_ten_seconds_and_names_at_once(store: Away) -> None:
    process, writes = Process(store), 0
    await process.writes_of(1)
    for number in range(1, 61):
        process.facts = replace(process.facts, runs_in_memory=number)
        writes += await process.writes_of(1)
    assert writes == 6
    process.facts = replace(process.facts, workflows=["a", "b"])
    assert await process.writes_of(1) == 1


async def test_a_store_that_is_away_is_logged_once_and_tried_again(
    store: Away, caplog: pytest.LogCaptureFixture
) -> None:
    process = Process(store)
    store.is_away = True
    for _ in range(5):
        await process.entry.tell()
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "It is away." in caplog.text
    await process.entry.drop()
    store.is_away = False
    assert await process.writes_of(1) == 1
    await process.entry.drop()
    assert await store.entry(WORKERS, "7") is None


async def test_names_that_no_store_can_keep_stop_nothing(store: Away, caplog: pytest.LogCaptureFixture) -> None:
    process = Process(store)
    process.facts = replace(process.facts, workflows=["\ud800"])
    await process.entry.tell()
    assert "not told" in caplog.text


async def test_nothing_is_dropped_that_was_never_told(store: Away) -> None:
    await store.put_entry(WORKERS, "7", b"another's")
    await Process(store).entry.drop()
    assert await store.entry(WORKERS, "7") is not None
