"""An error of the engine itself: the run is parked and says why, instead of breaking again with every look."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.flows.planner import FlowPlanner


async def test_a_run_that_breaks_the_engine_is_parked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = {"type": "wait", "inputs": {"interval": {"count": 0.01, "unit": "second"}}}
    url = f"sqlite:///{tmp_path}/runs.db"

    def broken(*_: Any) -> Any:
        raise RuntimeError("a mistake")

    async def breaks() -> Any:
        async with loom.connect(url) as runtime:
            runtime.register(loom.load({"actions": {"W": waiting}}), name="flow")
            await runtime.start("flow", run_id="r")
            async with asyncio.timeout(60):
                while (info := await runtime.get("r")).parked is None:  # noqa: ASYNC110 - the store tells nobody
                    await asyncio.sleep(0.01)
            return info

    async def goes_on() -> Any:
        async with loom.connect(url) as runtime:
            runtime.register(loom.load({"actions": {"W": waiting}}), name="flow")
            return await (await runtime.handler("r"))

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, logger="loom.durable"):
        patch.setattr(FlowPlanner, "on_timer", broken)
        info = await breaks()
    assert (info.status, info.parked) == ("running", "An error of the engine: RuntimeError: a mistake")
    assert len(caplog.records) == 1
    assert (await goes_on()).status == "Succeeded"
