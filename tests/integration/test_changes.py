"""The feed of changes over real processes: a server that is killed, one that owns no run, and what happened between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from served_process import ServedProcess

import loom
from loom.client import Client, Retries
from loom.server.app import create_app
from loom.server.settings import ServerSettings

CODE = """
from loom import Context, Event, StartEvent, StopEvent, Workflow, step


class Go(Event):
    pass


class Order(Workflow):
    @step
    async def place(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ev.get("wait"):
            await ctx.wait_for_event(Go, timeout=None)
        return StopEvent(result=1)
"""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServedProcess]:
    (tmp_path / "shop.py").write_text(CODE, "utf-8")
    made = ServedProcess("shop:Order", "--store", "sqlite:///runs.db", cwd=tmp_path, log=tmp_path / "log.txt")
    await made.start()
    try:
        yield made
    finally:
        await made.kill()


class Mirror:
    """What a page would show: the runs of a list, by what a feed tells."""

    def __init__(self) -> None:
        self.runs: dict[str, Any] = {}
        self.resets = 0
        self.begun = asyncio.Event()
        """Set with the first message: from here on, changes are told."""
        self._told = asyncio.Event()

    async def follow(self, changes: AsyncIterator[Any]) -> None:
        async for change in changes:
            self.begun.set()
            if change.run is not None:
                self.runs[change.run_id] = change.run
            elif change.event == "gone":
                self.runs.pop(change.run_id, None)
            self.resets += change.event == "reset"
            self._told.set()

    async def until(self, **statuses: str | None) -> None:
        """Wait until these runs have these statuses; None: they are not there."""
        async with asyncio.timeout(60):
            while any(getattr(self.runs.get(each), "status", None) != want for each, want in statuses.items()):
                self._told.clear()
                await self._told.wait()


async def test_a_feed_goes_on_after_its_server_was_killed(server: ServedProcess, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    retries = Retries(first_delay=0.05, max_delay=0.2, stream_attempts=200)
    mirror, filtered, beside = Mirror(), Mirror(), Mirror()
    async with Client(server.url, retries=retries) as client, loom.connect(url) as outside:
        following = [
            asyncio.create_task(mirror.follow(client.changes())),
            asyncio.create_task(filtered.follow(client.changes(status="running"))),
            asyncio.create_task(beside.follow(outside.changes())),
        ]
        try:
            for each in (mirror, filtered, beside):
                await each.begun.wait()
            await client.start("Order", {"wait": True}, run_id="open")
            await client.start("Order", run_id="old")
            for each in (mirror, beside):
                await each.until(open="running", old="completed")
            await filtered.until(open="running", old=None)
            await server.kill()
            await outside.start("Order", {}, run_id="new")
            await outside.purge("old")
            await beside.until(new="running", old=None)
            await server.start()
            for each in (mirror, beside):
                await each.until(open="running", new="completed", old=None)
            await filtered.until(open="running", new=None)
            await client.send_event("open", "Go")
            for each in (mirror, beside):
                await each.until(open="completed")
            await filtered.until(open=None)
            assert (mirror.resets, filtered.resets, beside.resets) == (0, 0, 0)
            listed = {run.run_id: run async for run in client.list()}
            assert mirror.runs == listed
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)


async def test_a_server_that_owns_no_run_tells_what_another_process_does(server: ServedProcess, tmp_path: Path) -> None:
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime, Client(server.url) as client:
        app = create_app(runtime, ServerSettings(read_only=True))
        mirror = Mirror()
        following = asyncio.create_task(mirror.follow(runtime.changes(workflow="Order")))
        try:
            await mirror.begun.wait()
            for number in range(20):
                await client.start("Order", {}, run_id=f"r{number}")
            await mirror.until(**{f"r{number}": "completed" for number in range(20)})
            assert app.state.server.workflow_counts is runtime.change_feed.counted
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
