"""Runs in an encrypted store, from `connect` to the file."""

from __future__ import annotations

import asyncio
import base64
import json
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.store.encrypted import ENCRYPTION_KEYS, EncryptedStore
from loom.store.errors import WrongKeys

SECRET = "attack at dawn"
K1, K2 = (f"{name}:{base64.b64encode(name.encode() * 16).decode()}" for name in ("k1", "k2"))

UntilIdle = Callable[[Any], Awaitable[None]]


class Word(HumanResponseEvent):
    text: str


class Keeps(Workflow):
    """The secret is in its input, its state, its stream, its waiter, its mail, and in its result or error."""

    @step
    async def keep(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("kept", ev.secret)
        word = await ctx.wait_for_event(Word, waiter_event=Word(text=ev.secret), requirements={"text": ev.secret})
        if ev.get("fails", False):
            raise ValueError(word.text)
        return StopEvent(result=word.text)


def contents(folder: Path) -> bytes:
    """All bytes of all files, the log of the database among them."""
    return b"".join(file.read_bytes() for file in folder.iterdir())


def connect(path: Path, keys: str | None = None, **options: object) -> DurableRuntime:
    runtime = loom.connect(f"sqlite:///{path}", encryption_keys=keys, **options)
    runtime.register(Keeps(), name="keeps")
    return runtime


async def test_nothing_of_it_is_in_the_file(tmp_path: Path, until_idle: UntilIdle) -> None:
    path = tmp_path / "runs.db"
    async with connect(path, K1, idle_timeout=0) as runtime:
        for run_id, fails in (("good", False), ("bad", True)):
            handler = await runtime.start("keeps", {"secret": SECRET, "fails": fails}, run_id=run_id)
            await until_idle(handler)
        assert SECRET in repr((await runtime.get("good")).active_waiters)
        for run_id in ("good", "bad"):
            await runtime.send_event(run_id, Word(text=SECRET))
        assert await (await runtime.handler("good")) == SECRET
        with pytest.raises(ValueError, match=SECRET):
            await (await runtime.handler("bad"))
        assert SECRET in str((await runtime.get("bad")).error)
        exported = json.loads(await runtime.export_run("good"))
        assert SECRET.encode() in base64.b64decode(exported["run"]["start"])  # it can go to another store
        raw = contents(tmp_path)
    raw += contents(tmp_path)
    assert b"keeps" in raw
    assert SECRET.encode() not in raw
    assert base64.b64encode(SECRET.encode())[:12] not in raw


async def test_the_environment_is_enough_and_a_process_without_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.db"
    monkeypatch.setenv(ENCRYPTION_KEYS, K1)
    async with loom.connect(f"sqlite:///{path}") as runtime:
        assert isinstance(runtime.store, EncryptedStore)
        await runtime.start("keeps", {"secret": SECRET}, run_id="r")
    monkeypatch.delenv(ENCRYPTION_KEYS)
    for keys in (None, K2):
        with pytest.raises(WrongKeys, match="'k1'"):
            async with loom.connect(f"sqlite:///{path}", encryption_keys=keys):
                pass
    async with loom.connect(f"sqlite:///{path}", encryption_keys=f"{K2},{K1}") as runtime:
        assert (await runtime.get("r")).status == "running"


async def test_a_process_without_the_new_key_does_not_park_runs(
    tmp_path: Path, until_idle: UntilIdle, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "runs.db"
    async with connect(path, K1, idle_timeout=0, poll_interval=0.02) as runtime:
        handler = await runtime.start("keeps", {"secret": SECRET}, run_id="r")
        await until_idle(handler)
        async with loom.connect(f"sqlite:///{path}", encryption_keys=f"{K2},{K1}") as newer:
            await newer.send_event("r", Word(text=SECRET))
            async with asyncio.timeout(60):
                while "encrypted with the key 'k2'" not in caplog.text:
                    await runtime.get("r")
        info = await runtime.get("r")
        assert (info.status, info.parked) == ("running", None)
    async with connect(path, f"{K2},{K1}") as runtime:
        assert await (await runtime.handler("r")) == SECRET


async def test_without_keys_the_store_is_the_database_itself(tmp_path: Path) -> None:
    runtime = loom.connect(f"sqlite:///{tmp_path / 'runs.db'}")
    assert not isinstance(runtime.store, EncryptedStore)


class Hurries(Workflow):
    """Waits for an instant."""

    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Word, timeout=0.2)
        return StopEvent()


async def test_a_run_whose_row_does_not_open_is_parked(tmp_path: Path, until_idle: UntilIdle) -> None:
    path = tmp_path / "runs.db"
    async with connect(path, K1) as runtime:
        runtime.register(Hurries(), name="hurries")
        await until_idle(await runtime.start("hurries", run_id="a"))
    with closing(sqlite3.connect(path)) as file, file:
        [(waiters,)] = file.execute("SELECT waiters FROM runs").fetchall()
        file.execute("UPDATE runs SET waiters = ?", (waiters.replace(b"A", b"B"),))
    async with connect(path, K1, on_problem=lambda _problem: None) as runtime:
        runtime.register(Hurries(), name="hurries")
        async with asyncio.timeout(60):
            while not runtime.metrics.parked:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)
        [info] = [info async for info in runtime.list()]
        assert not info.in_memory
        assert "what it waits for cannot be read" in str(info.parked)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT owner, parked IS NULL FROM runs").fetchall() == [(None, 0)]
