"""Calls of connections are compared with the documents of their connectors before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import loom
from loom.effects.actions.connectors.openapi import ApiError, read_api
from loom.testing import isolated_handlers

API: dict[str, Any] = {
    "swagger": "2.0",
    "host": "api.example.com",
    "paths": {
        "/mail": {
            "post": {
                "operationId": "Send",
                "parameters": [
                    {"name": "message", "in": "body", "required": True, "schema": {}},
                    {"name": "X-Box", "in": "header", "required": True, "type": "string"},
                ],
            }
        },
        "/users/{id}/mail": {
            "get": {
                "operationId": "List",
                "x-ms-pageable": {"nextLinkName": "next"},
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "type": "string"},
                    {"name": "box", "in": "query", "required": True, "type": "string"},
                    {"name": "top", "in": "query", "required": True, "type": "integer", "default": 5},
                ],
            }
        },
    },
}


def problems(*actions: dict[str, Any], trigger: dict[str, Any] | None = None) -> list[str]:
    """What loading says, as `severity path: message`; the handlers are those of the test."""
    document = {
        "contentVersion": "1.0.0.0",
        "triggers": {"t": trigger or {"type": "Request", "inputs": {}}},
        "actions": {f"A{n}": {"runAfter": {}, **action} for n, action in enumerate(actions)},
    }
    try:
        found = loom.load(document).warnings
    except loom.DefinitionError as error:
        found = list(error.problems)
    return [f"{problem.severity} {problem}" for problem in found]


def call(**inputs: Any) -> dict[str, Any]:
    return {"type": "ApiConnection", "inputs": {"host": {"connection": {"referenceName": "mail"}}, **inputs}}


def named(operation: str, parameters: dict[str, Any] | None) -> dict[str, Any]:
    inputs = {"host": {"connectionName": "mail", "operationId": operation}, "parameters": parameters}
    return {"type": "OpenApiConnection", "inputs": inputs}


GOOD_LIST = {"method": "get", "path": "/users/@{encodeURIComponent(triggerBody())}/mail", "queries": {"box": "in"}}


@pytest.fixture(autouse=True)
def _mail() -> Any:
    with isolated_handlers(empty=True):
        loom.connector("mail", openapi=API)
        yield


@pytest.mark.parametrize(
    "action",
    [
        call(**GOOD_LIST),
        call(method="GET", path="/users/7/mail/", queries={"box": "@triggerBody()"}),
        call(method="get", path="@triggerBody()"),
        call(method="get", path="[concat('/x', parameters('y'))]"),
        call(method="get", path="/users/7/mail", queries="@triggerBody()"),
        call(method="get", path="/users/7/mail", queries={"@{triggerBody()}": 1}),
        call(method="post", path="/mail", body={}, headers={"x-box": "a"}),
        named("List", {"id": 1, "box": "in"}),
        named("list", {"ID": 1, "box": "in", "top": 1}),
        named("@{triggerBody()}", {}),
        named("Send", {"message/To": "a", "message/Items": [], "X-Box": "b"}),
        named("Send", {"body/To": "a", "X-Box": "b"}),
    ],
)
def test_calls_that_fit_are_not_objected_to(action: dict[str, Any]) -> None:
    assert problems(action) == []


@pytest.mark.parametrize(
    ("action", "said"),
    [
        (
            call(method="get", path="/user/7/mail", queries={"box": "in"}),
            "error actions.A0.inputs.path: the connector 'mail' has no operation GET /user/7/mail "
            "(did you mean '/users/{id}/mail'?)",
        ),
        (
            call(method="get", path="/users/@{encodeURIComponent('a')}/mails", queries={"box": "in"}),
            "error actions.A0.inputs.path: the connector 'mail' has no operation GET "
            "/users/@{encodeURIComponent('a')}/mails (did you mean '/users/{id}/mail'?)",
        ),
        (
            call(method="get", path="/users/@{triggerBody()}/mails", queries={"box": "in"}),
            "warning actions.A0.inputs.path: the connector 'mail' has no operation GET /users/@{triggerBody()}/mails "
            "(did you mean '/users/{id}/mail'?)",
        ),
        (
            call(method="delete", path="/mail"),
            "error actions.A0.inputs.method: the connector 'mail' has no DELETE for this path (it has POST)",
        ),
        (call(method="get"), "error actions.A0.inputs: an action of the connector 'mail' needs a path"),
        (
            call(method="get", path="/users/7/mail"),
            "error actions.A0.inputs: 'List' needs the query parameter 'box'",
        ),
        (
            call(method="get", path="/users/7/mail", queries={"bix": 1}),
            "error actions.A0.inputs.queries: 'List' needs the query parameter 'box'",
        ),
        (
            call(method="get", path="/users/7/mail", queries={"box": 1, "topp": 2}),
            "warning actions.A0.inputs.queries.topp: 'List' has no query parameter 'topp' (did you mean 'top'?)",
        ),
        (call(method="post", path="/mail", headers={"X-Box": 1}), "error actions.A0.inputs: 'Send' needs a body"),
        (
            call(method="post", path="/mail", body=1, headers={}),
            "error actions.A0.inputs.headers: 'Send' needs the header parameter 'X-Box'",
        ),
        (
            named("Lost", {}),
            "error actions.A0.inputs.host.operationId: the connector 'mail' has no operation 'Lost' "
            "(did you mean 'List'?)",
        ),
        (named("List", {"id": 1}), "error actions.A0.inputs.parameters: 'List' needs the parameter 'box'"),
        (named("List", {"box": 1}), "error actions.A0.inputs.parameters: 'List' needs the parameter 'id'"),
        (
            named("List", {"id": 1, "box": 2, "skip": 3}),
            "error actions.A0.inputs.parameters.skip: 'List' has no parameter 'skip'",
        ),
        (named("Send", {"X-Box": 1}), "error actions.A0.inputs.parameters: 'Send' needs the parameter 'message'"),
    ],
)
def test_calls_that_do_not_fit_are_refused_with_their_path(action: dict[str, Any], said: str) -> None:
    assert said in problems(action)


def test_a_trigger_is_checked_like_an_action() -> None:
    trigger = call(method="get", path="/nowhere") | {"recurrence": {"frequency": "Minute", "interval": 1}}
    (said,) = problems(trigger=trigger)
    assert said.startswith("error triggers.t.inputs.path: the connector 'mail' has no operation GET /nowhere")


def test_pages_of_an_operation_without_pages_are_warned_of() -> None:
    paging = {"runtimeConfiguration": {"paginationPolicy": {"minimumItemCount": 10}}}
    assert problems(call(**GOOD_LIST) | paging) == []
    (said,) = problems(named("Send", {"message": 1, "X-Box": 2}) | paging)
    assert said.startswith("warning actions.A0.runtimeConfiguration.paginationPolicy: 'Send' has no pages")


@pytest.mark.parametrize(
    "host",
    [
        {"connection": {"name": "@parameters('$connections')['mail']['connectionId']"}},
        {"connection": {"name": "@parameters('$connections')?['Mail']?['connectionId']"}},
        {"connection": {"name": "@json(decodeBase64(triggerBody()))['$connections']['mail']['connectionId']"}},
        {"connection": {"referenceName": "MAIL"}},
        {"connection": {"name": "/subscriptions/s/providers/Microsoft.Web/connections/mail"}},
    ],
)
def test_a_connection_is_known_by_each_of_its_names(host: dict[str, Any]) -> None:
    action = {"type": "ApiConnection", "inputs": {"host": host, "method": "get", "path": "/lost"}}
    assert any("has no operation GET /lost" in said for said in problems(action))


def test_a_connection_of_power_automate_is_known_by_its_api_too() -> None:
    host = {"connectionName": "shared_mail_7", "apiId": "/providers/Microsoft.PowerApps/apis/shared_mail"}
    action = {"type": "OpenApiConnection", "inputs": {"host": {**host, "operationId": "Lost"}, "parameters": {}}}
    assert any("has no operation 'Lost'" in said for said in problems(action))


def test_other_connections_and_handlers_for_a_connection_are_not_checked() -> None:
    loom.connector("own")(lambda inputs: inputs)
    for name in ("own", "other"):
        action = {"type": "ApiConnection", "inputs": {"host": {"connection": {"referenceName": name}}, "path": "/x"}}
        assert problems(action) == []


async def test_a_runtime_checks_by_its_own_handlers_when_a_flow_is_registered() -> None:
    action = call(method="get", path="/lost") | {"runAfter": {}}
    nothing = loom.ActionHandlers()
    flow = loom.load({"contentVersion": "1", "actions": {"A": action}}, handlers=nothing)
    async with loom.connect(handlers=nothing) as runtime:
        runtime.register(flow, name="one")
    async with loom.connect() as runtime:
        with pytest.raises(loom.DefinitionError, match=r"actions\.A\.inputs\.path: .* GET /lost"):
            runtime.register(flow, name="one")


def test_a_project_is_checked_by_the_connectors_that_are_registered(tmp_path: Path) -> None:
    action = call(method="get", path="/lost") | {"runAfter": {}}
    document = {"contentVersion": "1.0.0.0", "triggers": {}, "actions": {"A": action}}
    (tmp_path / "Flow").mkdir()
    (tmp_path / "Flow" / "workflow.json").write_text(json.dumps({"definition": document, "kind": "Stateful"}))
    (tmp_path / "host.json").write_text("{}")
    with pytest.raises(loom.DefinitionError, match=r"definition\.actions\.A\.inputs\.path: .* GET /lost"):
        loom.load_project(tmp_path)


def test_a_document_that_cannot_be_used_is_said_at_the_action() -> None:
    loom.connector("mail", openapi={"swagger": "2.0", "paths": {"/a": {"$ref": "https://evil.example.com/a.json"}}})
    (said,) = problems(call(**GOOD_LIST))
    assert said.startswith("error actions.A0: the document of the connector 'mail' cannot be used: paths./a: ")


# --- documents that are not taken -------------------------------------------------------------------------------------


def api(**more: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "servers": [{"url": "https://x.example.com"}], "paths": {}, **more}


def chain(length: int) -> dict[str, Any]:
    return {f"P{n}": {"$ref": f"#/components/parameters/P{n + 1}"} for n in range(length)}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (api(components={"schemas": {"A": {"$ref": "http://evil.example.com/x"}}}), "components.schemas.A: .* leaves"),
        (api(components={"schemas": {"A": {"$ref": "file:///etc/passwd"}}}), "leaves the document"),
        (api(components={"schemas": {"A": {"$ref": "../secrets.json#/a"}}}), "leaves the document"),
        (api(paths={"/a": {"get": {"parameters": [{"$ref": "//evil.example.com/p"}]}}}), r"parameters\[0\].* leaves"),
        (api(paths={"/a": {"$ref": "#/paths/~1a"}}), "leads back to itself"),
        (api(paths={"/a": {"$ref": "#/nowhere"}}), "leads nowhere"),
        (api(paths={"/a": []}), "paths./a: this must be an object"),
        (api(paths=[]), "has no paths"),
        ({"paths": {}}, "no known version"),
        ("[]", "must be an object"),
        ("{not json", "this is not JSON"),
        (
            api(paths={"/a": {"get": {"operationId": "A"}}, "/b": {"get": {"operationId": "A"}}}),
            "two operations of the id 'A'",
        ),
        ('{"openapi": "3.0.0", "paths": {"/a": ' + '{"x":' * 150 + "1" + "}" * 150 + "}}", "nests deeper"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nests deeper"),
        ('{"a": [' + "1," * 1_000_001 + "1]}", "more than 1,000,000 values"),
        ('{"a": "' + "x" * (16 << 20) + '"}', "larger than 16 MiB"),
    ],
)
def test_evil_documents_are_refused(document: Any, reason: str) -> None:
    with pytest.raises(ApiError, match=reason):
        read_api(document)


@pytest.mark.parametrize("parameters", [{"P0": {"$ref": "#/components/parameters/P0"}}, chain(40)])
def test_parameters_that_lead_in_circles_are_refused_when_they_are_needed(parameters: dict[str, Any]) -> None:
    given = {"get": {"operationId": "A", "parameters": [{"$ref": "#/components/parameters/P0"}]}}
    document = read_api(api(paths={"/a": given}, components={"parameters": parameters}))
    with pytest.raises(ApiError, match="leads back to itself"):
        document.by_id("A")


def test_a_schema_that_contains_itself_is_searched_to_an_end() -> None:
    node = {"type": "object", "properties": {name: {"$ref": "#/definitions/Node"} for name in "abcdefgh"}}
    body = {"name": "b", "in": "body", "schema": {"$ref": "#/definitions/Node"}}
    document = read_api(
        {
            "swagger": "2.0",
            "definitions": {"Node": node},
            "paths": {"/a": {"post": {"operationId": "A", "parameters": [body]}}},
        }
    )
    operation = document.by_id("A")
    assert operation is not None
    assert operation.callback_path == ()


def test_what_looks_like_a_reference_in_an_example_is_none() -> None:
    example = {"example": {"$ref": "https://example.com/x"}, "properties": {"$ref": {"type": "string"}}}
    assert read_api(api(components={"schemas": {"A": example}})).size == 0


@pytest.mark.parametrize("given", ["https://api.example.com/openapi.json", "no/such/file.json"])
def test_a_document_must_be_a_file_that_is_there(given: str) -> None:
    with pytest.raises(ValueError, match="openapi"):
        loom.connector("x", openapi=given)


def test_registrations_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    for address in ("ftp://x", "https://user:pa55word@x", "https://x/?key=1", "x", "https://"):
        with pytest.raises(ValueError, match="base_url must be an address") as caught:
            loom.connector("x", openapi=API, base_url=address)
        assert "pa55word" not in str(caught.value)
    with pytest.raises(TypeError, match="auth must be"):
        loom.connector("x", openapi=API, auth={"key": "geheim"})  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="key must be a text"):
        loom.ApiKey(key="")
    with pytest.raises(TypeError, match="takes a name"):
        loom.connector(" ", openapi=API)
    with pytest.raises(TypeError, match="openapi must be"):
        loom.connector("x", openapi=7)  # type: ignore[call-overload]
    secret = tmp_path / "secret"
    secret.write_text("geheim\n")
    assert loom.Secret.file(secret).read() == "geheim"
    for auth in (loom.ApiKey(key="geheim"), loom.BearerToken(token="geheim"), loom.Secret.file(secret)):
        assert "geheim" not in repr(auth)


def test_five_hundred_operations_are_indexed_once_and_read_when_they_are_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from loom.effects.actions.connectors import calls
    from loom.effects.actions.connectors.openapi import ApiDocument

    indexed: list[int] = []
    read: list[str] = []
    make, look = calls.read_api, ApiDocument._read

    def counted(source: Any) -> ApiDocument:
        indexed.append(1)
        return make(source)

    def noted(self: ApiDocument, route: Any) -> Any:
        read.append(route.path)
        return look(self, route)

    monkeypatch.setattr(calls, "read_api", counted)
    monkeypatch.setattr(ApiDocument, "_read", noted)
    operation = API["paths"]["/users/{id}/mail"]["get"]
    paths = {f"/users/{{id}}/mail{n}": {"get": {**operation, "operationId": f"List{n}"}} for n in range(500)}
    loom.connector("mail", openapi={**API, "paths": paths})
    many = [call(method="get", path=f"/users/1/mail{n % 3}", queries={"box": "in"}) for n in range(300)]
    assert problems(*many) == []
    assert problems(*many[:10]) == []
    assert indexed == [1]
    assert sorted(read) == ["/users/{id}/mail0", "/users/{id}/mail1", "/users/{id}/mail2"]
