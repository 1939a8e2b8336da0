"""Calls of triggers: what functions may return, and places that repeat what was sent."""

from __future__ import annotations

from typing import Any

import pytest

import loom
from loom.effects.actions.outcomes import Services
from loom.effects.actions.trigger_calls import TriggerCall, _sealed, _unsealed, poll, subscribe, unsubscribe

INPUTS = {"host": {"connection": {"referenceName": "queue"}}, "method": "get", "path": "/new"}


def call(handler: Any, kind: str = "apiconnection", **fields: Any) -> TriggerCall:
    handlers = loom.ActionHandlers()
    handlers.connector("queue")(handler)
    return TriggerCall("new", kind, INPUTS, INPUTS, Services(handlers=handlers), 0.0, "trigger:f:new", "key", **fields)


@pytest.mark.parametrize(
    ("returned", "status", "outputs"),
    [
        (None, "nothing", {}),
        ({"statusCode": 202}, "nothing", {}),
        ({"statusCode": 204}, "nothing", {}),
        ([1], "data", {"statusCode": 200, "headers": {}, "body": [1]}),
        ({"n": 1}, "data", {"statusCode": 200, "headers": {}, "body": {"n": 1}}),
        ({"body": 1, "headers": {"a": "b"}}, "data", {"statusCode": 200, "headers": {"a": "b"}, "body": 1}),
        ({"statusCode": 503}, "failed", {}),
        ({"statusCode": "no"}, "failed", {}),
    ],
)
async def test_what_a_function_returns_is_an_answer(returned: Any, status: str, outputs: Any) -> None:
    answer = await poll(call(lambda inputs: returned), "")
    assert (answer.status, answer.outputs) == (status, outputs)


async def test_what_a_function_raises_is_told_without_secrets() -> None:
    def fails(inputs: Any) -> None:
        raise ValueError("no entry with s3cret-key and s3cret%2Fkey")

    answer = await poll(call(fails, secrets={"key": "s3cret-key", "other": "s3cret/key"}), "")
    assert answer.code == "ValueError"
    assert "s3cret-key" not in answer.message


async def test_a_subscription_ends_where_it_was_told_to() -> None:
    asked: list[Any] = []

    def answers(inputs: Any) -> Any:
        asked.append(inputs)
        return {"statusCode": 201, "headers": {"location": "/subscriptions/1"}}

    made = await subscribe(call(answers, "apiconnectionwebhook"), "https://loom.example/x")
    assert (made.status, made.place, made.outputs) == ("nothing", "/subscriptions/1", {})
    await unsubscribe(call(answers, "apiconnectionwebhook"), "https://loom.example/x", made.place)
    assert (asked[1]["method"], asked[1]["path"]) == ("delete", "/subscriptions/1")
    await unsubscribe(call(answers, "apiconnectionwebhook"), "https://loom.example/x", "")
    assert len(asked) == 2


def test_places_hold_names_of_secrets() -> None:
    secrets = {"parameter key": "a b/c-secret", "setting short": "abc"}
    place = "https://x.example/items?key=a%20b%2Fc-secret&again=a b/c-secret&abc=1"
    sealed = _sealed(place, secrets)
    assert "secret" not in sealed
    assert "abc=1" in sealed
    assert _unsealed(sealed, secrets) == place
    assert _unsealed(sealed, {**secrets, "parameter key": "another-one"}).count("another-one") == 2
