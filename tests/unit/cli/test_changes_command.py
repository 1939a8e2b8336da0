"""`loom runs changes`: lines for people and for programs, over a store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

import loom
from loom import StartEvent, StopEvent, Workflow, step


class Quick(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=1)


@pytest.mark.parametrize("as_json", [False, True])
async def test_changes_are_printed_as_they_come(tmp_path: Path, as_json: bool) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(store) as runtime:
        runtime.register(Quick(), name="quick")
        await (await runtime.start("quick", run_id="first"))
        async for change in runtime.changes():
            begin = change.id
            break
        await (await runtime.start("quick", run_id="second"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "loom", "runs", "changes", "--store", store, "--status", "completed"),
            *("--after", str(begin), *(["--json"] if as_json else [])),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        async with asyncio.timeout(60):
            while b"second" not in (line := await process.stdout.readline()):
                assert line, "the command has ended"
        if as_json:
            told = json.loads(line)
            assert (told["event"], told["data"]["status"]) == ("run", "completed")
            assert told["id"]
        else:
            assert line.decode().split()[:3] == ["second", "quick", "completed"]
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(60):
            assert await process.wait() == 130
