"""Databases that this version and earlier ones have written: they are read as they were, and their runs go on."""

from __future__ import annotations

import asyncio
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from surface_commands import EVERY_RUN, shown
from surface_golden import FOLDER, Compare
from surface_script import AFTER, process
from surface_workflows import Approval, Broken, Report, Whole

import loom
from loom.testing import run_virtual

STORES = sorted((FOLDER / "stores").glob("*.db.xz"))
RESULTS = {
    "asks-1": "5 by Ada",
    "paused-1": "7 by Ada",
    "parent-2": ["child", "0 by Grace"],
    "nap-1": "rested",
    "early-1": "rested, said Grace",
    "slow-1": "reached",
    "broken-1": "mended",
    "parked-1": "whole",
    "timeout-1": "1 by Linus",
    "chatty-1": "600 words for Ada",
    "queued-1": {"words": 1200, "topic": "nobody"},
}
"""What runs of Python steps give when they go on."""


@pytest.fixture(params=STORES, ids=lambda path: path.name.removesuffix(".db.xz"))
def store(request: pytest.FixtureRequest, frozen: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Work in a directory that has a copy of a recorded database; the name of its version is given."""
    (tmp_path / "loom.db").write_bytes(lzma.decompress(request.param.read_bytes()))
    monkeypatch.chdir(tmp_path)
    return str(request.param.name.removesuffix(".db.xz"))


def _json(command: str) -> Any:
    return json.loads(shown([command], forms=(" --json",)).partition("\n")[2])


def test_there_is_a_database() -> None:
    assert STORES


def test_every_run_is_shown_as_it_was(store: str, golden: Compare) -> None:
    commands = ["db upgrade", "workflow list --results", "schedule list"]
    text = shown(commands, forms=(" --json",))
    golden(
        f"stores/{store}.txt", text + "\n" + shown((f"workflow status {run_id}" for run_id in EVERY_RUN), forms=("",))
    )


def test_nothing_is_broken_and_every_history_gives_what_is_stored(store: str) -> None:
    _check_sound()
    assert [_json(f"workflow replay {run_id}")["replay"] for run_id in EVERY_RUN] == ["same"] * len(EVERY_RUN)


def _check_sound() -> None:
    _json("db upgrade")
    found = _json("db verify")
    assert (found["broken"], found["problems"], found["damage"]) == (0, [], [])
    assert found["runs"] == found["chained"] + found["empty"]


def test_runs_go_on(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broken, "mended", True)
    results, flows, statuses = run_virtual(_go_on(Path("loom.db")), start=AFTER)
    assert results == RESULTS
    assert flows == {
        "loop-2": ("Succeeded", {"log": ["warp", "weft", "shed"]}, [0, 1, 2]),
        "failed-flow-1": ("Succeeded", {}, []),
    }
    assert statuses == {"stuck-1": "cancelled", "cancelled-1": "cancelled", "nightly:20231116T003000Z": "completed"}
    monkeypatch.setattr("time.time", lambda: AFTER + 40 * 86400)
    _check_sound()


async def _go_on(path: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    """Give every run what it lacks, and let a month pass."""
    async with process(path, whole=Whole) as runtime:
        runtime.register(Report(timeout=None), name="elsewhere")
        await runtime.send_event("asks-1", Approval(by="Ada", amount=5))
        await runtime.send_event("parent-2:2", Approval(by="Grace"))
        await runtime.send_event("chatty-1", Approval(by="Ada"))
        await runtime.resume("paused-1")
        for run_id in ("broken-1", "failed-flow-1", "timeout-1"):
            await runtime.retry(run_id)
        await runtime.send_event("timeout-1", Approval(by="Linus", amount=1))
        await runtime.cancel("stuck-1")
        for word in ("weft", "shed"):
            await runtime.send_event("loop-2", loom.FlowEvent(name="Go", data={"word": word}))
            await asyncio.sleep(400)
        await asyncio.sleep(86400)
        await runtime.unschedule("nightly")
        await asyncio.sleep(30 * 86400)
        results = {run_id: await (await runtime.handler(run_id)) for run_id in RESULTS}
        flows = {run_id: await _flow(runtime, run_id) for run_id in ("loop-2", "failed-flow-1")}
        others = ("stuck-1", "cancelled-1", "nightly:20231116T003000Z")
        return results, flows, {run_id: (await runtime.get(run_id)).status for run_id in others}


async def _flow(runtime: Any, run_id: str) -> tuple[str, dict[str, Any], list[int]]:
    """Read how a flow ended, and the iterations of its loop in the order in which they were published."""
    handler = await runtime.handler(run_id)
    result = await handler
    events = [event async for event in handler.stream_events(expose_internal=True, after=-1)]
    iterations = [event.iteration for event in events if isinstance(event, loom.LoopIterationEvent)]
    return result.status, result.outputs, [number for number in iterations if number is not None]
