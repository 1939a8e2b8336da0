from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest
from cli_rig import data, failure, good, loom

from loom.store.postgres.connections import parse_address

pytestmark = pytest.mark.usefixtures("shop")


def test_makes_a_database_once() -> None:
    assert good("db", "upgrade").startswith("Applied 0001_runs.\nApplied 0002_documents.\n")
    assert good("db", "upgrade") == "The database is up to date.\n"
    assert good("workflow", "list") == "No runs.\n"


def test_the_printed_sql_does_the_same_and_nothing_is_touched_before(shop: Path) -> None:
    script = good("db", "upgrade", "--sql")
    assert not (shop / "loom.db").exists()
    with closing(sqlite3.connect("loom.db")) as connection:
        connection.executescript(script)
    assert good("db", "upgrade", "--sql") == "-- The database is up to date.\n"
    assert good("db", "upgrade") == "The database is up to date.\n"
    assert good("run", "shop.py:Double", "--input", '{"number": 1}') == "2\n"


def test_for_programs() -> None:
    planned = data("db", "upgrade", "--sql")
    assert (planned["migrations"][:2], planned["applied"]) == (["0001_runs", "0002_documents"], False)
    assert data("db", "upgrade")["applied"]
    assert data("db", "upgrade") == {"store": "sqlite:///loom.db", "migrations": [], "applied": True, "sql": ""}


@pytest.mark.parametrize("command", [["db", "upgrade"], ["db", "upgrade", "--sql"], ["workflow", "list"]])
def test_a_database_of_a_newer_version_is_refused(command: list[str]) -> None:
    good("db", "upgrade")
    with closing(sqlite3.connect("loom.db", isolation_level=None)) as connection:
        connection.execute("INSERT INTO loom_schema VALUES (99, 'future', 'x', 0)")
    assert "has schema version 99, but this version of Loom knows only" in failure(3, *command)


@pytest.mark.parametrize("command", [["db", "upgrade"], ["workflow", "list"]])
def test_a_migration_that_was_another_text_is_refused(command: list[str]) -> None:
    good("db", "upgrade")
    with closing(sqlite3.connect("loom.db", isolation_level=None)) as connection:
        connection.execute("UPDATE loom_schema SET checksum = 'other'")
    assert "was applied to this database with another text" in failure(3, *command)


@pytest.mark.parametrize("command", [["db", "upgrade"], ["db", "upgrade", "--sql"], ["workflow", "list"]])
def test_a_file_that_is_no_database(shop: Path, command: list[str]) -> None:
    (shop / "loom.db").write_text("A letter, not a database. " * 100)
    assert "the file is not an SQLite database" in failure(3, *command)


def test_without_a_database_clients_say_how_to_make_one(shop: Path) -> None:
    assert failure(3, "workflow", "list") == "There is no database at loom.db. `loom db upgrade` makes one."
    assert not (shop / "loom.db").exists()


def test_a_folder_that_does_not_exist() -> None:
    assert "does not exist" in failure(3, "db", "upgrade", "--store", "sqlite:///nowhere/loom.db")


@pytest.mark.parametrize("url", ["loom.db", "sqlite://", "mysql://host/db"])
@pytest.mark.parametrize("command", [["db", "upgrade"], ["workflow", "list"], ["run", "shop.py:Double"]])
def test_urls_that_name_no_store(url: str, command: list[str]) -> None:
    assert repr(url) in failure(2, *command, "--store", url)


def test_memory_is_no_place_for_clients() -> None:
    assert "memory://" in failure(2, "workflow", "list", "--store", "memory://")
    assert "has no tables" in failure(2, "db", "upgrade", "--store", "memory://")


def test_the_store_may_be_named_by_the_environment(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_STORE", "sqlite:///other.db")
    good("db", "upgrade")
    assert (shop / "other.db").exists()


def test_a_postgresql_server_that_is_not_there() -> None:
    url = "postgresql://user:secret@127.0.0.1:1/loom"
    for command in (["db", "upgrade"], ["db", "upgrade", "--sql"], ["workflow", "list"]):
        message = failure(3, *command, "--store", url)
        assert "127.0.0.1:1" in message
        assert "secret" not in message


async def _execute(url: str, script: str) -> None:
    connection = await asyncpg.connect(parse_address(url).url)
    await connection.execute(script)
    await connection.close()


def test_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2])
    from postgres_server import fresh_database_url

    by_hand = fresh_database_url()
    monkeypatch.setenv("LOOM_STORE", by_hand)
    asyncio.run(_execute(by_hand, good("db", "upgrade", "--sql")))
    assert good("db", "upgrade") == "The database is up to date.\n"
    assert good("workflow", "list") == "No runs.\n"

    monkeypatch.setenv("LOOM_STORE", fresh_database_url())
    assert "Run `loom db upgrade`" in failure(3, "workflow", "list")
    assert loom("db", "upgrade").stdout.startswith("Applied 0001_")
    assert good("db", "upgrade") == "The database is up to date.\n"
    assert good("run", "shop.py:Double", "--input", '{"number": 4}', "--run-id", "d") == "8\n"
    assert data("workflow", "status", "d")["status"] == "completed"
    assert data("workflow", "replay", "d")["replay"] == "same"
