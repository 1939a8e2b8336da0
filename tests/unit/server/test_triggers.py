"""Triggers that poll and subscribe for real: services and servers on this machine, clocks that pass."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from server_serving import Served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from test_callbacks import listening

import loom
from loom.client.connection import Client
from loom.runtime.durable.listeners import TriggerNotFound
from loom.runtime.durable.runtime import DurableRuntime
from loom.server.settings import ServerSettings

SECRET = "k3y-of-the-service"
ECHO = {"Echo": {"type": "Compose", "inputs": "@triggerBody()", "runAfter": {}}}


class Service:
    """A service whose answers a test sets; it answers 202 when it has none left."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.bodies: list[Any] = []
        self.answers: list[Response] = []
        self.app = Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "POST", "DELETE"])])

    async def _answer(self, request: Request) -> Response:
        body = await request.body()
        self.asked.append(request)
        self.bodies.append(json.loads(body) if body else None)
        return self.answers.pop(0) if self.answers else Response(status_code=202)


@pytest.fixture
async def world() -> AsyncIterator[tuple[Service, str]]:
    service = Service()
    async with listening(service.app) as url:
        yield service, url


@asynccontextmanager
async def serving(
    flow: loom.Flow | None, url: str = "memory://", **options: Any
) -> AsyncIterator[tuple[DurableRuntime, Client]]:
    """A runtime that works for a flow, with a server whose address services can call."""
    runtime: Any = loom.connect(url, http_allow=["127.0.0.1"], definitions=True, **options)
    async with listening(Served(runtime, ServerSettings()).app) as own, Client(own) as client, runtime:
        runtime.callbacks.url = own
        if flow is not None:
            runtime.register(flow, name="orders")
        yield runtime, client


def polling(url: str, **fields: Any) -> loom.Flow:
    trigger = {
        "type": "Http",
        "inputs": {"method": "GET", "uri": f"{url}/items", "queries": {"key": "@parameters('key')"}},
        "recurrence": {"frequency": "Hour", "interval": 1},
        **fields,
    }
    parameters = {"key": {"type": "SecureString", "defaultValue": SECRET}}
    return loom.load({"parameters": parameters, "triggers": {"new": trigger}, "actions": ECHO}, name="orders")


async def until(holds: Callable[[], Any]) -> Any:
    """Wait until something holds, and return it."""
    async with asyncio.timeout(60):
        while not (found := await holds()):  # noqa: ASYNC110 - a service tells nobody
            await asyncio.sleep(0.02)
    return found


async def until_firing(runtime: DurableRuntime, code: str) -> Any:
    """Wait until the history has a firing with a code, and return the history."""

    async def told() -> Any:
        found = await runtime.trigger_history("orders")
        return found if code in [each.code for each in found.firings] else None

    return await until(told)


async def bodies(runtime: DurableRuntime) -> list[Any]:
    """What the runs of the flow were started with."""
    found = [await (await runtime.handler(info.run_id)) async for info in runtime.list(workflow="orders")]
    return [result.actions["Echo"].outputs for result in found][::-1]


# -- polls -------------------------------------------------------------------------------------------------------------


async def test_a_poll_goes_on_where_the_service_says_and_when(world: tuple[Service, str], tmp_path: Path) -> None:
    service, url = world
    service.answers = [
        JSONResponse([1, 2], headers={"Location": f"/items?key={SECRET}&after=2", "Retry-After": "1"}),
        Response(status_code=202, headers={"Location": "/items?after=3", "Retry-After": "1"}),
        JSONResponse([3]),
    ]
    store = f"sqlite:///{tmp_path}/runs.db"
    async with serving(polling(url, splitOn="@triggerBody()"), store) as (runtime, _):

        async def all_came() -> bool:
            return len(service.asked) == 3 and sorted(await bodies(runtime)) == [1, 2, 3]

        await until(all_came)
        asked = [str(request.url).removeprefix(url) for request in service.asked]
        assert asked == [f"/items?key={SECRET}", f"/items?key={SECRET}&after=2", "/items?after=3"]
        assert (await until_firing(runtime, "Accepted")).next_at is not None
        assert SECRET not in await stored(runtime)
        for info in [info async for info in runtime.list(workflow="orders")]:
            ticks = [entry.tick async for entry in runtime.history(info.run_id)]
            assert SECRET not in repr(ticks)


async def stored(runtime: DurableRuntime, run_id: str = "trigger:orders:new") -> str:
    """All that the store has of a listener: its ticks, and its state."""
    ticks = [entry.tick async for entry in runtime.history(run_id)]
    assert ticks
    return f"{ticks!r} {await runtime.state_at(run_id)!r}"


async def test_an_answer_of_ten_megabytes_is_split_and_a_larger_one_is_told(world: tuple[Service, str]) -> None:
    service, url = world
    large = [{"n": number, "text": "x" * 1_000_000} for number in range(10)]
    service.answers = [JSONResponse(large), JSONResponse([*large, *large])]
    async with serving(polling(url, splitOn="@triggerBody()")) as (runtime, _):
        await until_firing(runtime, "OK")
        assert sorted(body["n"] for body in await bodies(runtime)) == list(range(10))
        await runtime.fire_trigger("orders")
        told = await until_firing(runtime, "AnswerRefused")
        assert "at most 16777216 are taken" in told.last_error
        service.answers = [JSONResponse(["small"])]
        await runtime.fire_trigger("orders")

        async def came() -> bool:
            return "small" in [body for body in await bodies(runtime) if isinstance(body, str)]

        await until(came)


@pytest.mark.parametrize(
    ("answer", "code", "words"),
    [
        (Response('{"items": [', media_type="application/json"), "AnswerRefused", "says that it is JSON"),
        (JSONResponse({"error": "down"}, 500), "InternalServerError", "The server answered 500"),
        (JSONResponse({}, 404), "NotFound", "The server answered 404"),
        (JSONResponse({"items": 1}), "FiringRefused", "not an array"),
    ],
    ids=["broken JSON", "500", "404", "no array"],
)
async def test_a_bad_answer_is_told_and_the_next_one_counts(
    world: tuple[Service, str], answer: Response, code: str, words: str
) -> None:
    service, url = world
    service.answers = [answer, JSONResponse({"items": ["good"]})]
    async with serving(polling(url, splitOn="@triggerBody()?['items']")) as (runtime, client):
        told = await until_firing(runtime, code)
        assert words in told.last_error
        assert await bodies(runtime) == []
        fired = await client.fire_trigger("orders", "new")
        assert fired.run_id == "trigger:orders:new"
        await until_firing(runtime, "OK")
        seen = await client.trigger_history("orders", "new")
        assert (seen.last_error, seen.firings[0].runs, seen.firings[0].by_hand) == (None, 1, True)
        assert seen.firings[1].code == code
        assert await bodies(runtime) == ["good"]


async def test_an_address_that_may_not_be_reached_is_not_polled() -> None:
    flow = polling("http://169.254.169.254")
    async with serving(flow) as (runtime, _):
        told = await until_firing(runtime, "HostRefused")
        assert "169.254.169.254" in told.last_error


async def test_a_connector_with_a_document_is_polled_and_its_key_is_not_stored(world: tuple[Service, str]) -> None:
    service, url = world
    service.answers = [JSONResponse({"value": [{"id": 1, "echo": f"Bearer {SECRET}"}]})]
    paths = {"/queues/{queue}/messages": {"get": {"parameters": [PATH_QUEUE], "responses": {"200": {}}}}}
    handlers = loom.ActionHandlers()
    handlers.connector(
        "queue",
        openapi={"swagger": "2.0", "host": "x.example.com", "paths": paths},
        base_url=url,
        auth=loom.BearerToken(token=SECRET),
        allow_private=True,
    )
    trigger = {
        "type": "ApiConnection",
        "inputs": {
            "host": {"connection": {"name": "@parameters('$connections')['queue']['connectionId']"}},
            "method": "get",
            "path": "/queues/@{encodeURIComponent('a/b')}/messages",
        },
        "recurrence": {"frequency": "Hour", "interval": 1},
        "splitOn": "@triggerBody()?['value']",
    }
    definition = {"parameters": {"$connections": {"type": "Object"}}, "triggers": {"new": trigger}, "actions": ECHO}
    async with serving(loom.load(definition, name="orders"), handlers=handlers) as (runtime, _):
        await until_firing(runtime, "OK")
        [asked] = service.asked
        assert asked.headers["authorization"] == f"Bearer {SECRET}"
        assert asked.scope["raw_path"] == b"/queues/a%2Fb/messages"
        [body] = await bodies(runtime)
        assert body["id"] == 1
        assert SECRET not in json.dumps(body)
        assert SECRET not in await stored(runtime)


PATH_QUEUE = {"name": "queue", "in": "path", "required": True, "type": "string"}


# -- webhooks ----------------------------------------------------------------------------------------------------------


def hooked(url: str) -> loom.Flow:
    request = {"method": "POST", "uri": f"{url}/hooks", "body": {"to": "@{listCallbackUrl()}"}}
    inputs = {"subscribe": request, "unsubscribe": {**request, "method": "DELETE"}}
    return loom.load(
        {"triggers": {"called": {"type": "HttpWebhook", "inputs": inputs}}, "actions": ECHO}, name="orders"
    )


async def test_an_http_webhook_is_called_until_its_flow_is_deleted(world: tuple[Service, str]) -> None:
    import httpx2

    service, url = world
    service.answers = [JSONResponse({"ok": True}), JSONResponse({"ok": True})]
    async with serving(hooked(url)) as (runtime, client), httpx2.AsyncClient() as caller:
        await until_firing(runtime, "Subscribed")
        address = service.bodies[0]["to"]
        for number in (1, 2):
            answer = await caller.post(address, json={"n": number})
            assert (answer.status_code, answer.json()) == (202, {"duplicate": False})
        once = [await caller.post(address, json={"n": 3}, headers={"Idempotency-Key": "k"}) for _ in range(2)]
        assert [answer.json()["duplicate"] for answer in once] == [False, True]

        async def all_came() -> bool:
            return sorted(body["n"] for body in await bodies(runtime)) == [1, 2, 3]

        await until(all_came)
        forged = f"{address[:-4]}AAAA"
        assert (await caller.post(forged, json={})).status_code == 401
        assert (await caller.get(address)).status_code == 405
        assert urlsplit(address).query.removeprefix("sig=") not in str(await client.trigger_history("orders", "called"))
        await client.delete_definition("orders")

        async def ended() -> bool:
            return (await runtime.get("trigger:orders:called")).status == "cancelled"

        await until(ended)
        assert [request.method for request in service.asked] == ["POST", "DELETE"]
        assert service.bodies[1] == {"to": address}
        assert (await caller.post(address, json={"n": 4})).status_code == 409


async def test_disabling_by_the_api_unsubscribes(world: tuple[Service, str]) -> None:
    service, url = world
    service.answers = [JSONResponse({"ok": True}), JSONResponse({"ok": True})]
    async with serving(hooked(url)) as (runtime, client):
        await until_firing(runtime, "Subscribed")
        await client.disable_flow("orders")
        await until_firing(runtime, "Unsubscribed")
        assert (await client.trigger_history("orders", "called")).subscribed is False
        assert [request.method for request in service.asked] == ["POST", "DELETE"]


# -- routes ------------------------------------------------------------------------------------------------------------


async def test_refusals_of_the_routes(world: tuple[Service, str]) -> None:
    _, url = world
    async with serving(hooked(url)) as (runtime, client):
        for ask in (client.trigger_history, client.fire_trigger):
            with pytest.raises(loom.client.ClientError) as found:
                await ask("orders", "calld")
            assert (found.value.problem.status, found.value.problem.code) == (404, "not-found")
            assert "Did you mean 'called'?" in str(found.value)
        with pytest.raises(loom.client.ClientError, match="fired by a call"):
            await client.fire_trigger("orders", "called")
        await client.disable_flow("orders")
        with pytest.raises(loom.client.ClientError) as found:
            await client.fire_trigger("orders", "called")
        assert found.value.problem.code == "flow-disabled"
        with pytest.raises(TriggerNotFound):
            await runtime.trigger_history("orders", "nothing")


async def test_a_recurrence_has_a_history_and_fires_by_hand() -> None:
    trigger = {"type": "Recurrence", "recurrence": {"frequency": "Day", "interval": 1}}
    echo = {"Echo": {"type": "Compose", "inputs": "@triggerOutputs()?['scheduledTime']", "runAfter": {}}}
    flow = loom.load({"triggers": {"daily": trigger}, "actions": echo}, name="orders")
    async with serving(flow) as (runtime, client):

        async def kept() -> bool:
            return (await client.trigger_history("orders", "daily")).next_at is not None

        await until(kept)
        fired = await client.fire_trigger("orders", "daily")
        result = await (await runtime.handler(fired.run_id))
        assert result.actions["Echo"].outputs.endswith("Z")
