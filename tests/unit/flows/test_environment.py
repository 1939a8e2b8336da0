"""The environment of expressions: the variables of a `foreach`, such as the result of the iteration before."""

from __future__ import annotations

from typing import Any

import pytest

import loom
from loom.effects.actions.handlers import HANDLERS
from loom.testing import run_virtual

Data = dict[str, Any]


def run(actions: Data, **given: Any) -> loom.FlowResult:
    async def main() -> loom.FlowResult:
        return await loom.load({"actions": actions}).run(**given)

    return run_virtual(main())


def compose(inputs: Any, **more: Any) -> Data:
    return {"type": "compose", "inputs": inputs, **more}


def foreach(items: Any, actions: Data, **more: Any) -> Data:
    return {"type": "foreach", "foreach": items, "actions": actions, **more}


def test_an_iteration_reads_the_outputs_of_the_one_before() -> None:
    body = {
        "sum": compose("@add(coalesce(variables('loopResult')?['sum'], 0), item())"),
        "first": compose("@equals(variables('loopResult'), null)"),
    }
    result = run({"each": foreach([1, 2, 3, 4], body)})
    assert result.actions["each"].outputs == [
        {"sum": 1, "first": True},
        {"sum": 3, "first": False},
        {"sum": 6, "first": False},
        {"sum": 10, "first": False},
    ]


def test_the_start_time_is_when_the_loop_began() -> None:
    rest = {"type": "wait", "inputs": {"interval": "PT1H"}}
    actions = {
        "before": compose("@utcNow()"),
        "each": foreach([1, 2], {"rest": rest, "when": compose("@variables('loopStartTime')")}),
    }
    result = run(actions)
    assert [entry["when"] for entry in result.actions["each"].outputs] == [result.actions["before"].outputs] * 2


def test_the_nested_example_of_pages_and_items() -> None:
    """An outer loop over pages and a `foreach` over the items of each, which sees the variables of both."""
    seen = {
        "outer": "@variables('outerLoop_loopIndex')",
        "page": "@variables('outerLoop_loopResult')?['fetchPage']",
        "index": "@variables('loopIndex')",
        "before": "@variables('loopResult')?['processItem']?['index']",
    }
    outer = {
        "type": "until",
        "condition": "@equals(variables('loopIndex'), 2)",
        "actions": {
            "fetchPage": compose("@concat('page ', string(variables('loopIndex')))"),
            "processItems": foreach(["x", "y"], {"processItem": compose(seen)}),
            "note": {
                "type": "appendToArrayVariable",
                "inputs": {"name": "log", "value": {"page": "@outputs('processItems')"}},
            },
        },
    }
    result = run({"outerLoop": outer}, variables={"log": []})
    assert result.status == "Succeeded", result.error
    flat = [tuple(entry["processItem"].values()) for one in result.variables["log"] for entry in one["page"]]
    assert flat == [(0, None, 0, None), (0, None, 1, 0), (1, "page 0", 0, None), (1, "page 0", 1, 0)]


def test_a_named_foreach_is_read_from_further_in() -> None:
    inner = {
        "type": "doUntil",
        "condition": "@greaterOrEquals(variables('loopIndex'), 1)",
        "actions": {
            "deep": compose(
                {
                    "before": "@variables('each_loopResult')?['name']",
                    "same": "@equals(variables('each_loopStartTime'), variables('loopStartTime'))",
                }
            )
        },
    }
    result = run({"each": foreach(["a", "b"], {"name": compose("@item()"), "inner": inner})})
    before = [entry["inner"]["deep"]["before"] for entry in result.actions["each"].outputs]
    assert (result.status, before) == ("Succeeded", [None, "a"])


def test_an_iteration_side_by_side_reads_null_where_the_one_before_has_not_ended() -> None:
    wide = {"runtimeConfiguration": {"concurrency": {"repetitions": 2}}}
    rest = {"type": "wait", "inputs": {"interval": "@{if(equals(item(), 0), 'PT3M', 'PT1M')}"}}
    body = {"rest": rest, "own": compose("@item()"), "before": compose("@variables('loopResult')?['own']")}
    result = run({"each": foreach([0, 1, 2, 3], body, **wide)})
    assert [entry["before"] for entry in result.actions["each"].outputs] == [None, None, 1, 2]


def test_a_retried_iteration_reads_what_the_finished_one_before_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [2]

    async def fragile(given: int) -> int:
        if given in failures:
            failures.remove(given)
            raise ConnectionError("no line")
        return given

    monkeypatch.setitem(HANDLERS.activities, "fragile", fragile)
    step = {"type": "activity", "inputs": {"activityType": "fragile", "input": "@item()"}}
    body = {"step": step, "before": compose("@variables('loopResult')?['step']")}

    async def main() -> Any:
        async with loom.connect("memory://") as runtime:
            runtime.register(loom.load({"actions": {"each": foreach([1, 2, 3], body)}}), name="flow")
            assert (await (await runtime.start("flow", run_id="r"))).status == "Failed"
            await runtime.retry("r")
            return await (await runtime.handler("r"))

    result = run_virtual(main())
    assert [entry["before"] for entry in result.actions["each"].outputs] == [None, 1, 2]


def test_what_grows_by_itself_is_stopped() -> None:
    twice = compose(["@variables('loopResult')", "@variables('loopResult')", "@variables('text')"])
    result = run({"each": foreach("@range(0, 60)", {"twice": twice})}, variables={"text": "x" * 4_000_000})
    assert (result.status, result.error and result.error["code"]) == ("Failed", "InvalidTemplate")


def test_what_a_secure_iteration_had_is_hidden_in_the_next() -> None:
    secure = {"runtimeConfiguration": {"secureData": {"properties": ["inputs", "outputs"]}}}
    body = {"secret": compose("@item()", **secure), "shown": compose("@variables('loopResult')?['secret']")}
    result = run({"each": foreach(["open sesame", "x"], body)})
    assert result.status == "Succeeded"
    assert "sesame" not in str(result)
