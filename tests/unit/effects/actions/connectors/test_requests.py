"""The request of an operation: what goes into its path, its query, its body, and what must not."""

from __future__ import annotations

import json
from typing import Any

import pytest

import loom
from loom.effects.actions.connectors.calls import ConnectionCall, connection_call
from loom.effects.actions.exchange import BadRequestError
from loom.effects.actions.handlers import ActionHandlers

API: dict[str, Any] = {
    "openapi": "3.0.0",
    "servers": [{"url": "https://api.example.com/v1/"}],
    "paths": {
        "/files/{path}": {
            "get": {
                "operationId": "Read",
                "parameters": [
                    {"name": "path", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "tags", "in": "query", "schema": {"type": "array"}},
                    {"name": "ids", "in": "query", "explode": False, "schema": {"type": "array"}},
                    {"name": "deep", "in": "query", "schema": {"type": "boolean"}},
                    {"name": "X-Mark", "in": "header", "schema": {"type": "string"}},
                ],
            }
        },
        "/rows(key='{key}',part='{part}').json": {
            "parameters": [
                {"name": "key", "in": "path", "required": True, "schema": {}},
                {"name": "part", "in": "path", "required": True, "schema": {}},
            ],
            "get": {"operationId": "Row"},
        },
        "/form": {
            "post": {
                "operationId": "Form",
                "requestBody": {"content": {"application/x-www-form-urlencoded": {}}, "x-bodyName": "fields"},
            }
        },
        "/text": {"post": {"operationId": "Text", "requestBody": {"content": {"application/json": {}}}}},
    },
}

OLD: dict[str, Any] = {
    "swagger": "2.0",
    "host": "old.example.com",
    "paths": {
        "/upload": {
            "post": {
                "operationId": "Upload",
                "consumes": ["multipart/form-data"],
                "parameters": [
                    {"name": "title", "in": "formData", "type": "string", "required": True},
                    {"name": "file", "in": "formData", "type": "file"},
                ],
            }
        },
        "/login": {
            "post": {
                "operationId": "Login",
                "parameters": [{"name": "user", "in": "formData", "type": "string"}],
            }
        },
        "/hook": {
            "post": {
                "operationId": "Hook",
                "parameters": [
                    {"name": "url", "in": "query", "type": "string", "required": True, "x-ms-notification-url": True}
                ],
            }
        },
    },
}


def by_id(operation: str, **parameters: Any) -> ConnectionCall:
    handlers = ActionHandlers()
    handlers.connector("api", openapi=API if operation in {"Read", "Row", "Form", "Text"} else OLD)
    inputs = {"host": {"connectionName": "api", "operationId": operation}, "parameters": parameters}
    made = connection_call(
        handlers, "openapiconnection", inputs, key="run-1:A:0", callback="https://back.example.com/1"
    )
    assert made is not None
    return made


def by_path(path: str, **inputs: Any) -> ConnectionCall:
    handlers = ActionHandlers()
    handlers.connector("api", openapi=API)
    inputs = {"host": {"connection": {"referenceName": "api"}}, "method": "get", "path": path, **inputs}
    made = connection_call(handlers, "apiconnection", inputs)
    assert made is not None
    return made


@pytest.mark.parametrize("value", ["a b/ü?#&=%", "..hidden", "a..b", "...", "%41", "x;y", "a:b@c"])
def test_any_value_stays_one_segment_of_the_path(value: str) -> None:
    from urllib.parse import unquote

    url = by_id("Read", path=value).request.url
    assert url.startswith("https://api.example.com/v1/files/")
    last = url.removeprefix("https://api.example.com/v1/files/")
    assert not {"/", "?", "#"} & set(last)
    assert unquote(last) == value


@pytest.mark.parametrize(
    "value",
    ["..", ".", "../admin", "a/../../b", "..\\x", "%2e%2e", "%2e%2e%2fadmin", "%252e%252e", "a/.", "", "x\ny", "x\x00"],
)
def test_a_value_cannot_leave_its_place_in_the_path(value: str) -> None:
    with pytest.raises(BadRequestError, match=r"leads out|is empty|control character"):
        by_id("Read", path=value)


@pytest.mark.parametrize(
    "path",
    ["/files/..", "/files/%2e%2e", "/files/%2e%2e%2fadmin", "/files/..%5cadmin", "/files/%252e%252e", "/files/%00"],
)
def test_an_evaluated_path_cannot_leave_its_operation(path: str) -> None:
    with pytest.raises(BadRequestError, match=r"leads out|control character"):
        by_path(path)


@pytest.mark.parametrize("path", ["/files/a/../b", "/files/a/b", "/files", "//files/a/b", "https://evil.example.com/"])
def test_a_path_of_no_operation_is_refused(path: str) -> None:
    with pytest.raises(BadRequestError, match="has no operation"):
        by_path(path)


def test_a_path_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(BadRequestError, match="UTF-8"):
        by_path("/files/%ff")


def test_segments_may_have_text_around_their_parameters() -> None:
    url = by_id("Row", key="a'b", part=7).request.url
    assert url == "https://api.example.com/v1/rows(key='a%27b',part='7').json"
    assert by_path("/rows(key='x%20y',part='z').json").request.url.endswith("/rows(key='x%20y',part='z').json")


def test_values_of_the_query_are_written_as_the_document_says() -> None:
    url = by_id("Read", path="p", tags=["a", "b c"], ids=[1, 2], deep=True).request.url
    assert url.partition("?")[2] == "tags=a&tags=b%20c&ids=1%2C2&deep=true"
    assert by_path("/files/p?x=1", queries={"deep": None, "tags": "t"}).request.url.endswith("?x=1&tags=t")


def test_a_header_of_the_connection_or_of_more_lines_does_not_get_through() -> None:
    sent = by_path("/files/p", headers={"Host": "evil", "Cookie": "a=b", "X-Mark": 7}).request
    assert sent.headers == {"X-Mark": "7"}
    assert by_id("Read", path="p", **{"X-Mark": "m"}).request.headers == {"X-Mark": "m"}


def test_bodies_have_the_content_type_of_the_document() -> None:
    form = by_id("Form", **{"fields/a": "1 2", "fields/b": True}).request
    assert form.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert form.content == b"a=1+2&b=true"
    text = by_id("Text", body='{"a": 1}').request
    assert (text.content, text.headers["Content-Type"]) == (b'{"a": 1}', "application/json")
    assert text.headers["Idempotency-Key"] == "run-1:A:0"
    assert by_id("Login", user="me").request.content == b"user=me"
    parts = by_id("Upload", title="T", file={"$content-type": "text/csv", "$content": "YSxi"}).request
    assert parts.headers["Content-Type"].startswith("multipart/form-data")
    assert b'name="file"\r\nContent-Type: text/csv\r\n\r\na,b' in parts.content


def test_fields_of_the_body_are_put_together() -> None:
    sent = by_id("Text", **{"body/item/Status/Value": "new", "body/item/Title": "T", "body": {"by": "me"}}).request
    assert json.loads(sent.content) == {"by": "me", "item": {"Status": {"Value": "new"}, "Title": "T"}}
    with pytest.raises(BadRequestError, match="is a field of what is no object"):
        by_id("Text", **{"body/a": 1, "body/a/b": 2})


def test_the_address_of_a_callback_is_put_where_the_operation_takes_it() -> None:
    assert by_id("Hook").request.url.endswith("/hook?url=https%3A%2F%2Fback.example.com%2F1")
    assert by_id("Hook", url="https://own.example.com/").request.url.endswith("url=https%3A%2F%2Fown.example.com%2F")


@pytest.mark.parametrize(
    ("operation", "parameters", "reason"),
    [
        ("Upload", {}, "needs the parameter 'title'"),
        ("Read", {"path": "p", "typo": 1}, "has no parameter 'typo'"),
        ("Read", {}, "needs the parameter 'path'"),
        ("Gone", {}, "has no operation 'Gone'"),
    ],
)
def test_what_loading_could_not_see_fails_in_the_run(operation: str, parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRequestError, match=reason):
        by_id(operation, **parameters)


async def test_a_connector_wins_over_the_handler_of_the_type_and_a_mock_takes_its_place() -> None:
    from loom.testing import isolated_handlers

    action = {"type": "ServiceProvider", "inputs": {"serviceProviderConfiguration": {"connectionName": "bus"}}}
    other = {"type": "ServiceProvider", "inputs": {"serviceProviderConfiguration": {"connectionName": "blob"}}}
    flow = loom.load({"a": action, "b": other})
    with isolated_handlers(empty=True) as handlers:
        loom.action("ServiceProvider")(lambda _: "by type")
        assert handlers.registry.serves_connection("blob", "serviceprovider")
        assert not handlers.registry.serves_connection("blob", "ApiConnection")

        @loom.connector("Bus")
        def bus(inputs: dict[str, Any], context: loom.ActionContext) -> str:
            return f"{inputs['serviceProviderConfiguration']['connectionName']} for {context.action}"

        assert handlers.registry.serves_connection("BUS", "ApiConnection")
        result = await flow.run()
        assert [result.actions[name].outputs["body"] for name in "ab"] == ["bus for a", "by type"]
        mock = handlers.mock_connector("bus", returns={"statusCode": 404})
        result = await flow.run()
        assert result.actions["a"].code == "NotFound"
        assert mock.calls[0].action == "a"
    assert not loom.action.__self__.connectors  # type: ignore[attr-defined]


async def test_without_anything_registered_the_message_names_both_ways() -> None:
    from loom.testing import isolated_handlers

    action = {"type": "ApiConnection", "inputs": {"host": {"connection": {"referenceName": "mail"}}, "path": "/"}}
    with isolated_handlers(empty=True):
        result = await loom.load({"a": {**action, "retry": {"type": "none"}}}).run()
    assert result.error is not None
    assert 'Register a handler with @loom.action("ApiConnection")' in result.error["message"]
    assert 'loom.connector("mail", openapi=...)' in result.error["message"]


async def test_what_the_connector_gives_to_each_request_is_not_missed_by_an_action() -> None:
    given = [{"name": name, "in": "header", "required": True} for name in ("Accept", "X-Tenant", "X-Key", "X-Own")]
    handlers = ActionHandlers()
    handlers.connector(
        "api",
        openapi={"swagger": "2.0", "host": "x.example.com", "paths": {"/a": {"get": {"parameters": given}}}},
        headers={"x-tenant": "t"},
        auth=loom.ApiKey(key="geheim", name="X-Key"),
    )
    inputs = {"host": {"connection": {"referenceName": "api"}}, "path": "/a"}
    flow = {"contentVersion": "1", "actions": {"A": {"type": "ApiConnection", "inputs": inputs}}}
    with pytest.raises(loom.DefinitionError) as caught:
        loom.load(flow, handlers=handlers)
    assert [problem.message for problem in caught.value.problems] == ["'GET /a' needs the header parameter 'X-Own'"]
    with pytest.raises(BadRequestError, match="needs the parameter 'X-Own'"):
        connection_call(handlers, "apiconnection", inputs)
    made = connection_call(handlers, "apiconnection", {**inputs, "headers": {"x-own": 1}})
    assert made is not None
    assert made.request.headers == {"x-own": "1", "x-tenant": "t"}
