"""Callbacks: a service answers a flow at the address that it was given, and can do nothing else with it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
import pytest
import uvicorn
from server_serving import Served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import loom
from loom.effects.actions.webhook import with_address, without_address
from loom.flows.calls import CALLBACK
from loom.runtime.durable.addresses import SECRETS, Callback, Signer, StoredCallbacks
from loom.server.settings import ServerSettings
from loom.store.memory import MemoryStore

BASE = "https://loom.example.com/base"


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    """The address of an application on a port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


class Service:
    """A service that takes subscriptions."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.status = 200
        self.app = Starlette(routes=[Route("/{path:path}", self._take, methods=["POST", "DELETE"])])

    async def _take(self, request: Request) -> Response:
        body = await request.json() if await request.body() else None
        self.asked.put_nowait({"path": request.url.path, "query": request.url.query, "body": body})
        return JSONResponse({"you_said": body}, self.status)


def flow(service: str, **inputs: Any) -> Any:
    subscribe = {
        "method": "POST",
        "uri": f"{service}/subscribe",
        "queries": {"to": "@{listCallbackUrl()}"},
        "body": {
            "url": "@listCallbackUrl()",
            "text": "Call @{listCallbackUrl()} please",
            "link": "https://go.example.com?to=@{encodeUriComponent(listCallbackUrl())}",
            "kept": "@outputs('Kept')",
        },
    }
    actions = {
        "Kept": {"type": "Compose", "inputs": "@listCallbackUrl()", "runAfter": {}},
        "Hook": {
            "type": "HttpWebhook",
            "inputs": {"subscribe": subscribe, "unsubscribe": {}, **inputs},
            "runAfter": {"Kept": ["Succeeded"]},
        },
    }
    outputs = {"said": {"type": "Object", "value": "@outputs('Hook')"}}
    triggers = {"manual": {"type": "Request", "kind": "Http"}}
    return loom.load({"definition": {"triggers": triggers, "actions": actions, "outputs": outputs}})


@pytest.fixture
async def service() -> AsyncIterator[tuple[Service, str]]:
    found = Service()
    async with listening(found.app) as url:
        yield found, url


@asynccontextmanager
async def hooked(
    service: str, url: str = "memory://", callback: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[Served]:
    """A server with a flow that subscribes at a service."""
    settings = {"idle_timeout": 0, "http_allow": ["127.0.0.1"], "callback_url": BASE, **options}
    async with loom.connect(url, **settings) as runtime:
        runtime.register(flow(service, **({"callback": callback} if callback is not None else {})), name="hook")
        yield Served(runtime, ServerSettings())


def local(address: str) -> str:
    """The path of an address, for a client that knows the server."""
    parts = urlsplit(address)
    return f"{parts.path.removeprefix('/base')}?{parts.query}"


async def subscribed(served: Served, service: Service, run_id: str) -> str:
    """Start a run, and the address that the service got."""
    await served.runtime.start("hook", run_id=run_id)
    async with asyncio.timeout(60):
        address = (await service.asked.get())["body"]["url"]
    await served.until_waiting(run_id)
    return str(address)


async def test_a_service_calls_back_over_http_after_the_run_was_released(
    service: tuple[Service, str], tmp_path: Any
) -> None:
    asked, service_url = service
    async with hooked(service_url, f"sqlite:///{tmp_path}/runs.db") as served, listening(served.app) as own:
        served.runtime.callbacks.url = own
        address = await subscribed(served, asked, "order/17 ü")
        async with asyncio.timeout(60):
            while served.runtime.active_run("order/17 ü") is not None:
                await asyncio.wait([served.runtime.watchers.subscribe("order/17 ü")], timeout=0.02)
        async with httpx2.AsyncClient() as client:
            answer = await client.post(f"{address}&more=1", json={"done": True}, headers={"Cookie": "a=1"})
            assert (answer.status_code, answer.json()) == (202, {"duplicate": False})
        result = await (await served.runtime.handler("order/17 ü"))
        said = result.raise_for_status().outputs["said"]
        assert (said["body"], said["queries"]) == ({"done": True}, {"more": "1"})
        assert "Cookie" not in said["headers"]


async def test_the_address_stands_wherever_the_flow_has_put_it(service: tuple[Service, str]) -> None:
    asked, service_url = service
    async with hooked(service_url) as served:
        await served.runtime.start("hook", run_id="r")
        got = await asyncio.wait_for(asked.asked.get(), 60)
        address = got["body"]["url"]
        assert address.startswith(f"{BASE}/v1/callbacks/")
        assert got["body"]["text"] == f"Call {address} please"
        assert got["body"]["kept"] == address
        assert unquote(got["body"]["link"]) == f"https://go.example.com?to={address}"
        assert unquote(got["query"]) == f"to={address}"


async def test_the_signature_is_shown_to_nobody(service: tuple[Service, str]) -> None:
    asked, service_url = service
    asked.status = 400  # the service repeats what it was told, and that becomes the outputs of the action
    async with hooked(service_url) as served, served.client() as client:
        await served.runtime.start("hook", run_id="r")
        address = (await asyncio.wait_for(asked.asked.get(), 60))["body"]["url"]
        signature = urlsplit(address).query.removeprefix("sig=")
        assert (await client.get("/v1/runs/r?wait=10")).json()["status"] == "failed"
        for path in ("", "/history", "/state", "/actions", "/stream"):
            shown = (await client.get(f"/v1/runs/r{path}")).text
            assert signature not in shown
        assert CALLBACK in (await client.get("/v1/runs/r/history")).text


async def test_the_first_call_counts_and_a_repetition_changes_nothing(service: tuple[Service, str]) -> None:
    asked, service_url = service
    async with hooked(service_url) as served, served.client() as client:
        address = await subscribed(served, asked, "r")
        first = await client.post(local(address), json={"n": 1}, headers={"Idempotency-Key": "k"})
        assert (first.status_code, first.json()) == (202, {"duplicate": False})
        second = await client.post(local(address), json={"n": 2}, headers={"Idempotency-Key": "k"})
        assert (second.status_code, second.json()) == (202, {"duplicate": True})
        result = await (await served.runtime.handler("r"))
        assert result.outputs["said"]["body"] == {"n": 1}
        late = await client.post(local(address))
        assert (late.status_code, late.json()) == (202, {"duplicate": True})


async def test_who_follows_a_link_does_not_call_back(service: tuple[Service, str]) -> None:
    asked, service_url = service
    async with hooked(service_url) as served, served.client() as client:
        address = await subscribed(served, asked, "r")
        looked = await client.get(local(address))
        assert (looked.status_code, looked.headers["allow"]) == (405, "POST")
        assert (await client.get("/v1/runs/r")).json()["status"] == "running"
        assert (await client.post(local(address))).json() == {"duplicate": False}


async def test_a_get_calls_back_where_that_is_asked_for_and_a_look_does_not(service: tuple[Service, str]) -> None:
    asked, service_url = service
    async with hooked(service_url, callback={"method": "get"}) as served, served.client() as client:
        address = await subscribed(served, asked, "r")
        assert (await client.head(local(address))).status_code == 405
        assert (await client.get(f"{local(address)}&ok=yes")).json() == {"duplicate": False}
        result = await (await served.runtime.handler("r"))
        assert result.outputs["said"]["queries"] == {"ok": "yes"}


async def test_only_the_address_as_it_was_given_is_good(service: tuple[Service, str]) -> None:
    asked, service_url = service
    async with hooked(service_url) as served:
        await served.key("read")  # now strangers need a key everywhere else
        first, second = await subscribed(served, asked, "a"), await subscribed(served, asked, "b")
        async with served.client() as client:
            path, _, signature = local(first).partition("?sig=")
            other, _, other_signature = local(second).partition("?sig=")
            for wrong in (
                path,
                f"{path}?sig=",
                f"{path}?sig={other_signature}",
                f"{other}?sig={signature}",
                f"{path}?sig={signature[:-1]}",
                f"{path}?sig={signature}A",
                f"{path}?sig=%C3%BC",
                f"{path}=?sig={signature}",
                f"/v1/callbacks/%FF?sig={signature}",
            ):
                answer = await client.post(wrong)
                assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), wrong
            for elsewhere in (f"{path}/more?sig={signature}", f"/v1/callbacks?sig={signature}"):
                assert (await client.post(elsewhere)).status_code == 404
            for closed in ("/v1/runs/a", "/v1/runs/a/history", "/v1/runs"):
                assert (await client.get(f"{closed}?sig={signature}")).status_code == 401
            assert (await client.post(f"/v1/runs/a/events?sig={signature}", json={"type": "Go"})).status_code == 401
            assert (await client.post(f"{path}?sig={signature}")).status_code == 202


async def test_a_run_that_has_ended_or_is_gone_cannot_be_called_back(service: tuple[Service, str]) -> None:
    asked, service_url = service
    async with hooked(service_url) as served, served.client() as client:
        address = await subscribed(served, asked, "r")
        await served.runtime.cancel("r")
        assert (await client.get("/v1/runs/r?wait=10")).json()["status"] == "cancelled"
        ended = await client.post(local(address))
        assert (ended.status_code, ended.json()["code"]) == (409, "run-finished")
        await served.runtime.purge("r")
        gone = await client.post(local(address))
        assert (gone.status_code, gone.json()["code"]) == (404, "run-not-found")


@pytest.mark.parametrize(("callback", "lasts"), [({"expires": "PT1H"}, 3600), (None, 90 * 86_400)])
async def test_an_address_expires(
    service: tuple[Service, str], callback: dict[str, Any] | None, lasts: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, service_url = service
    async with hooked(service_url, callback=callback) as served, served.client() as client:
        address = await subscribed(served, asked, "r")
        now = served.runtime.now
        monkeypatch.setattr(served.runtime, "now", lambda: now() + lasts + 1)
        late = await client.post(local(address))
        assert (late.status_code, late.json()["detail"]) == (401, "This address has expired.")
        monkeypatch.setattr(served.runtime, "now", lambda: now() + lasts - 600)
        assert (await client.post(local(address))).status_code == 202


async def test_an_address_lasts_as_long_as_its_action_and_no_word_of_it_can_be_changed() -> None:
    store = MemoryStore()
    await store.open()
    found = StoredCallbacks(Signer(store), BASE)
    old, new, by_get = [
        str(await found.address("r", "k", until, get=get)) for until, get in ((None, False), (9e9, False), (9e9, True))
    ]
    assert len({old, new, by_get}) == 3
    tokens = [address.rpartition("/")[2].partition("?sig=") for address in (old, new, by_get)]
    callbacks = [await found.find(token, signature) for token, _, signature in tokens]
    assert callbacks == [Callback("r", "k"), Callback("r", "k", 9e9), Callback("r", "k", 9e9, get=True)]
    assert len({callback.event_id for callback in callbacks if callback is not None}) == 1
    assert await found.find(tokens[2][0], tokens[1][2]) is None
    await store.close()


@pytest.mark.parametrize("callback", [{"method": "PUT"}, {"expires": "soon"}, {"expires": -1}, "GET"])
async def test_a_callback_that_cannot_be_asked_for_fails_the_action(
    service: tuple[Service, str], callback: Any
) -> None:
    async with hooked(service[1], callback=callback) as served:
        result = await (await served.runtime.start("hook", run_id="r"))
        assert result.status == "Failed"
        assert "inputs.callback" in result.actions["Hook"].error["message"]


async def test_all_processes_on_a_store_have_one_secret() -> None:
    store = MemoryStore()
    await store.open()
    one, other = StoredCallbacks(Signer(store), BASE), StoredCallbacks(Signer(store), f"{BASE}/")
    addresses = await asyncio.gather(one.address("r", "k"), other.address("r", "k"))
    assert addresses[0] == addresses[1]
    assert len(await store.entries(SECRETS)) == 1
    assert await StoredCallbacks(Signer(store)).address("r", "k") is None
    await store.close()


@pytest.mark.parametrize(
    "url", ["loom.example.com", "ftp://a", "https://", "https://a?b=1", "https://u:p@a", "https://a#b"]
)
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="no address for callbacks"):
        loom.connect("memory://", callback_url=url)


def test_data_without_an_address_stays_as_it_is() -> None:
    data = {"a": [CALLBACK, 1, None]}
    assert with_address(data, None) is data
    assert with_address(data, "https://x/y") == {"a": ["https://x/y", 1, None]}
    assert without_address({"a": ["https://x/y"]}, "https://x/y") == {"a": [CALLBACK]}
