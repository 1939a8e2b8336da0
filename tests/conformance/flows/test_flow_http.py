"""HTTP actions of flows over real sockets: answers, requests, authentication, polling, retries, limits."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from flow_player import azure, compose
from loopback_world import Reply, Request, World, loopback_world

import loom
from loom.testing import VIRTUAL_EPOCH, run_virtual


@pytest.fixture
def world() -> Iterator[World]:
    with loopback_world() as world:
        yield world


def asked(inputs: dict[str, Any], **more: Any) -> loom.FlowResult:
    """A run of one request."""
    action = {"type": "Http", "inputs": {"method": "GET", "uri": "https://api.example/x", **inputs}, **more}
    return run(azure({"H": action}))


def run(definition: dict[str, Any], body: Any = None) -> loom.FlowResult:
    async def main() -> loom.FlowResult:
        return await loom.load(definition).run(body)

    return run_virtual(main())


def took(result: loom.FlowResult) -> float:
    return (result.actions["H"].ended_at or 0.0) - VIRTUAL_EPOCH


NO_RETRY = {"retryPolicy": {"type": "none"}}


@pytest.mark.parametrize(
    ("status", "ended", "code"),
    [
        (200, "Succeeded", "OK"),
        (201, "Succeeded", "Created"),
        (204, "Succeeded", "NoContent"),
        (304, "Failed", "NotModified"),
        (400, "Failed", "BadRequest"),
        (404, "Failed", "NotFound"),
        (500, "Failed", "InternalServerError"),
    ],
)
def test_the_status_decides_and_names_the_code(world: World, status: int, ended: str, code: str) -> None:
    body = "" if status in (204, 304) else {"n": 1}
    world.answer = lambda _request: Reply(body, status, {"X-Y": "z"})
    action = asked(NO_RETRY).actions["H"]
    assert (action.status, action.code, action.outputs["statusCode"]) == (ended, code, status)
    assert action.outputs["status"] == status
    assert {name.lower(): value for name, value in action.outputs["headers"].items()}["x-y"] == "z"


def test_the_outputs_of_a_failure_can_be_read(world: World) -> None:
    world.answer = lambda _request: Reply({"reason": "gone"}, 404)
    flow = azure({"H": {"type": "Http", "inputs": {"method": "GET", "uri": "https://x.example"}},
                  "R": compose("@body('H')?['reason']", H=["Failed"])})  # fmt: skip
    result = run(flow)
    assert (result.status, result.actions["R"].outputs) == ("Succeeded", "gone")


@pytest.mark.parametrize(
    ("data", "kind", "body"),
    [
        ('{"a": [1, 2.0]}', "application/json; charset=utf-8", {"a": [1, 2.0]}),
        ('{"a": 1}', "application/problem+json", {"a": 1}),
        ("plain", "text/plain", "plain"),
        ("<p/>", "text/html", "<p/>"),
        (b"\x00\xff", "application/octet-stream", {"$content-type": "application/octet-stream", "$content": "AP8="}),
    ],
)
def test_the_content_type_decides_about_the_body(world: World, data: Any, kind: str, body: Any) -> None:
    world.answer = lambda _request: Reply(data, 200, {}, kind)
    assert asked({}).actions["H"].outputs["body"] == body


def test_xml_comes_as_an_envelope_that_functions_can_read(world: World) -> None:
    world.answer = lambda _request: Reply("<a><b>1</b></a>", 200, {}, "application/xml")
    flow = azure({"H": {"type": "Http", "inputs": {"method": "GET", "uri": "https://x.example"}},
                  "R": compose("@json(body('H'))?['a']?['b']", "H")})  # fmt: skip
    assert run(flow).actions["R"].outputs == "1"


def test_what_is_sent(world: World) -> None:
    inputs = {
        "method": "post",
        "uri": "https://api.example:8443/a/b?c=1",
        "headers": {
            "X-One": "@{1}",
            "Host": "evil.example",
            "Content-Length": "5",
            "Accept-Language": "de",
            "X-Two": 2,
        },
        "queries": {"q": "a b&c", "n": 5},
        "body": {"deep": ["@add(1, 1)"]},
        "cookie": "k=v",
    }
    asked(inputs)
    (request,) = world.asked
    assert (request.method, request.host) == ("POST", "api.example")
    assert request.path == "/a/b?c=1&q=a%20b%26c&n=5"
    assert request.json == {"deep": [2]}
    assert request.headers["content-type"].startswith("application/json")
    assert (request.headers["x-one"], request.headers["x-two"], request.headers["cookie"]) == ("1", "2", "k=v")
    assert "evil" not in str(request.headers)
    assert "accept-language" not in request.headers


@pytest.mark.parametrize(
    ("body", "headers", "sent"),
    [
        ("text", {}, b"text"),
        ("a=1&b=2", {"Content-Type": "application/x-www-form-urlencoded"}, b"a=1&b=2"),
        ({"$content-type": "image/png", "$content": "AP8="}, {}, b"\x00\xff"),
        ([1, 2], {}, b"[1,2]"),
        (None, {}, b""),
    ],
)
def test_bodies_are_sent_as_what_they_are(world: World, body: Any, headers: dict[str, str], sent: bytes) -> None:
    asked({"method": "POST", "body": body, "headers": headers})
    assert world.asked[0].body.replace(b", ", b",") == sent


def test_loom_reads_url_like_uri(world: World) -> None:
    result = run({"actions": {"h": {"type": "http", "inputs": {"url": "https://x.example/y"}}}})
    assert result.status == "Succeeded"
    assert (world.asked[0].method, world.asked[0].path) == ("GET", "/y")


@pytest.mark.parametrize(
    ("authentication", "header"),
    [
        ({"type": "Basic", "username": "u", "password": "p"}, "Basic " + base64.b64encode(b"u:p").decode()),
        ({"type": "Raw", "value": "Token t"}, "Token t"),
        (
            {"type": "ActiveDirectoryOAuth", "tenant": "t", "audience": "a", "clientId": "c", "secret": "s"},
            "Bearer token",
        ),
    ],
)
def test_authentication(world: World, authentication: dict[str, str], header: str) -> None:
    assert asked({"authentication": authentication}).status == "Succeeded"
    assert world.asked[-1].headers["authorization"] == header


def test_an_identity_that_only_a_cloud_can_give_is_refused_with_advice(world: World) -> None:
    result = asked({"authentication": {"type": "ManagedServiceIdentity", "audience": "https://x.example"}})
    assert result.actions["H"].code == "AuthenticationFailed"
    assert "ActiveDirectoryOAuth" in str(result.error)
    assert not world.asked


# -- polling -----------------------------------------------------------------------------------------------------------


def polled(request: Request) -> Reply:
    if request.path == "/x":
        return Reply({"n": 0}, 202, {"Location": "https://other.example/jobs/1"})
    return Reply({"done": True})


def test_an_accepted_request_is_polled_every_20_seconds_by_default(world: World) -> None:
    world.answer = polled
    result = asked({"method": "POST"})
    assert result.actions["H"].outputs["body"] == {"done": True}
    assert [(one.method, one.host) for one in world.asked] == [("POST", "api.example"), ("GET", "other.example")]
    assert took(result) == 20


def test_credentials_do_not_follow_to_another_host(world: World) -> None:
    world.answer = polled
    asked({"method": "POST", "authentication": {"type": "Raw", "value": "Token t"}, "headers": {"X-Key": "k"}})
    assert "authorization" in world.asked[0].headers
    assert not {"authorization", "x-key"} & set(world.asked[1].headers)


def test_without_the_pattern_or_a_location_202_is_an_answer(world: World) -> None:
    world.answer = polled
    assert asked({}, operationOptions="DisableAsyncPattern").actions["H"].outputs["statusCode"] == 202
    world.answer = lambda _request: Reply({}, 202)
    assert asked({}).actions["H"].outputs["statusCode"] == 202
    assert len(world.asked) == 2


def test_the_limit_ends_the_polling(world: World) -> None:
    world.answer = lambda _request: Reply({}, 202, {"Location": "/again", "Retry-After": "30"})
    result = asked({}, limit={"timeout": "PT2M"})
    assert (result.status, result.actions["H"].code) == ("TimedOut", "ActionTimedOut")
    assert took(result) == 120


# -- retries and refusals ----------------------------------------------------------------------------------------------


def test_retry_after_of_a_server_is_waited_for(world: World) -> None:
    answers = iter([Reply({}, 429, {"Retry-After": "300"}), Reply({}, 503), Reply({"ok": 1})])
    world.answer = lambda _request: next(answers)
    result = asked({"retryPolicy": {"type": "fixed", "count": 2, "interval": "PT10S"}})
    assert (result.status, took(result)) == ("Succeeded", 310)


def test_redirects_are_followed_and_end(world: World) -> None:
    world.answer = lambda request: Reply({}) if request.path == "/end" else Reply({}, 302, {"Location": "/end"})
    assert asked({}).status == "Succeeded"
    world.answer = lambda _request: Reply({}, 302, {"Location": "/x"})
    assert asked(NO_RETRY).actions["H"].code == "AnswerRefused"


@pytest.mark.parametrize("uri", ["ftp://x.example", "no address", "", "@null"])
def test_what_is_no_address_fails(world: World, uri: str) -> None:
    result = asked({"uri": uri})
    assert result.actions["H"].code == "InvalidInputs"
    assert not world.asked


async def test_private_addresses_are_refused_unless_they_are_allowed() -> None:
    flow = loom.load(azure({"H": {"type": "Http", "inputs": {"method": "GET", "uri": "http://127.0.0.1:1/x"}}}))
    result = await flow.run()
    assert result.actions["H"].code == "HostRefused"
    assert "LOOM_HTTP_ALLOW" in str(result.error)
