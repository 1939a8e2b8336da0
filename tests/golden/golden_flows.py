"""The recorded runs of flows: each case drives one run of a document, under the virtual clock."""

from __future__ import annotations

import asyncio
from typing import Any

from golden_cases import Stage, case

import loom


@loom.activity("golden-halve")
def halve(number: int) -> float:
    if number % 3 == 2:
        raise ValueError(f"{number} is a bad number")
    return number / 2


@loom.actor("golden-counter")
def counter(message: Any, state: dict[str, Any]) -> int:
    state["total"] = state.get("total", 0) + message
    return int(state["total"])


_mended: set[str] = set()
"""What `golden-mend` no longer fails for."""


@loom.activity("golden-mend")
def mend(place: str) -> str:
    if place.endswith("!") and place not in _mended:
        raise ValueError(f"{place} is broken")
    return place


@loom.activity("golden-spin")
async def spin(_: Any, context: loom.ActionContext) -> int:
    if context.attempt < 12:
        raise ConnectionError("not yet")
    return context.attempt


LOOPS: dict[str, Any] = {
    "actions": {
        "init": {
            "type": "initializeVariable",
            "inputs": {"variables": [{"name": "n", "type": "integer"}, {"name": "log", "type": "array"}]},
        },
        "outer": {
            "type": "until",
            "condition": "@greaterOrEquals(variables('n'), 3)",
            "delay": {"interval": {"count": 7, "unit": "minute"}},
            "actions": {
                "more": {"type": "incrementVariable", "inputs": {"name": "n"}},
                "inner": {
                    "type": "doUntil",
                    "condition": "@greaterOrEquals(variables('loopIndex'), 2)",
                    "actions": {
                        "note": {
                            "type": "appendToArrayVariable",
                            "inputs": {"name": "log", "value": "@{variables('outer_loopIndex')}/@{rand(0, 1000)}"},
                        }
                    },
                },
                "count": {"type": "actor", "inputs": {"actorType": "golden-counter", "input": "@variables('n')"}},
            },
        },
        "each": {
            "type": "foreach",
            "items": "@range(0, 2)",
            "actions": {"half": {"type": "activity", "inputs": {"activityType": "golden-halve", "input": "@item()"}}},
        },
        "when": {"type": "compose", "inputs": "@formatDateTime(utcNow(), 'yyyy-MM-ddTHH:mm:ss')"},
    }
}

CATCHING: dict[str, Any] = {
    "$schema": "https://schema.management.azure.com/providers/Microsoft.Logic/schemas/2016-06-01/workflowdefinition.json#",
    "contentVersion": "1.0.0.0",
    "triggers": {"manual": {"type": "Request", "kind": "Http"}},
    "actions": {
        "Try": {
            "type": "Scope",
            "actions": {
                "Each": {
                    "type": "Foreach",
                    "foreach": "@triggerBody()",
                    "actions": {
                        "Half": {"type": "activity", "inputs": {"activityType": "golden-halve", "input": "@item()"}}
                    },
                }
            },
        },
        "Catch": {
            "type": "Compose",
            "inputs": "@result('Try')[0]['status']",
            "runAfter": {"Try": ["Failed", "TimedOut"]},
        },
        "Answer": {
            "type": "Response",
            "inputs": {"statusCode": 200, "body": "@outputs('Catch')"},
            "runAfter": {"Catch": ["Succeeded"]},
        },
    },
}

ASKING: dict[str, Any] = {
    "actions": {
        "try": {
            "type": "retry",
            "action": {"type": "activity", "inputs": {"activityType": "golden-halve", "input": 2}},
            "retryPolicy": {"type": "exponential", "count": 2, "interval": "PT5S"},
        },
        "ask": {
            "type": "waitForEvent",
            "inputs": {"event": "Approval", "schema": {"required": ["ok"]}},
            "runAfter": {"try": ["Failed"]},
        },
        "said": {"type": "compose", "inputs": "@body('ask').ok", "runAfter": {"ask": ["Succeeded"]}},
    }
}

RETRIED: dict[str, Any] = {
    "actions": {
        "init": {"type": "initializeVariable", "inputs": {"variables": [{"name": "log", "type": "array"}]}},
        "rounds": {
            "type": "until",
            "condition": "@greaterOrEquals(variables('loopIndex'), 4)",
            "delay": {"interval": {"count": 3, "unit": "minute"}},
            "actions": {
                "note": {
                    "type": "appendToArrayVariable",
                    "inputs": {"name": "log", "value": "@variables('loopIndex')"},
                },
                "try": {
                    "type": "scope",
                    "actions": {
                        "before": {"type": "compose", "inputs": "@variables('loopResult')"},
                        "round": {
                            "type": "activity",
                            "inputs": {
                                "activityType": "golden-mend",
                                "input": "@{variables('loopIndex')}@{if(equals(variables('loopIndex'), 2), '!', '')}",
                            },
                        },
                    },
                },
            },
        },
        "each": {
            "type": "foreach",
            "items": ["a", "b!", "c", "d!", "e"],
            "runtimeConfiguration": {"concurrency": {"repetitions": 2}},
            "actions": {
                "inner": {
                    "type": "doUntil",
                    "condition": "@equals(variables('loopIndex'), 1)",
                    "actions": {
                        "one": {"type": "activity", "inputs": {"activityType": "golden-mend", "input": "@item()"}}
                    },
                }
            },
        },
        "never": {
            "type": "doUntil",
            "condition": "@false",
            "limit": {"count": 2},
            "actions": {
                "more": {"type": "appendToArrayVariable", "inputs": {"name": "log", "value": "@variables('loopCount')"}}
            },
        },
    }
}

SPINNING: dict[str, Any] = {
    "actions": {
        "spin": {
            "type": "retry",
            "action": {"type": "activity", "inputs": {"activityType": "golden-spin"}},
            "retryPolicy": {"type": "fixed", "count": 900, "interval": "PT0S"},
        },
        "said": {"type": "compose", "inputs": "@outputs('spin')"},
    }
}


async def _run(stage: Stage, run_id: str, document: dict[str, Any], body: Any = None) -> loom.FlowResult:
    async with stage.process(loom.load(document, name=run_id), name=run_id) as runtime:
        result = await (await runtime.start(run_id, body, run_id=run_id))
        assert isinstance(result, loom.FlowResult)
        return result


@case
async def flow_loops(stage: Stage, run_id: str) -> None:
    result = await _run(stage, run_id, LOOPS)
    assert (result.status, result.variables["n"], len(result.variables["log"])) == ("Succeeded", 3, 6)
    assert result.actions["count"].outputs == 6


@case
async def flow_catching(stage: Stage, run_id: str) -> None:
    result = await _run(stage, run_id, CATCHING, [1, 2, 3, 4, 5, 6])
    assert (result.status, result.response and result.response["body"]) == ("Succeeded", "Failed")


@case
async def flow_asking(stage: Stage, run_id: str) -> None:
    flow = loom.load(ASKING, name=run_id)
    async with stage.process(flow, name=run_id) as runtime:
        handler = await runtime.start(run_id, None, run_id=run_id)
        await asyncio.sleep(100)
        await runtime.send_event(run_id, loom.FlowEvent(name="Approval", data={"no": 1}))
        await asyncio.sleep(100)
    async with stage.process(flow, name=run_id) as runtime:
        await runtime.send_event(run_id, loom.FlowEvent(name="Approval", data={"ok": "yes"}))
        handler = await runtime.handler(run_id)
        assert (await handler).actions["said"].outputs == "yes"


@case
async def flow_retried_loop(stage: Stage, run_id: str) -> None:
    _mended.clear()
    async with stage.process(loom.load(RETRIED, name=run_id), name=run_id) as runtime:
        result = await (await runtime.start(run_id, None, run_id=run_id))
        for broken in ("2!", "b!", "d!"):
            assert result.error["message"].endswith(f"{broken} is broken")
            _mended.add(broken)
            await runtime.retry(run_id)
            result = await (await runtime.handler(run_id))
        assert result.error["code"] == "LoopLimitReached"
        await runtime.retry(run_id)
        assert (await (await runtime.handler(run_id))).status == "Failed"


@case
async def flow_spinning_retry(stage: Stage, run_id: str) -> None:
    result = await _run(stage, run_id, SPINNING)
    assert (result.status, result.actions["said"].outputs) == ("Succeeded", 12)
