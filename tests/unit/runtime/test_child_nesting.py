"""A workflow that starts itself comes to an end."""

from __future__ import annotations

import loom
from loom.effects.child_runs import MAX_NESTING

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
