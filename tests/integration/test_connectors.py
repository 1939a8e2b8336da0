"""Connectors against three services with OpenAPI documents of 2.0, 3.0 and 3.1, in memory and on SQLite."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from connector_services import (
    FILES,
    FILES_KEY,
    MAIL,
    MAIL_PASSWORD,
    SECRETS,
    TICKETS,
    TICKETS_SECRET,
    Mail,
    Service,
    Tickets,
    serving,
)
from starlette.responses import JSONResponse, Response

import loom
from loom.effects.actions.events import CallbackEvent
from loom.store.sqlite import SqliteStore
from loom.testing import isolated_handlers

ONCE = {"type": "none"}


def fixed(count: int) -> dict[str, Any]:
    return {"type": "fixed", "count": count, "interval": "PT0.01S"}


def standard(name: str, inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An action as Standard projects have it."""
    host = {"connection": {"referenceName": name}}
    return {"type": "ApiConnection", "inputs": {"host": host, "retryPolicy": ONCE, **inputs}, "runAfter": {}, **more}


def consumption(name: str, inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An action as deployed resources have it."""
    host = {"connection": {"name": f"@parameters('$connections')['{name}']['connectionId']"}}
    return {"type": "ApiConnection", "inputs": {"host": host, "retryPolicy": ONCE, **inputs}, "runAfter": {}, **more}


def by_id(connection: str, operation: str, parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An action as flows of Power Automate have it."""
    host = {
        "apiId": f"/providers/Microsoft.PowerApps/apis/shared_{connection}",
        "connectionName": f"shared_{connection}_1",
        "operationId": operation,
    }
    inputs = {"host": host, "parameters": parameters, "retryPolicy": ONCE}
    return {"type": "OpenApiConnection", "inputs": inputs, "runAfter": {}, **more}


def definition(**actions: Any) -> dict[str, Any]:
    return {
        "contentVersion": "1.0.0.0",
        "parameters": {"$connections": {"type": "Object", "defaultValue": {}}},
        "triggers": {"manual": {"type": "Request", "inputs": {"schema": {}}}},
        "actions": actions,
    }


@dataclass
class World:
    mail: Mail = field(default_factory=Mail)
    tickets: Tickets = field(default_factory=Tickets)
    files: Service = field(default_factory=Service)
    handlers: loom.ActionHandlers = field(default_factory=loom.ActionHandlers)
    ahead: float = 0.0
    """Seconds that the clock of runs is ahead of time."""

    def now(self) -> float:
        return time.time() + self.ahead

    def register(self, place: Path, **more: Any) -> None:
        place.joinpath("secret.txt").write_text(TICKETS_SECRET + "\n")
        place.joinpath("files.yaml").write_text(FILES)
        auth = loom.BasicAuth(username="robot", password=loom.Secret.env("MAIL_PASSWORD"))
        self.handlers.connector(
            "office365", openapi=MAIL, base_url=f"{self.mail.url}/apim/mail", auth=auth, allow_private=True
        )
        tokens = loom.ClientCredentials(
            token_url=f"{self.tickets.url}/token",
            client_id="loom",
            client_secret=loom.Secret.file(place / "secret.txt"),
            scope="tickets",
        )
        self.handlers.connector(
            "Tickets", openapi=TICKETS, base_url=f"{self.tickets.url}/api", auth=tokens, allow_private=True, **more
        )
        key = loom.ApiKey(key=FILES_KEY, name="code", place="query")
        self.handlers.connector(
            "files", openapi=place / "files.yaml", base_url=self.files.url, auth=key, allow_private=True
        )

    async def run(
        self, document: dict[str, Any], body: Any = None, *, store: Any = "memory://", **options: Any
    ) -> loom.FlowResult:
        flow = loom.load(document, handlers=self.handlers)
        async with loom.connect(store, handlers=self.handlers, clock=self.now, **options) as runtime:
            runtime.register(flow, name="flow")
            handler = await runtime.start("flow", body)
            result: loom.FlowResult = await handler
            return result


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("MAIL_PASSWORD", MAIL_PASSWORD)
    made = World()
    async with serving(made.mail, made.tickets, made.files):
        made.register(tmp_path)
        yield made


# --- calls ------------------------------------------------------------------------------------------------------------


async def test_each_make_of_document_is_called_in_its_own_way(world: World) -> None:
    result = await world.run(
        definition(
            Send=consumption(
                "office365", {"method": "post", "path": "/v2/Mail", "body": {"To": "a@b.c", "Subject": "Hi"}}
            ),
            Create=by_id(
                "tickets", "CreateTicket", {"project": "p", "body/title": "It burns", "body/meta/by": "@triggerBody()"}
            ),
            Read=standard(
                "files", {"method": "get", "path": "/datasets/@{encodeURIComponent('a/b c')}/files/@{triggerBody()}"}
            ),
        ),
        "me",
    )
    assert result.status == "Succeeded", result.error
    (sent,) = world.mail.asked
    assert sent["path"] == "/apim/mail/v2/Mail"
    assert sent["headers"]["authorization"] == "Basic cm9ib3Q6bWFpbC1QYXNzdzByZCE="
    assert sent["body"] == '{"To":"a@b.c","Subject":"Hi"}'
    assert result.actions["Send"].outputs["body"] == {
        "asked": "/apim/mail/v2/Mail",
        "body": {"To": "a@b.c", "Subject": "Hi"},
    }
    assert result.actions["Create"].outputs["statusCode"] == 201
    assert result.actions["Create"].outputs["body"]["created"] == {"title": "It burns", "meta": {"by": "me"}}
    (read,) = world.files.asked
    assert (read["path"], read["query"]) == ("/datasets/a%2Fb%20c/files/me", "code=files-k3y%26more")


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/folders/@{encodeURIComponent(encodeURIComponent('in box/1'))}/messages/7", "in%20box%2F1"),
        ("/folders/@{encodeURIComponent('in box/1')}/messages/7", "in%20box%2F1"),
        ("/folders/@{encodeURIComponent(encodeURIComponent('50%25'))}/messages/7", "50%2525"),
        ("/folders/in box/messages/7", "in%20box"),
        ("@concat('/folders/', encodeURIComponent(encodeURIComponent('in box/1')), '/messages/7')", "in%20box%2F1"),
    ],
)
async def test_segments_are_sent_encoded_once_however_often_the_definition_encodes_them(
    world: World, path: str, asked: str
) -> None:
    queries = {"fields": ["a", "b"], "queryParametersSingleEncoded": True}
    action = standard("office365", {"method": "get", "path": path, "queries": queries})
    result = await world.run(definition(Get=action))
    assert result.status == "Succeeded", result.error
    assert world.mail.asked[0]["path"] == f"/apim/mail/folders/{asked}/messages/7"
    assert world.mail.asked[0]["query"] == "fields=a%7Cb&view=full"


async def test_a_static_path_comes_before_one_with_parameters(world: World) -> None:
    result = await world.run(
        definition(Get=standard("files", {"method": "get", "path": "/datasets/default/files/latest"}))
    )
    assert result.status == "Succeeded"
    assert world.files.paths() == ["GET /datasets/default/files/latest"]


async def test_a_failed_answer_fails_the_action_and_is_readable(world: World) -> None:
    world.mail.answers["/apim/mail/v2/Mail"] = [JSONResponse({"error": {"code": "Full"}}, 507)]
    message = {"To": "a", "Subject": "b"}
    send = standard("office365", {"method": "post", "path": "/v2/Mail", "body": message})
    show = {"type": "Compose", "inputs": "@body('Send')?['error']?['code']", "runAfter": {"Send": ["Failed"]}}
    result = await world.run(definition(Send=send, Show=show))
    assert result.actions["Send"].code == "InsufficientStorage"
    assert result.actions["Show"].outputs == "Full"


async def test_retries_follow_the_policy_and_keep_the_idempotency_key(world: World) -> None:
    world.mail.answers["/apim/mail/v2/Mail"] = [Response(status_code=503), Response(status_code=429)]
    inputs = {"method": "post", "path": "/v2/Mail", "body": {"To": "a", "Subject": "b"}, "retryPolicy": fixed(3)}
    result = await world.run(definition(Send=standard("office365", inputs)))
    assert result.status == "Succeeded", result.error
    keys = [asked["headers"]["idempotency-key"] for asked in world.mail.asked]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert [entry["code"] for entry in result.actions["Send"].retry_history] == [
        "ServiceUnavailable",
        "TooManyRequests",
    ]


async def test_the_header_of_the_idempotency_key_can_be_named_or_left_out(world: World, tmp_path: Path) -> None:
    create = definition(Create=by_id("tickets", "CreateTicket", {"project": "p", "body": {"title": "t"}}))
    for header in ("X-Request-ID", None):
        world.register(tmp_path, idempotency_header=header)
        assert (await world.run(create)).status == "Succeeded"
    first, second = (asked["headers"] for asked in world.tickets.asked if asked["path"] == "/api/tickets")
    assert "x-request-id" in first
    assert "idempotency-key" not in first
    assert not {"x-request-id", "idempotency-key"} & set(second)


async def test_a_service_that_takes_its_time_is_asked_until_it_is_done(world: World) -> None:
    place = {"Location": "/apim/mail/jobs/1", "Retry-After": "0"}
    world.mail.answers["/apim/mail/v2/Mail"] = [Response(status_code=202, headers=place)]
    world.mail.answers["/apim/mail/jobs/1"] = [JSONResponse({"done": True})]
    inputs = {"method": "post", "path": "/v2/Mail", "body": {"To": "a", "Subject": "b"}}
    result = await world.run(definition(Send=standard("office365", inputs)))
    assert result.actions["Send"].outputs["body"] == {"done": True}
    assert world.mail.paths() == ["POST /apim/mail/v2/Mail", "GET /apim/mail/jobs/1"]
    assert all("authorization" in asked["headers"] for asked in world.mail.asked)


# --- pages ------------------------------------------------------------------------------------------------------------


def listing(least: int | None) -> dict[str, Any]:
    more = {} if least is None else {"runtimeConfiguration": {"paginationPolicy": {"minimumItemCount": least}}}
    return definition(List=by_id("tickets", "ListTickets", {"project": "p"}, **more))


@pytest.mark.parametrize(("least", "count", "pages"), [(None, 2, 1), (1, 2, 1), (3, 4, 2), (5_000, 7, 4)])
async def test_pages_are_fetched_until_there_are_enough_items(
    world: World, least: int | None, count: int, pages: int
) -> None:
    result = await world.run(listing(least))
    body = result.actions["List"].outputs["body"]
    assert body["value"] == [{"number": n} for n in range(count)]
    assert world.tickets.paths().count("GET /api/tickets") == pages
    assert ("@odata.nextLink" in body) == (count < 7)


async def test_a_next_page_on_another_host_is_refused(world: World) -> None:
    elsewhere = {"value": [1], "@odata.nextLink": f"{world.files.url}/api/tickets?page=2"}
    world.tickets.answers["/api/tickets"] = [JSONResponse(elsewhere)]
    result = await world.run(listing(10))
    assert result.actions["List"].code == "AnswerRefused"
    assert world.files.asked == []


async def test_pages_that_go_round_in_circles_end(world: World) -> None:
    again = {"value": [1], "@odata.nextLink": f"{world.tickets.url}/api/tickets?project=p&skip=2"}
    world.tickets.answers["/api/tickets"] = [JSONResponse(again) for _ in range(3)]
    result = await world.run(listing(10))
    assert "without an end" in result.actions["List"].error["message"]
    assert world.tickets.paths().count("GET /api/tickets") == 2


async def test_answers_and_pages_have_limits(world: World) -> None:
    world.tickets.total, world.tickets.page = 400, 40
    one = await world.run(listing(None), max_response=200)
    assert one.actions["List"].code == "AnswerRefused"
    some = await world.run(listing(100), max_response=2_000)
    assert some.status == "Succeeded", some.error
    many = await world.run(listing(400), max_response=2_000)
    assert many.actions["List"].code == "AnswerRefused"
    assert "2000 bytes together" in many.actions["List"].error["message"]


async def test_a_start_names_the_connections_that_it_is_not_given() -> None:
    names = ("one", "two", "Three")
    reads = {name: consumption(name, {"path": "/"}) for name in names}
    seen = []
    with isolated_handlers(empty=True):
        loom.action("ApiConnection")(lambda inputs: seen.append(inputs["host"]["connection"]["name"]))
        flow = loom.load(definition(**reads))
        await flow.run()
        assert sorted(seen) == sorted(names)
        seen.clear()
        given = {"two": {"connectionId": "/subscriptions/s/connections/2"}, "three": {"connectionId": "/c/3"}}
        await flow.run(parameters={"$connections": given})
        assert sorted(seen) == ["/c/3", "/subscriptions/s/connections/2", "one"]


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_token_is_fetched_once_and_again_when_it_has_expired(world: World) -> None:
    world.tickets.lives = 100
    many = {
        "type": "Foreach",
        "foreach": "@range(1, 8)",
        "actions": {"Get": by_id("tickets", "GetTicket", {"number": "@item()"})},
        "runAfter": {},
    }
    assert (await world.run(definition(Many=many))).status == "Succeeded"
    assert world.tickets.tokens == 1
    world.ahead += 60
    assert (await world.run(definition(Many=many))).status == "Succeeded"
    assert world.tickets.tokens == 1
    world.ahead += 32  # the last tenth of its life
    assert (await world.run(definition(Many=many))).status == "Succeeded"
    assert world.tickets.tokens == 2
    assert {asked["headers"]["authorization"] for asked in world.tickets.asked if "tickets/" in asked["path"]} == {
        "Bearer token-number-1",
        "Bearer token-number-2",
    }


async def test_a_token_that_is_refused_is_fetched_anew_once(world: World) -> None:
    get = definition(Get=by_id("tickets", "GetTicket", {"number": 1}))
    assert (await world.run(get)).status == "Succeeded"
    world.tickets.refuses = {"token-number-1"}
    assert (await world.run(get)).status == "Succeeded"
    assert world.tickets.tokens == 2
    world.tickets.refuses |= {f"token-number-{n}" for n in range(9)}
    result = await world.run(get)
    assert result.actions["Get"].code == "Unauthorized"
    assert world.tickets.tokens == 3


async def test_an_authority_that_refuses_fails_the_action(world: World, tmp_path: Path) -> None:
    tmp_path.joinpath("secret.txt").write_text("wrong-secret")
    result = await world.run(definition(Get=by_id("tickets", "GetTicket", {"number": 1})))
    assert result.actions["Get"].code == "AuthenticationFailed"
    assert result.actions["Get"].error["message"] == "The authority gave no token: it answered 401 Unauthorized."


# --- secrets ----------------------------------------------------------------------------------------------------------


def stored_in(place: Path) -> bytes:
    return b"".join(path.read_bytes() for path in place.glob("runs.db*"))


async def test_secrets_are_in_no_store_log_or_result(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world.tickets.refuses = {"token-number-1"}  # the second one is used, and repeated by the answer
    world.files.answers["/datasets/a/files/b"] = [
        JSONResponse({"url": f"https://x.example.com/?code={FILES_KEY}"}),
        Response(status_code=302, headers={"Location": f"{world.mail.url}/elsewhere"}),
    ]
    message = {"method": "post", "path": "/v2/Mail", "body": {"To": "a", "Subject": "b"}}
    store = SqliteStore(tmp_path / "runs.db")
    result = await world.run(
        definition(
            Send=standard("office365", message),
            Create=by_id("tickets", "CreateTicket", {"project": "p", "body": {"title": "t"}}),
            Read=standard("files", {"method": "get", "path": "/datasets/a/files/b"}),
            Again=standard("files", {"method": "get", "path": "/datasets/a/files/b"}, runAfter={"Read": ["Succeeded"]}),
        ),
        store=store,
        http_allow=["127.0.0.1"],
    )
    assert result.status == "Succeeded", result.error
    echoed = result.actions["Create"].outputs["body"]["you_sent"]
    assert echoed["authorization"] == "Bearer *** secure ***"
    assert result.actions["Read"].outputs["body"]["url"].endswith("code=*** secure ***")
    strangers = [asked for asked in world.mail.asked if asked["path"] == "/elsewhere"]
    assert len(strangers) == 1
    assert strangers[0]["query"] == ""
    tokens = ("token-number-1", "token-number-2", "cm9ib3Q6bWFpbC1QYXNzdzByZCE")
    kept = stored_in(tmp_path)
    shown = repr(result) + caplog.text + repr(world.handlers)
    assert b"SendEmail" not in kept  # the document is not stored either
    assert b"It burns" not in kept
    for secret in (*SECRETS, "files-k3y%26more", *tokens):
        assert secret not in shown
        assert secret.encode() not in kept


async def test_a_redirect_to_another_host_takes_no_credentials_along(world: World) -> None:
    away = Response(status_code=307, headers={"Location": f"{world.files.url}/caught"})
    world.tickets.answers["/api/tickets/1"] = [away]
    result = await world.run(definition(Get=by_id("tickets", "GetTicket", {"number": 1})))
    assert result.actions["Get"].code == "HostRefused"  # only the connector's own address is allowed
    assert world.files.asked == []


async def test_a_secret_that_is_missing_fails_the_action_by_its_place(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAIL_PASSWORD")
    message = {"method": "post", "path": "/v2/Mail", "body": {"To": "a", "Subject": "b"}}
    result = await world.run(definition(Send=standard("office365", message)))
    assert result.actions["Send"].error == {
        "code": "AuthenticationFailed",
        "message": "The environment variable MAIL_PASSWORD has no secret.",
    }


async def test_a_private_address_needs_a_word(world: World) -> None:
    world.handlers.connector("office365", openapi=MAIL, base_url=world.mail.url)
    message = {"method": "post", "path": "/v2/Mail", "body": {"To": "a", "Subject": "b"}}
    result = await world.run(definition(Send=standard("office365", message)))
    assert result.actions["Send"].code == "HostRefused"
    assert world.mail.asked == []


# --- webhooks ---------------------------------------------------------------------------------------------------------


def asking(kind: str, limit: str) -> dict[str, Any]:
    if kind == "ApiConnectionWebhook":
        host: dict[str, Any] = {"connection": {"referenceName": "office365"}}
        inputs: dict[str, Any] = {"body": {"NotificationUrl": "@{listCallbackUrl()}", "Message": {"To": "a"}}}
        inputs |= {"host": host, "path": "/approvalmail/$subscriptions"}
    else:
        host = {"connectionName": "office365", "operationId": "SendApprovalMail"}
        inputs = {"host": host, "parameters": {"approval/Message/To": "a"}}
    return {"type": kind, "inputs": inputs, "limit": {"timeout": limit}, "runAfter": {}}


@pytest.mark.parametrize("kind", ["ApiConnectionWebhook", "OpenApiConnectionWebhook"])
async def test_a_webhook_subscribes_with_its_address_and_unsubscribes_at_the_end_of_its_time(
    world: World, kind: str
) -> None:
    flow = loom.load(definition(Ask=asking(kind, "PT0.3S")), handlers=world.handlers)
    async with loom.connect(handlers=world.handlers, callback_url="https://loom.example.com") as runtime:
        runtime.register(flow, name="flow")
        result = await (await runtime.start("flow"))
    assert result.actions["Ask"].status == "TimedOut"
    assert world.mail.paths() == [
        "POST /apim/mail/approvalmail/$subscriptions",
        "DELETE /apim/mail/approvalmail/$subscriptions/1",
    ]
    assert '"NotificationUrl":"https://loom.example.com/v1/callbacks/' in world.mail.asked[0]["body"]
    assert '"Message":{"To":"a"}' in world.mail.asked[0]["body"]


@pytest.mark.parametrize("kind", ["ApiConnectionWebhook", "OpenApiConnectionWebhook"])
async def test_a_webhook_goes_on_with_what_it_is_called_back_with(world: World, kind: str) -> None:
    flow = loom.load(definition(Ask=asking(kind, "PT1H")), handlers=world.handlers)
    async with loom.connect(handlers=world.handlers, callback_url="https://loom.example.com") as runtime:
        runtime.register(flow, name="flow")
        handler = await runtime.start("flow")
        await asyncio.wait_for(world.mail.was_asked.wait(), 30)
        address = urlsplit(json.loads(world.mail.asked[0]["body"])["NotificationUrl"])
        called = await runtime.callbacks.find(address.path.rpartition("/")[2], address.query.removeprefix("sig="))
        assert called is not None
        await runtime.send_event(handler.run_id, CallbackEvent(key=called.key, body={"choice": "yes"}))
        result = await handler
    assert result.actions["Ask"].outputs["body"] == {"choice": "yes"}
    assert world.mail.paths() == ["POST /apim/mail/approvalmail/$subscriptions"]
