"""`loom ui`, from a real process: the page over a store that an engine works on. It changes nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from served_process import ServedProcess

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step


class Answer(HumanResponseEvent):
    text: str


class Asks(Workflow):
    """Asks once."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        """Wait for the answer."""
        return StopEvent(result=(await ctx.wait_for_event(Answer, timeout=None)).text)


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for what opens pages on a desktop; the file that it would write to."""
    told = tmp_path / "opened"
    (tmp_path / "bin").mkdir()
    opener = tmp_path / "bin" / "xdg-open"
    opener.write_text(f'#!/bin/sh\necho "$1" >> {told}\n')
    opener.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    return told


def told(opened: Path) -> str:
    """Read what was opened."""
    return opened.read_text() if opened.exists() else ""


async def until(client: httpx2.AsyncClient, holds: Callable[[Any], Any]) -> Any:
    """Return the run when something holds of it."""
    async with asyncio.timeout(60):
        while not holds(run := (await client.get("/v1/runs/asks-1")).json()):  # noqa: ASYNC110 - as a person would look
            await asyncio.sleep(0.02)
    return run


async def test_a_store_is_shown_beside_its_engine_and_nothing_can_be_changed(tmp_path: Path, opened: Path) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with loom.connect(store) as runtime:
        runtime.register(Asks(timeout=None), name="asks")
        handler = await runtime.start("asks", run_id="asks-1")
        looking = ServedProcess("--store", store, cwd=tmp_path, log=tmp_path / "ui.log", command="ui")
        await looking.start()
        try:
            async with httpx2.AsyncClient(base_url=looking.url, timeout=60) as client:
                page = await client.get("/ui/")
                assert '"read_only":true' in page.text.replace(" ", "")
                run = await until(client, lambda run: run["active_waiters"])
                assert run["active_waiters"][0]["schema"]["required"] == ["text"]
                for path, body in {"/cancel": {}, "/events": {"type": "Answer", "value": {"text": "no"}}}.items():
                    refused = await client.post(f"/v1/runs/asks-1{path}", json=body)
                    assert (refused.status_code, refused.json()["code"]) == (403, "read-only"), path
                await runtime.send_event("asks-1", Answer(text="yes"))
                assert await handler == "yes"
                await until(client, lambda run: run["status"] == "completed")
            assert await looking.stop() == 0
        finally:
            await looking.kill()
    assert told(opened) == ""  # there is no screen to open the page on


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere pages are opened in other ways")
async def test_the_page_is_opened_where_there_is_a_screen(
    tmp_path: Path, opened: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = f"sqlite:///{tmp_path / 'runs.db'}"
    async with loom.connect(store):
        pass
    monkeypatch.setenv("DISPLAY", ":0")
    looking = ServedProcess("--store", store, cwd=tmp_path, log=tmp_path / "ui.log", command="ui")
    await looking.start()
    try:
        async with asyncio.timeout(60):
            while not told(opened):  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.02)
    finally:
        await looking.kill()
    assert told(opened) == f"{looking.url}/ui/\n"
