"""A workflow that starts itself comes to an end."""

from __future__ import annotations

import asyncio

import pytest

import loom
from loom.effects.child_runs import MAX_NESTING
from loom.runtime.durable import families

SELF = {
    "actions": {
        "deeper": {"type": "workflow", "inputs": {"workflow": "self"}},
    }
}


async def test_a_flow_that_calls_itself_fails_at_the_limit() -> None:
    async with loom.connect("memory://", idle_timeout=None) as runtime:
        runtime.register(loom.load(SELF, name="self"))
        result = await (await runtime.start("self", None, run_id="top"))
        assert result.status == "Failed"
        assert f"nested more than {MAX_NESTING} deep" in result.actions["deeper"].error["message"]
        assert len([info async for info in runtime.list()]) == MAX_NESTING + 1


TWICE = {
    "actions": {
        "both": {
            "type": "foreach",
            "items": [1, 2, 3],
            "actions": {"deeper": {"type": "workflow", "inputs": {"workflow": "twice"}}},
            "runtimeConfiguration": {"concurrency": {"repetitions": 3}},
        },
    }
}


async def test_a_flow_that_calls_itself_more_than_once_fails_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "MAX_OPEN", 50)
    async with loom.connect("memory://", idle_timeout=None) as runtime:
        runtime.register(loom.load(TWICE, name="twice"))
        async with asyncio.timeout(60):
            result = await (await runtime.start("twice", None, run_id="top"))
        assert result.status == "Failed"
        assert result.error is not None
        assert "More than 50 open runs descend from the run 'top'." in result.error["message"]
        assert len([info async for info in runtime.list()]) < 250
