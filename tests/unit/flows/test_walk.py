"""The walk under odd input: joins below skipped actions, refused values, odd numbers, callers that change data."""

from __future__ import annotations

import math
from typing import Any

import pytest

import loom
from loom.effects.actions.handlers import HANDLERS
from loom.flows.plain import plain_value
from loom.flows.progress import loop_progress
from loom.steps.errors import ContextSerdeError
from loom.testing import run_virtual

REQUEST = {"manual": {"type": "Request"}}
SECRET = "s3cret-value"


def after(**statuses: str) -> dict[str, list[str]]:
    return {name: [status] for name, status in statuses.items()}


def activity(name: str, given: Any, **more: Any) -> dict[str, Any]:
    return {"type": "activity", "inputs": {"activityType": name, "input": given}, **more}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the activity `tell` was told."""
    heard: list[Any] = []

    def tell(given: Any) -> Any:
        heard.append(given)
        return given

    monkeypatch.setitem(HANDLERS.activities, "tell", tell)
    return heard


async def ended(actions: dict[str, Any], **more: Any) -> Any:
    return await loom.load({"triggers": REQUEST, "actions": actions, **more}).run()


async def test_an_action_after_a_failed_and_a_skipped_one_runs_once(told: list[Any]) -> None:
    result = await ended(
        {
            "A": {"type": "Compose", "inputs": "@int('x')"},
            "B": {"type": "Compose", "inputs": 1, "runAfter": after(A="Succeeded")},
            "C": activity("tell", "c", runAfter=after(A="Failed", B="Skipped")),
            "D": activity("tell", "d", runAfter=after(C="Succeeded")),
        }
    )
    assert told == ["c", "d"]
    assert result.status == "Succeeded"


BROKEN = {"$content-type": "text/plain", "$content": "!!!"}
REFUSED: dict[str, dict[str, Any]] = {
    "an unknown kind": {"type": "Expression", "kind": "Guess", "inputs": {}},
    "a join": {"type": "Join", "inputs": {"from": [BROKEN], "joinWith": ","}},
    "a table": {"type": "Table", "inputs": {"from": [{"a": BROKEN}], "format": "CSV"}},
    "a terminate": {"type": "Terminate", "inputs": {"runStatus": "Failed", "runError": {"message": BROKEN}}},
    "a name": {"type": "SetVariable", "inputs": {"name": BROKEN, "value": 1}},
    "too deep": {"type": "Compose", "inputs": f"@first(createArray(createArray(json('{'[' * 100}{']' * 100}'))))"},
}


@pytest.mark.parametrize("what", REFUSED)
async def test_what_an_action_refuses_fails_the_action_and_never_the_engine(what: str) -> None:
    result = await ended({"A": REFUSED[what], "Rest": {"type": "Compose", "inputs": 1, "runAfter": after(A="Failed")}})
    assert (result.actions["A"].status, result.actions["A"].code) == ("Failed", "InvalidTemplate")
    assert result.actions["Rest"].status == "Succeeded"


async def test_numbers_that_no_store_keeps_do_not_get_into_a_run() -> None:
    parsed = await ended({"A": {"type": "ParseJson", "inputs": {"content": '{"a": 1e99, "b": "\\ud83d"}'}}})
    assert parsed.actions["A"].outputs == {"body": {"a": 1e99, "b": "\ufffd"}}
    refused = await ended({"A": {"type": "ParseJson", "inputs": {"content": '{"a": 1e999}'}}})
    assert refused.actions["A"].code == "InvalidContent"
    start = {"type": "InitializeVariable", "inputs": {"variables": [{"name": "v", "type": "Float", "value": 1.7e308}]}}
    more = {"type": "IncrementVariable", "inputs": {"name": "v", "value": 1.7e308}, "runAfter": after(I="Succeeded")}
    grown = await ended({"I": start, "S": more})
    assert grown.actions["S"].status == "Failed"
    assert math.isfinite(grown.variables["v"])
    assert plain_value([10**400, -(10**400), 2**63]) == ["Infinity", "-Infinity", float(2**63)]


def test_nobody_waits_longer_than_time_can_be_written() -> None:
    waiting = {"type": "Wait", "inputs": {"interval": {"count": 1e308, "unit": "Year"}}}

    async def begun() -> float:
        handler = loom.load({"triggers": REQUEST, "actions": {"A": waiting}}).run()
        plan: Any = handler.ctx._run.state.plan
        (wait,) = plan.waits.values()
        await handler.cancel_run()
        due: float = wait.due
        return due

    assert run_virtual(begun()) == 253_402_300_799.0


async def test_handlers_and_readers_get_data_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(given: list[Any]) -> int:
        given.append("spoilt")
        return len(given)

    monkeypatch.setitem(HANDLERS.activities, "spoil", spoil)
    value = [1]
    variable = {"name": "v", "type": "Array", "value": value}
    flow = loom.load(
        {
            "triggers": REQUEST,
            "actions": {
                "I": {"type": "InitializeVariable", "inputs": {"variables": [variable]}},
                "A": activity("spoil", "@variables('v')", runAfter=after(I="Succeeded")),
                "B": {
                    "type": "Compose",
                    "inputs": {"v": "@variables('v')", "own": [1]},
                    "runAfter": after(A="Succeeded"),
                },
            },
        }
    )
    value.append("changed after the load")
    for _ in range(2):
        result = await flow.run()
        assert (result.actions["A"].outputs, result.actions["B"].outputs) == (2, {"v": [1], "own": [1]})
        result.actions["B"].outputs["own"].append("changed by the reader")
        result.variables["v"].append("changed by the reader")


async def test_a_loop_whose_delay_cannot_be_evaluated_leaves_nothing_behind() -> None:
    delay = {"interval": {"count": "@int('x')", "unit": "second"}}
    loop = {"type": "until", "condition": "@equals(1, 2)", "delay": delay, "actions": {"C": {"type": "compose"}}}
    flow = loom.load(
        {
            "actions": {
                "P": {
                    "type": "parallel",
                    "actions": {
                        "S": {"type": "scope", "actions": {"L": loop}},
                        "W": {"type": "wait", "inputs": {"interval": {"count": 1, "unit": "hour"}}},
                    },
                }
            }
        }
    )
    handler = flow.run()
    plan: Any = handler.ctx._run.state.plan
    assert loop_progress(flow.program, plan, 0.0) == []
    await handler.cancel_run()


TELLING: dict[str, dict[str, Any]] = {
    "a terminate": {"actions": {"A": {"type": "Terminate", "inputs": {
        "runStatus": "Failed", "runError": {"code": "@parameters('p')", "message": "@parameters('p')"}
    }}}},
    "the outputs": {"actions": {}, "outputs": {"o": {"type": "string", "value": "@int(parameters('p'))"}}},
    "a static result": {
        "actions": {"A": {
            "type": "Http",
            "inputs": {"uri": "http://x", "method": "GET"},
            "runtimeConfiguration": {"staticResult": {"name": "s", "staticResultOptions": "Enabled"}},
        }},
        "staticResults": {"s": {"status": "Succeeded", "outputs": {"body": "@parameters('p')"}}},
    },
}  # fmt: skip


@pytest.mark.parametrize("how", TELLING)
async def test_secrets_are_not_told_by(how: str) -> None:
    parameters = {"p": {"type": "SecureString", "defaultValue": SECRET}}
    result = await loom.load({"triggers": REQUEST, "parameters": parameters, **TELLING[how]}).run()
    assert SECRET not in repr(result)


def growing(inputs: dict[str, Any], times: int) -> dict[str, Any]:
    """A loop that makes a value of the one before, so many times."""
    start = {"type": "initializeVariable", "inputs": {"variables": [{"name": "x", "type": "object", "value": {}}]}}
    text = {"type": "setVariable", "inputs": {"name": "x", "value": {"text": "@{concat(string(range(1, 9999)))}"}}}
    test = f"@equals(variables('loopIndex'), {times})"
    loop = {"type": "until", "condition": test, "limit": {"count": 1_000}, "actions": {"Grow": inputs}}
    return {"Start": start, "Text": text, "Loop": loop}


SET_X: dict[str, Any] = {"type": "setVariable", "name": "x"}
GROWING: dict[str, tuple[dict[str, Any], str]] = {
    "doubled": ({**SET_X, "value": {"a": "@variables('x')", "b": "@variables('x')"}}, "too large to be kept"),
    "doubled by a function": ({**SET_X, "value": "@setProperty(variables('x'), 'x', variables('x'))"}, "levels deep"),
    "nested": ({**SET_X, "value": {"a": "@variables('x')"}}, "levels deep"),
    "the result before": (
        {"type": "compose", "inputs": {"a": "@variables('loopResult')", "b": "@variables('loopResult')"}},
        "too large to be kept",
    ),
    "selected": (
        {"type": "select", "inputs": {"from": "@range(1, 99999)", "select": "@variables('x')"}},
        "too large to be kept",
    ),
}


@pytest.mark.parametrize("how", GROWING)
async def test_no_value_grows_beyond_what_can_be_written(how: str) -> None:
    action, message = GROWING[how]
    result = await loom.load({"actions": growing(action, 900)}).run()
    assert result.actions["Loop"].status == "Failed"
    assert message in result.actions["Loop"].error["message"]


async def test_texts_do_not_grow_for_ever() -> None:
    start = {"type": "initializeVariable", "inputs": {"variables": [{"name": "x", "type": "string", "value": "x"}]}}
    more = {"type": "appendToStringVariable", "inputs": {"name": "x", "value": "@variables('x')"}}
    loop = {"type": "until", "condition": False, "actions": {"More": more}}
    result = await loom.load({"actions": {"Start": start, "Loop": loop}}).run()
    assert "would have more than 16,777,216 characters" in result.actions["More"].error["message"]


async def test_a_flow_under_way_says_that_it_cannot_be_saved_as_a_context() -> None:
    waiting = {"type": "wait", "inputs": {"interval": {"count": 1, "unit": "hour"}}}
    handler = loom.load({"actions": {"W": waiting}}).run()
    with pytest.raises(ContextSerdeError, match="cannot be saved"):
        handler.ctx.to_dict()
    await handler.cancel_run()


async def test_a_scope_that_is_tried_again_may_answer_and_initialise_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []

    def moody(given: int) -> int:
        tries.append(given)
        if len(tries) == 1:
            raise ValueError("not yet")
        return given

    monkeypatch.setitem(HANDLERS.activities, "moody", moody)
    inside = {
        "I": {"type": "initializeVariable", "inputs": {"variables": [{"name": "v", "type": "integer", "value": 1}]}},
        "R": {"type": "response", "inputs": {"body": "hi"}},
        "A": activity("moody", 1),
    }
    policy = {"type": "fixed", "count": 1, "interval": "PT0S"}
    result = await loom.load({"actions": {"S": {"type": "scope", "retry": policy, "actions": inside}}}).run()
    assert (result.status, result.response["body"], result.variables) == ("Succeeded", "hi", {"v": 1})


async def test_what_was_under_way_when_the_run_ended_is_told_of_the_last_iteration() -> None:
    end = {"X": {"type": "Terminate", "inputs": {"runStatus": "Succeeded"}}}
    test = {"type": "If", "expression": "@equals(iterationIndexes('L'), 3)", "actions": end}
    result = await ended({"L": {"type": "Until", "expression": "@equals(1, 2)", "actions": {"I": test}}})
    loop, branch = result.actions["L"], result.actions["I"]
    assert (loop.status, loop.iterations, branch.status) == ("Cancelled", 4, "Cancelled")
    assert branch.inputs == {"expressionResult": True}
