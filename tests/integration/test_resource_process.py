"""What a process set up for its runs is torn down when an operator ends it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2 as httpx
from served_process import ServedProcess

SOURCE = """
from typing import Annotated
from pathlib import Path
from loom import Context, HumanResponseEvent, InputRequiredEvent, Resource, StartEvent, StopEvent, Workflow, step

def note(line):
    with Path("notes.txt").open("a") as file:
        file.write(line + "\\n")

async def pool():
    note("+pool")
    yield "pool"
    note("-pool")

async def session(pool: Annotated[str, Resource(pool)]):
    note("+session")
    yield "session"
    note("-session")

class Waits(Workflow):
    @step
    async def wait(
        self, ctx: Context, ev: StartEvent, session: Annotated[str, Resource(session, scope="run")]
    ) -> StopEvent:
        note("waits")
        await ctx.wait_for_event(HumanResponseEvent, timeout=None)
        return StopEvent()

waits = Waits()
"""


async def test_sigterm_tears_down_sessions_and_then_the_pool(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(SOURCE)
    server = ServedProcess("app.py:waits", cwd=tmp_path, log=tmp_path / "log.txt")
    notes = tmp_path / "notes.txt"
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        answer = await client.post("/v1/runs", json={"workflow": "waits", "run_id": "a"})
        assert answer.status_code == 201, answer.text
    async with asyncio.timeout(60):
        while not notes.exists() or "waits" not in notes.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # another process writes the file
    assert await server.stop() == 0, (tmp_path / "log.txt").read_text()
    assert notes.read_text().split() == ["+pool", "+session", "waits", "-session", "-pool"]
