"""Start-up stays short: how many modules of Loom each way into it loads.

Time differs from machine to machine, so modules are counted. One costs about 0.3 ms of CPU. A limit that is exceeded
means that something is imported where nothing uses it; raise it only with a reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_FIRST_RUN = """
import asyncio
from loom import StartEvent, StopEvent, Workflow, step

class Brief(Workflow):
    @step
    async def end(self, ev: StartEvent) -> StopEvent:
        return StopEvent()

async def main():
    await Brief().run()

asyncio.run(main())
"""
_STORED_RUN = """
import asyncio, loom
from loom import StartEvent, StopEvent, Workflow, step

class Brief(Workflow):
    @step
    async def end(self, ev: StartEvent) -> StopEvent:
        return StopEvent()

async def main():
    async with loom.connect("sqlite:///loom.db") as runtime:
        runtime.register(Brief(), "brief")
        await (await runtime.start("brief", run_id="ended"))

asyncio.run(main())
"""
_COUNT = """
import sys
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "loom"), file=sys.stderr)
"""
_FLOW = {"actions": {"Add": {"type": "compose", "inputs": "@add(1, 2)"}}}


def _command(*arguments: str) -> str:
    return f"from loom.cli import main\nmain({list(arguments)!r}, standalone_mode=False)\n"


def _run(code: str, place: Path) -> str:
    environment = {**os.environ, "PYTHONWARNINGS": "default"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=True).stderr


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        pytest.param("import loom\n", 3, id="import"),
        pytest.param(_FIRST_RUN, 71, id="first-run"),
        pytest.param(_command("--help"), 22, id="help"),
        pytest.param(_command("workflow", "status", "ended"), 118, id="status"),
        pytest.param(_command("run", "flow.json"), 254, id="run-flow"),
        pytest.param(_command("eval", "@add(1, 2)"), 37, id="eval"),
    ],
)
def test_few_modules_are_loaded(code: str, limit: int, tmp_path: Path) -> None:
    if "status" in code:
        _run(_STORED_RUN, tmp_path)
    (tmp_path / "flow.json").write_text(json.dumps(_FLOW), encoding="utf-8")
    found = _run(code + _COUNT, tmp_path).splitlines()[-1].split()
    assert len(found) <= limit, found


def test_a_plain_run_loads_neither_retries_nor_resources(tmp_path: Path) -> None:
    found = set(_run(_FIRST_RUN + _COUNT, tmp_path).splitlines()[-1].split())
    rare = {
        "loom.steps.retry",
        "loom.steps.resources",
        "loom.effects.actions",
        "loom.expressions",
        "loom.runtime.durable",
    }
    assert found.isdisjoint(rare)
