"""Stores that are not there, not ours, not writable any more, or come back: clear errors, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fault_disk import Disk, Fault
from fault_waiting import result_of, until, until_idle
from postgres_server import own_server, with_fresh_schema

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, StoreUnavailable, Workflow, step
from loom.store.errors import StoreTooNew
from loom.store.sqlite import SqliteStore


class Word(HumanResponseEvent):
    text: str


class Listens(Workflow):
    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        word = await ctx.wait_for_event(Word, timeout=None)
        return StopEvent(result=word.text)


def connect(store: Any, **options: Any) -> Any:
    runtime = loom.connect(store, poll_interval=0.05, **options)
    runtime.register(Listens(), name="listens")
    return runtime


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Milk, bread, cheese. " * 60)
    with pytest.raises(StoreUnavailable) as refused:
        async with connect(f"sqlite:///{path}"):
            pass
    assert str(refused.value) == (
        f"The database {path} cannot be used: the file is not an SQLite database (file is not a database). "
        "Nothing was written."
    )
    assert path.read_text() == "Milk, bread, cheese. " * 60
    assert os.listdir(tmp_path) == ["notes.txt"]


async def test_a_damaged_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with connect(f"sqlite:///{path}") as runtime:
        await runtime.start("listens", run_id="r")
        await until_idle(runtime, "r")
    content = bytearray(path.read_bytes())
    content[100:4096] = os.urandom(3996)
    path.write_bytes(content)
    with pytest.raises(StoreUnavailable, match=r"cannot be used: the file is (damaged|not an SQLite database) \("):
        async with connect(f"sqlite:///{path}"):
            pass
    assert path.read_bytes() == content


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with connect(f"sqlite:///{path}") as runtime:
        await runtime.start("listens", run_id="r")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        [(known,)] = connection.execute("SELECT MAX(version) FROM loom_schema").fetchall()
        connection.execute("INSERT INTO loom_schema VALUES (?, 'later', 'x', 0)", (known + 1,))
    with pytest.raises(StoreTooNew) as refused:
        async with connect(f"sqlite:///{path}"):
            pass
    assert str(refused.value) == (
        f"The database has schema version {known + 1}, but this version of Loom knows only {known}. "
        "Use the version of Loom that wrote it, or a newer one."
    )
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM loom_schema WHERE name = 'later'")
    async with connect(f"sqlite:///{path}") as runtime:
        await runtime.send_event("r", Word(text="hello"))
        assert await result_of(runtime, "r") == "hello"


async def test_a_file_that_is_taken_away_and_brought_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "runs.db"
    async with connect(f"sqlite:///{path}", idle_timeout=None) as runtime:
        await runtime.start("listens", run_id="r")
        await until_idle(runtime, "r")
        folder.rename(tmp_path / "elsewhere")
        gone = (
            re.escape(f"The database {path} cannot be used: ") + r"it (cannot be opened|may not be written) \(the file"
        )
        for _ in range(2):
            for call in (
                runtime.start("listens", run_id="s"),
                runtime.send_event("r", Word(text="hello")),
                runtime.get("r"),
                result_of(runtime, "r"),
            ):
                with pytest.raises(StoreUnavailable, match=gone):
                    await call
        await until(lambda: f"The store fails, and is tried again every 0.05 s: The database {path}" in caplog.text)
        assert not folder.exists()
        (tmp_path / "elsewhere").rename(folder)
        await runtime.send_event("r", Word(text="hello"))
        assert await result_of(runtime, "r") == "hello"
        with pytest.raises(loom.RunNotFound):
            await runtime.get("s")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
async def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o555)
    with pytest.raises(StoreUnavailable, match="it cannot be opened"):
        async with connect(f"sqlite:///{folder / 'runs.db'}"):
            pass


async def test_a_file_system_that_becomes_read_only(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    disk = Disk()
    async with connect(SqliteStore(path, connect=disk.connect), idle_timeout=None) as runtime:
        await runtime.start("listens", run_id="r")
        await until_idle(runtime, "r")
        disk.fail(Fault("readonly", "wal", 1, lasts=True))
        with pytest.raises(StoreUnavailable) as refused:
            await runtime.send_event("r", Word(text="hello"))
        assert str(refused.value) == (
            f"The database {path} cannot be used: it may not be written (attempt to write a readonly database). "
            "Nothing was written."
        )
        assert (await runtime.get("r")).status == "running"
        disk.fail(None)
        await runtime.send_event("r", Word(text="hello"))
        assert await result_of(runtime, "r") == "hello"


async def test_postgresql_that_is_stopped_and_started(caplog: pytest.LogCaptureFixture) -> None:
    with own_server() as server:
        url = with_fresh_schema(server.url)
        async with connect(url, idle_timeout=None) as runtime:
            await runtime.start("listens", run_id="r")
            await until_idle(runtime, "r")
            await asyncio.to_thread(server.stop_hard)
            for call in (
                runtime.start("listens", run_id="s"),
                runtime.send_event("r", Word(text="hello")),
                runtime.get("r"),
                result_of(runtime, "r"),
            ):
                with pytest.raises(StoreUnavailable, match="PostgreSQL at "):
                    await call
            with pytest.raises(StoreUnavailable, match="Nothing was written"):
                await runtime.start("listens", run_id="s")
            await until(lambda: "The store fails, and is tried again every 0.05 s: PostgreSQL at " in caplog.text)
            with pytest.raises(StoreUnavailable, match="PostgreSQL at "):
                async with connect(url):
                    pass
            await asyncio.to_thread(server.start)
            await runtime.send_event("r", Word(text="hello"))
            assert await result_of(runtime, "r") == "hello"
            with pytest.raises(loom.RunNotFound):
                await runtime.get("s")
