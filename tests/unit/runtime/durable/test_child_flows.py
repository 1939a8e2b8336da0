"""Flows that run others: what the child answered is told also if it failed, and what it is given is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import loom
from loom.testing import run_virtual

REQUEST = {"manual": {"type": "Request"}}


def parent(**more: Any) -> dict[str, Any]:
    call = {"type": "Workflow", "inputs": {"host": {"workflow": {"id": "child"}}, **more}}
    return {"triggers": REQUEST, "actions": {"W": call}}


def ended(folder: Path, definition: dict[str, Any], child: dict[str, Any]) -> Any:
    async def run() -> Any:
        async with loom.connect(f"sqlite:///{folder}/runs.db") as runtime:
            runtime.register(loom.load(definition), name="parent")
            runtime.register(loom.load({"triggers": REQUEST, **child}), name="child")
            return await (await runtime.start("parent", run_id="r"))

    return run_virtual(run())


def test_a_child_that_failed_has_answered_nevertheless(tmp_path: Path) -> None:
    answer = {"type": "Response", "inputs": {"statusCode": 422, "body": "no"}}
    end = {"type": "Terminate", "inputs": {"runStatus": "Failed", "runError": {"code": "Bad", "message": "sorry"}}}
    child = {"actions": {"R": answer, "T": {**end, "runAfter": {"R": ["Succeeded"]}}}}
    action = ended(tmp_path, parent(), child).actions["W"]
    assert (action.status, action.code, action.error["message"]) == ("Failed", "Bad", "sorry")
    assert (action.outputs["statusCode"], action.outputs["body"]) == (422, "no")


def test_the_parameters_of_a_child_are_known_without_case(tmp_path: Path) -> None:
    answer = {"type": "Response", "inputs": {"body": "@parameters('Key')"}}
    child = {"parameters": {"Key": {"type": "Int"}}, "actions": {"R": answer}}
    assert ended(tmp_path, parent(parameters={"key": 5}), child).actions["W"].outputs["body"] == 5


def test_a_child_is_not_begun_with_parameters_that_it_does_not_have(tmp_path: Path) -> None:
    action = ended(tmp_path, parent(parameters={"other": 5}), {"actions": {}}).actions["W"]
    assert action.status == "Failed"
    assert "There is no parameter 'other'." in action.error["message"]
