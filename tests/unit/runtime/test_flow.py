"""Flows: what they begin with, and how users run them."""

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


# -- use --------------------------------------------------------------------------------------------------------------


STANDARD = {
    "triggers": {"manual": {"type": "Request"}},
    "actions": {"Show": {"type": "Compose", "inputs": "@parameters('Service-Url')"}},
}


async def test_a_parameter_that_the_document_only_reads_may_be_given():
    flow = loom.load(STANDARD)
    result = await flow.run(parameters={"service-url": ["any", "kind"]})
    assert result.actions["Show"].outputs == ["any", "kind"]
    result = await flow.run()
    assert result.status == "Failed"
    assert "There is no parameter 'Service-Url' in this flow." in result.error["message"]
    with pytest.raises(WorkflowRuntimeError, match=r"no parameter 'ServiceUrl'\. Did you mean 'Service-Url'\?"):
        await flow.run(parameters={"ServiceUrl": "x"})


async def test_such_a_parameter_is_given_in_a_store_too(tmp_path):
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
        runtime.register(loom.load(STANDARD), name="standard")
        handler = await runtime.start("standard", parameters={"Service-Url": "here"}, run_id="one")
        assert (await handler).actions["Show"].outputs == "here"


@pytest.mark.parametrize("source", [None, [], b"{}", 5])
def test_load_says_what_it_takes(source):
    with pytest.raises(TypeError, match=r"loom\.load\(\) takes a path, a text in JSON or YAML, or a dict, not "):
        loom.load(source)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_iteration": 5}, "There is no limit 'max_iteration': .* Did you mean 'max_iterations'?"),
        ({"max_iterations": "many"}, "The limit max_iterations must be a number above 0, not 'many'."),
        ({"max_duration_s": float("nan")}, "The limit max_duration_s must be a number above 0, not nan."),
    ],
)
def test_limits_that_mean_nothing_are_refused(limits, reason):
    with pytest.raises(ValueError, match=reason):
        loom.load(STANDARD, limits=limits)


async def test_a_failure_names_the_action_that_failed():
    flow = loom.load(
        {
            "triggers": {"manual": {"type": "Request"}},
            "actions": {
                "Outer": {"type": "Scope", "actions": {"Inner": {"type": "Http", "inputs": {"uri": "nowhere"}}}},
                "Other": {"type": "Compose", "inputs": 1},
            },
        }
    )
    result = await flow.run()
    assert result.failed_action is result.actions["Inner"]
    expected = "The flow ended Failed in 'Inner': An action in 'Outer' has ended Failed: The uri must begin with"
    with pytest.raises(loom.FlowFailed, match=expected):
        result.raise_for_status()
    result = await loom.load({"sum": {"type": "compose", "inputs": "@int('x')"}}).run()
    with pytest.raises(loom.FlowFailed, match="The flow ended Failed: Action 'sum', "):
        result.raise_for_status()
    assert (await loom.load({"a": {"type": "compose", "inputs": 1}}).run()).failed_action is None


async def test_an_activity_that_is_nearly_there_is_named():
    @loom.activity("send_invoice")
    def send_invoice() -> None: ...

    result = await loom.load({"a": {"type": "activity", "inputs": {"activityType": "send_invoce"}}}).run()
    assert result.error["message"] == (
        "No activity is registered as 'send_invoce'. Did you mean 'send_invoice'? "
        "Register one with @loom.activity('send_invoce')."
    )
