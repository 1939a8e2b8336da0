"""Failed flows that are retried: what had ended well stays, what was skipped stays skipped, nobody waits in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import loom
from loom.effects.actions.handlers import HANDLERS
from loom.testing import run_virtual


def activity(name: str, *before: str, status: str = "Succeeded") -> dict[str, Any]:
    return {
        "type": "activity",
        "inputs": {"activityType": name, "input": name},
        "runAfter": {one: [status] for one in before},
    }


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the activity `tell` was told. The activity `once` fails the first time."""
    heard: list[str] = []
    tries: list[str] = []

    def once(given: str) -> str:
        tries.append(given)
        if len(tries) == 1:
            raise ValueError("not yet")
        return given

    monkeypatch.setitem(HANDLERS.activities, "tell", heard.append)
    monkeypatch.setitem(HANDLERS.activities, "once", once)
    return heard


def retried(folder: Path, actions: dict[str, Any]) -> Any:
    async def both() -> Any:
        async with loom.connect(f"sqlite:///{folder}/runs.db") as runtime:
            definition = {"triggers": {"manual": {"type": "Request"}}, "actions": actions}
            runtime.register(loom.load(definition), name="flow")
            first = await (await runtime.start("flow", run_id="r"))
            assert first.status == "Failed"
            await runtime.retry("r")
            return await (await runtime.handler("r"))

    return run_virtual(both())


def test_the_handler_of_a_failure_that_was_none_stays_skipped(tmp_path: Path, heard: list[str]) -> None:
    actions = {"A": activity("tell"), "H": activity("tell", "A", status="Failed"), "C": activity("once", "A")}
    result = retried(tmp_path, actions)
    assert (result.status, result.actions["H"].status, heard) == ("Succeeded", "Skipped", ["tell"])


@pytest.mark.usefixtures("heard")
def test_the_response_that_was_given_stays(tmp_path: Path) -> None:
    answer = {"type": "Response", "inputs": {"statusCode": 200, "body": "hi"}}
    assert retried(tmp_path, {"R": answer, "C": activity("once", "R")}).response["body"] == "hi"


@pytest.mark.usefixtures("heard")
def test_a_variable_may_be_initialised_by_the_same_action_again(tmp_path: Path) -> None:
    variables = [{"name": "v", "type": "Integer", "value": 1}]
    inside = {
        "I": {"type": "InitializeVariable", "inputs": {"variables": variables}},
        "M": {"type": "IncrementVariable", "inputs": {"name": "v"}, "runAfter": {"I": ["Succeeded"]}},
        "C": activity("once", "M"),
    }
    result = retried(tmp_path, {"S": {"type": "Scope", "actions": inside}})
    assert (result.status, result.variables) == ("Succeeded", {"v": 2})


def test_an_actor_is_told_again_and_replies_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[int] = []

    def actor(given: int) -> int:
        messages.append(given)
        if len(messages) == 1:
            raise ValueError("not yet")
        return given + 1

    monkeypatch.setitem(HANDLERS.actors, "moody", actor)
    asked = {"type": "actor", "inputs": {"actorType": "moody", "actorId": "7", "input": 1}}
    assert retried(tmp_path, {"A": asked}).actions["A"].outputs == 2
    assert messages == [1, 1]
