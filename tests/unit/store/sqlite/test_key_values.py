"""Entries of another process on the same file, and the indexes that serve them."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from pathlib import Path

import pytest

from loom.store.records import ABSENT
from loom.store.sqlite import SqliteStore, key_values

PUT_AND_DIE = """
import asyncio, os, sys
from loom.store.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    for number in range(20):
        version = await store.put_entry("k", "shared", b"other", expect=0)
        own = await store.put_entry("k", f"other{number}", b"data")
        os.write(1, f"{own} {version is not None}\\n".encode())
    os._exit(9)

asyncio.run(main())
"""


async def test_what_another_process_has_put_beside_the_engine_is_there_though_it_dies(
    store: SqliteStore, path: Path
) -> None:
    await store.join("engine", 60.0)
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PUT_AND_DIE, str(path), stdout=asyncio.subprocess.PIPE
    )
    won = 0
    for number in range(20):
        won += await store.put_entry("k", "shared", b"own", expect=ABSENT) is not None
        await store.put_entry("k", f"own{number}", b"data")
    told, _ = await other.communicate()
    assert other.returncode == 9
    lines = [line.split() for line in told.decode().splitlines()]
    there = {entry.key: entry for entry in await store.entries("k")}
    assert [there[f"other{number}"].version for number in range(20)] == [int(version) for version, _ in lines]
    assert won + [success for _, success in lines].count("True") == 1
    assert there["shared"].data == (b"own" if won else b"other")
    assert len({entry.version for entry in there.values()}) == 41


@pytest.mark.parametrize(
    ("sql", "parameters", "index"),
    [
        (key_values._ENTRY, ("k", "a", 1.0), "sqlite_autoindex_entries_1 (kind=? AND key=?)"),
        (key_values._ENTRIES, ("k", "a", 1.0, 5), "sqlite_autoindex_entries_1 (kind=? AND key>?)"),
        (key_values._DROP_EXPIRED, (1.0, 5), "entries_by_expiry (expires_at<?)"),
    ],
)
async def test_entries_are_found_by_an_index(
    store: SqliteStore, other: sqlite3.Connection, sql: str, parameters: tuple[object, ...], index: str
) -> None:
    plan = [detail for *_, detail in other.execute("EXPLAIN QUERY PLAN " + sql, parameters)]
    assert any(index in detail for detail in plan), plan
    assert not any("TEMP B-TREE" in detail for detail in plan), plan
    assert not any(detail.startswith("SCAN") for detail in plan), plan
