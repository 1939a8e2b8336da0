"""Flows for the tests of the command line, and a worker for them between commands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from cli_rig import STORE, data

from loom.cli.targets import load_handlers, named_workflows
from loom.runtime.connect import connect

HANDLERS = """
import loom

calls = []


@loom.activity("double")
def double(value):
    return value * 2


@loom.activity("fail")
def fail(value):
    raise ValueError(f"{value} is not good")


@loom.activity("use")
def use(value):
    return {"made_of": value["key"]}


@loom.action("ApiConnection")
def connector(inputs):
    return {"statusCode": 200, "body": inputs}
"""

COUNT = {
    "parameters": {"to": {"type": "int", "defaultValue": 3}},
    "actions": {
        "count": {
            "type": "until",
            "condition": "@greaterOrEquals(variables('loopIndex'), parameters('to'))",
            "actions": {"say": {"type": "compose", "inputs": {"n": "@variables('loopIndex')"}}},
            "limit": {"count": 100},
        },
        "last": {"type": "activity", "inputs": {"activityType": "double", "input": "@parameters('to')"}},
    },
    "outputs": {"twice": {"type": "int", "value": "@body('last')"}},
}
"""Counts to a parameter, in Loom's dialect."""

NESTED = {
    "actions": {
        "outer": {
            "type": "until",
            "condition": "@greaterOrEquals(variables('loopIndex'), 2)",
            "limit": {"count": 5},
            "actions": {
                "each": {
                    "type": "foreach",
                    "items": "@createArray('a', 'b', 'c')",
                    "actions": {
                        "ask": {"type": "waitForEvent", "inputs": {"event": "Go", "timeout": "PT1H"}},
                        "note": {"type": "compose", "inputs": {"item": "@item()"}},
                    },
                },
            },
        }
    }
}
"""Waits for an event in each iteration of a loop in a loop."""

SECRET = {
    "parameters": {
        "key": {"type": "securestring"},
        "open": {"type": "string", "defaultValue": "seen"},
    },
    "triggers": {"manual": {"type": "Request", "kind": "Http"}},
    "actions": {
        "Ask": {"type": "waitForEvent", "inputs": {"event": "Answer"}, "runAfter": {}},
        "Use": {
            "type": "activity",
            "inputs": {"activityType": "use", "input": {"key": "@parameters('key')"}},
            "runAfter": {"Ask": ["Succeeded"]},
            "runtimeConfiguration": {"secureData": {"properties": ["inputs", "outputs"]}},
        },
        "Respond": {
            "type": "Response",
            "inputs": {"statusCode": 201, "body": {"open": "@parameters('open')"}},
            "runAfter": {"Use": ["Succeeded"]},
        },
    },
}
"""Uses a secret, in the dialect of Logic Apps, after somebody has answered."""

RETRIED = {
    "actions": {
        "try": {
            "type": "activity",
            "inputs": {"activityType": "fail", "input": 1},
            "retry": {"type": "fixed", "count": 3, "interval": "PT1H"},
        }
    }
}

FLOWS: dict[str, Any] = {"count": COUNT, "nested": NESTED, "secret": SECRET, "retried": RETRIED}


def write_flows(place: Path) -> None:
    """All flows as files, and the code that they call."""
    for name, definition in FLOWS.items():
        (place / f"{name}.json").write_text(json.dumps(definition))
    (place / "flow_handlers.py").write_text(HANDLERS)


def until_rest(run_id: str, *targets: str) -> None:
    """Work for flows until a run waits for something or is over, and has nothing in its mail."""
    asyncio.run(_work(run_id, targets))


async def _work(run_id: str, targets: tuple[str, ...]) -> None:
    load_handlers(["flow_handlers.py"])
    async with asyncio.timeout(60), connect(STORE) as runtime:
        for name, workflow in named_workflows(targets).items():
            runtime.register(workflow, name=name)
        while True:
            # The mail first: what was taken out of it before is in the row and the state that are read behind it.
            messages = await runtime.store.inbox(run_id, 0)
            info = await runtime.get(run_id)
            waits = info.ticks and (info.idle_since is not None or _sleeps(await runtime.state_at(run_id)))
            if not messages and (info.status != "running" or waits):
                return
            await asyncio.sleep(0.005)


def _sleeps(state: Any) -> bool:
    return bool(state.timers) and not any(
        worker.in_progress or worker.queue or worker.suspended for worker in state.workers.values()
    )


def status(run_id: str) -> Any:
    """What programs are told about a run."""
    return data("workflow", "status", run_id)
