"""Answers of a run become static results, with which the definition runs without a network."""

from __future__ import annotations

import json
from typing import Any

import pytest

import loom
from loom.testing import isolated_handlers, record_static_results

ANSWER: dict[str, Any] = {
    "statusCode": 200,
    "headers": {"Set-Cookie": "session=1", "X-Api-Key": "k", "Content-Type": "application/json"},
    "body": {
        "@odata.type": "#mail",
        "text": "@{utcNow()} and @now",
        "at": "@utcNow()",
        "access_token": "abc",
        "clientSecret": "def",
        "tokens": 7,
        "place": "https://x.example.com/a?sig=sign%2F&page=2",
        "said": "Authorization: Bearer abcdef123456",
        "echo": "my geheim-key here",
        "value": [{"password": "p"}, {"name": "n"}],
    },
}
DOCUMENT: dict[str, Any] = {
    "contentVersion": "1.0.0.0",
    "triggers": {"manual": {"type": "Request", "inputs": {}}},
    "actions": {
        "Each": {
            "type": "Foreach",
            "foreach": "@createArray(1, 2)",
            "actions": {
                "If": {
                    "type": "If",
                    "expression": {"equals": [1, 1]},
                    "actions": {"Get": {"type": "Http", "inputs": {"uri": "https://x.example.com/@{item()}"}}},
                    "else": {"actions": {"Never": {"type": "Http", "inputs": {"uri": "https://x.example.com/"}}}},
                }
            },
            "runAfter": {},
        },
        "Fail": {
            "type": "ApiConnection",
            "inputs": {"host": {"connection": {"referenceName": "mail"}}, "path": "/", "retryPolicy": {"type": "none"}},
            "runAfter": {"Each": ["Succeeded"]},
        },
        "Hidden": {
            "type": "Http",
            "inputs": {"uri": "https://x.example.com/hidden"},
            "runtimeConfiguration": {"secureData": {"properties": ["outputs"]}},
            "runAfter": {"Fail": ["Failed"]},
        },
        "Read": {"type": "Compose", "inputs": "@body('Get')?['at']", "runAfter": {"Hidden": ["Succeeded"]}},
    },
}


async def test_a_recorded_definition_answers_as_the_services_did() -> None:
    with isolated_handlers(empty=True) as handlers:
        http = handlers.mock_action("Http", returns=ANSWER)
        handlers.mock_connector("mail", returns={"statusCode": 410, "body": "gone"})
        loom.connector("other", openapi={"swagger": "2.0", "paths": {}}, auth=loom.BearerToken(token="geheim-key"))
        flow = loom.load(DOCUMENT)
        first = await flow.run()
        assert len(http.calls) == 3
        recorded = record_static_results(flow, first)
    text = json.dumps(recorded)
    for secret in ("session=1", '"k"', "abc", "def", "sign%2F", "geheim-key", '"p"'):
        assert secret not in text
    assert recorded["actions"]["Hidden"] == DOCUMENT["actions"]["Hidden"]
    assert set(recorded["staticResults"]) == {"Get (recorded)", "Fail (recorded)"}
    with isolated_handlers(empty=True) as handlers:
        hidden = handlers.mock_action("Http")
        second = await loom.load(json.loads(text)).run()
        assert [call.action for call in hidden.calls] == ["Hidden"]
    assert second.status == first.status
    assert second.actions["Fail"].code == "Gone"
    assert second.actions["Read"].outputs == "@utcNow()"
    body = second.actions["Get"].outputs["body"]
    kept = ("@odata.type", "text", "at", "tokens")
    assert {key: body[key] for key in kept} == {key: ANSWER["body"][key] for key in kept}
    assert body["place"] == "https://x.example.com/a?sig=*** masked ***&page=2"
    assert body["value"] == [{"password": "*** masked ***"}, {"name": "n"}]
    assert second.actions["Get"].outputs["headers"]["Content-Type"] == "application/json"


@pytest.mark.parametrize("document", [{"A": {"type": "http", "inputs": {"uri": "https://x.example.com"}}}])
async def test_bare_actions_are_recorded_too(document: dict[str, Any]) -> None:
    with isolated_handlers(empty=True) as handlers:
        handlers.mock_action("http", returns={"body": 1})
        flow = loom.load(document)
        recorded = record_static_results(flow, await flow.run())
        again = record_static_results(loom.load(recorded), await loom.load(recorded).run())
    assert again["staticResults"] == recorded["staticResults"]
    assert (await loom.load(recorded).run()).actions["A"].outputs["body"] == 1
