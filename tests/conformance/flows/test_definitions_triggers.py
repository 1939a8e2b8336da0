"""The triggers of published definitions that poll and subscribe do so, once their connections have connectors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_definitions_load import PUBLISHED

import loom
from loom.api.definitions import TriggerHistory
from loom.flows.triggers import POLLED, SUBSCRIBED
from loom.testing import run_virtual

LACKS_PROJECT = {"C38"}
"""Definitions whose trigger reads a parameter that only their project has."""


def listening(path: Path | None) -> bool:
    if path is None:
        return True  # what says that there are none
    return any(trigger.type in POLLED | SUBSCRIBED for trigger in loom.load(path).program.triggers)


CASES = [each for each in PUBLISHED if not isinstance(each, Path) or listening(each)]


@pytest.mark.parametrize("path", CASES, ids=lambda path: getattr(path, "stem", "none"))
def test_a_published_trigger_fires(path: Path) -> None:
    flow = loom.load(path)
    trigger = next(each for each in flow.program.triggers if each.type in POLLED | SUBSCRIBED)
    assert trigger.connection is not None
    items = [{"ContentData": "e30="}]
    body = {"QueueMessagesList": {"QueueMessage": items}} if trigger.type != "serviceprovider" else items
    handlers = loom.ActionHandlers()

    async def answer(inputs: dict[str, Any], context: loom.ActionContext) -> Any:
        del inputs
        found = {"body": body} if trigger.type in POLLED else {"statusCode": 201, "headers": {"Location": "/s/1"}}
        return found if context.action == trigger.name else {}

    for name in trigger.connection.names:
        handlers.connector(name)(answer)

    async def listened() -> TriggerHistory:
        options: dict[str, Any] = {"handlers": handlers, "callback_url": "https://loom.example", "poll_interval": 600}
        async with loom.connect("memory://", **options) as runtime:
            runtime.register(flow, name="flow")
            await asyncio.sleep(10)
            return await runtime.trigger_history("flow", trigger.name)

    told = run_virtual(listened())
    if path.stem.partition("_")[0] in LACKS_PROJECT:
        assert [each.code for each in told.firings] == ["InvalidInputs"]
    elif trigger.type in POLLED:
        assert [(each.code, each.runs) for each in told.firings] == [("OK", 1)]
    else:
        assert told.subscribed is True
