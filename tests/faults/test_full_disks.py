"""A server whose disk is full: it says that it is not ready, until commits are written again."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from fault_disk import Disk, Fault

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.runtime import DurableRuntime
from loom.server.app import create_app
from loom.store.sqlite import SqliteStore


class Word(HumanResponseEvent):
    pass


class Asker(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Word, timeout=None)
        return StopEvent(result="heard")


@asynccontextmanager
async def serving(store: SqliteStore, poll_interval: float) -> AsyncIterator[tuple[DurableRuntime, httpx2.AsyncClient]]:
    # The lease is not the subject: it does not run out on a slow machine.
    async with loom.connect(store, poll_interval=poll_interval, lease=max(600.0, 3 * poll_interval)) as runtime:
        runtime.register(Asker(timeout=None), name="asker")
        await runtime.ready()
        transport = httpx2.ASGITransport(app=create_app(runtime), client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield runtime, client


async def start(client: httpx2.AsyncClient, run_id: str, size: int = 10) -> int:
    body = {"workflow": "asker", "run_id": run_id, "input": {"text": "x" * size}}
    return (await client.post("/v1/runs", json=body)).status_code


async def reasons(client: httpx2.AsyncClient) -> list[str]:
    answer = await client.get("/v1/health/ready")
    found: list[str] = answer.json()["reasons"]
    assert answer.status_code == (503 if found else 200)
    return found


async def until_ready(client: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(60):
        while await reasons(client):  # noqa: ASYNC110 - a probe is made once a second
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("poll_interval", [0.02, 3600.0], ids=["the scanner", "the route alone"])
async def test_a_server_is_not_ready_while_commits_fail(poll_interval: float, tmp_path: Path) -> None:
    disk = Disk()
    store = SqliteStore(tmp_path / "runs.db", connect=disk.connect)
    async with serving(store, poll_interval) as (runtime, client):
        assert await start(client, "a") == 201
        assert await reasons(client) == []
        disk.fail(Fault("full", "wal", 1, lasts=True))
        assert await start(client, "b") == 503
        for _ in range(3):
            assert await reasons(client) == ["commits-failing"]
        assert "loom_commits_failing 1\n" in (await client.get("/metrics")).text
        assert runtime.hindrances() == ["commits-failing"]
        assert (await client.get("/health")).status_code == 503
        disk.fail(None)
        await until_ready(client)
        assert await start(client, "b") == 201
        assert "loom_commits_failing 0\n" in (await client.get("/metrics")).text


async def test_the_first_commit_that_is_written_makes_it_ready(tmp_path: Path) -> None:
    disk = Disk()
    async with serving(SqliteStore(tmp_path / "runs.db", connect=disk.connect), 3600.0) as (runtime, client):
        disk.fail(Fault("full", "wal", 1, lasts=True))
        assert await start(client, "a") == 503
        assert runtime.hindrances() == ["commits-failing"]
        disk.fail(None)
        assert await start(client, "a") == 201
        assert runtime.hindrances() == []


async def test_an_operation_that_is_wrong_says_nothing_about_the_disk(tmp_path: Path) -> None:
    async with serving(SqliteStore(tmp_path / "runs.db"), 3600.0) as (runtime, client):
        assert await start(client, "a") == 201
        with pytest.raises((KeyError, AttributeError, TypeError)):
            await runtime.committer.submit("no operation")  # type: ignore[arg-type]
        assert await reasons(client) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 12 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if sys.platform != "linux" or os.geteuid() != 0 or mount is None:
        pytest.skip("only root mounts a file system")
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_disk_that_is_really_full(small_disk: Path) -> None:
    async with serving(SqliteStore(small_disk / "runs.db"), 0.05) as (_, client):
        assert await start(client, "a") == 201
        (small_disk / "filler").write_bytes(b"")
        with (small_disk / "filler").open("ab", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass
        # The log of the database has room from before.
        codes = [await start(client, f"b{number}", 300_000) for number in range(20)]
        assert codes[-1] == 503
        assert "commits-failing" in await reasons(client)
        (small_disk / "filler").unlink()
        await until_ready(client)
        assert await start(client, "c") == 201
