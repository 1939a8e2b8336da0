"""What a flow begins with is checked before anything is begun."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel

import loom
from loom.steps.errors import WorkflowRuntimeError

SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
ECHO = {"echo": {"type": "Compose", "inputs": "@triggerBody()"}}


def request(**more: Any) -> dict[str, Any]:
    trigger = {"type": "Request", "kind": "Http", "inputs": {"schema": SCHEMA}, **more}
    return {"contentVersion": "1.0.0.0", "triggers": {"manual": trigger}, "actions": ECHO}


async def test_a_request_is_checked_only_if_it_asks_for_it() -> None:
    assert (await loom.load(request()).run(body="no object")).actions["echo"].outputs == "no object"
    checked = loom.load(request(operationOptions="EnableSchemaValidation"))
    with pytest.raises(WorkflowRuntimeError, match=r"does not fit the schema of the trigger 'manual'.*id"):
        checked.run(body={})
    assert (await checked.run(body={"id": 3})).actions["echo"].outputs == {"id": 3}


async def test_looms_own_trigger_means_its_schema() -> None:
    flow = loom.load({"triggers": {"go": {"type": "manual", "inputs": {"schema": SCHEMA}}}, "actions": ECHO})
    with pytest.raises(WorkflowRuntimeError, match="trigger 'go'"):
        flow.run(body={"id": "three"})
    assert (await flow.run(body={"id": 3})).status == "Succeeded"


async def test_a_stored_start_is_refused_before_it_is_stored() -> None:
    flow = loom.load(request(operationOptions="EnableSchemaValidation"), name="checked")
    async with loom.connect("memory://") as runtime:
        runtime.register(flow)
        with pytest.raises(WorkflowRuntimeError, match="does not fit"):
            await runtime.start("checked", {"id": None}, run_id="r")
        with pytest.raises(loom.RunNotFound):
            await runtime.get("r")


class Order(BaseModel):
    id: int
    due: date


async def test_models_and_dates_are_data() -> None:
    flow = loom.load({"actions": {"echo": {"type": "compose", "inputs": "@triggerBody()"}}})
    result = await flow.run(body={"orders": [Order(id=3, due=date(2026, 1, 2))]})
    assert result.actions["echo"].outputs == {"orders": [{"id": 3, "due": "2026-01-02"}]}
    with pytest.raises(ValueError, match=r"body\.x is a object, which JSON has no form for"):
        flow.run(body={"x": object()})
