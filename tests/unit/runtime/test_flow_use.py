"""Flows as a Python developer uses them: what load() takes, what a run may be given, what a failure says."""

from __future__ import annotations

import pytest

import loom
from loom.steps.errors import WorkflowRuntimeError

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
