"""Signed addresses: what they open, what they do not, and that nothing repeats their signature."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import uvicorn
from server_serving import FLOW, Served
from test_invoke import FAILS, TELLS, WAITS, answers, endpoint, flow

import loom
from loom.server.auth import Principal
from loom.server.settings import ServerSettings

INVOKE = "/v1/definitions/a/invoke"
HOST = "https://loom.example"
HI = flow(R=answers("hi"))
GETS = flow({"inputs": {"method": "GET"}}, R=answers("hi"))


async def signed(served: Served, name: str = "a", **options: Any) -> str:
    """The address of a flow, without the server in front of it."""
    return (await served.runtime.flow_address(name, url=HOST, **options)).url.removeprefix(HOST)


def signature(address: str) -> str:
    return address.rpartition("sig=")[2]


async def code(client: httpx2.AsyncClient, address: str, method: str = "POST", **more: Any) -> tuple[int, str | None]:
    answer = await client.request(method, address, **more)
    is_problem = answer.headers.get("content-type") == "application/problem+json"
    return answer.status_code, answer.json()["code"] if is_problem else None


REFUSED = (401, "unauthenticated")


@pytest.fixture(params=[False, True], ids=["without keys", "with keys"])
def with_keys(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def test_an_address_opens_its_trigger_for_a_stranger(with_keys: bool) -> None:
    async with endpoint(HI) as (served, client):
        if with_keys:
            await served.key("read")
            assert await code(client, INVOKE) == REFUSED
        async with served.client(address="203.0.113.9") as stranger:
            assert await code(stranger, await signed(served)) == (200, None)
            # With a key that is good for less, the address counts.
            other = await served.key("read", workflows=("b",))
        async with served.client(other) as limited:
            assert await code(limited, await signed(served)) == (200, None)


async def test_what_is_no_address_is_refused_everywhere(with_keys: bool, tmp_path: Any) -> None:
    """Also for a caller whose key would be good enough."""
    async with endpoint(HI, GETS) as (served, _), endpoint(HI, url=f"sqlite:///{tmp_path}/o.db") as (other, _other):
        good = await signed(served)
        expired = await signed(served, expires_in=0.001)
        await asyncio.sleep(0.002)
        wrong = {
            "another flow's": (await signed(served, "b")).replace("/b/", "/a/"),
            "another server's": await signed(other),
            "forged": good.replace(signature(good), signature(good)[::-1]),
            "empty": good.replace(signature(good), ""),
            "missing parts": f"{INVOKE}?sig={signature(good)}",
            "another key": good.replace("sv=1", "sv=2"),
            "another trigger": good.replace("sp=manual", "sp=other"),
            "a later end": expired.replace("se=", "se=9"),
            "no end": expired.replace(f"&se={expired.partition('se=')[2].partition('&')[0]}", ""),
            "expired": expired,
            "twice": f"{good}&sig={signature(good)}",
            "numbers that are none": good.replace("sv=1", "sv=x"),
            "a key without end": good.replace("sv=1", f"sv={'9' * 400}"),
            "no flow": good.replace("/a/", "/nobody/"),
            "no text": f"{INVOKE}?sig=%ff%00&sv=1&sp=%ed%a0%80",
            "a callback's": f"{INVOKE}?sp=manual&sv=1&sig={await served.runtime.signer.sign('callback', 'x')}",
        }
        key = await served.key("admin") if with_keys else None
        async with served.client(key) as caller:
            for what, address in wrong.items():
                answer = await caller.post(address)
                assert answer.status_code in (401, 429), what
                assert "www-authenticate" in answer.headers or answer.status_code == 429
        async with served.client(key) as caller:
            assert (await caller.get("/v1/runs")).json()["items"] == []


async def test_rotation_ends_older_addresses_at_once_and_those_of_their_answers() -> None:
    async with endpoint(flow(R={**answers("later"), "operationOptions": "Asynchronous"})) as (served, client):
        old = await signed(served)
        accepted = await client.post(old)
        assert accepted.status_code == 202
        new = await signed(served, rotate=True)
        assert "sv=2" in new
        assert await code(client, old) == REFUSED
        assert await code(client, accepted.headers["location"], "GET") == REFUSED
        assert await code(client, new) == (202, None)


async def test_rotation_ends_a_request_that_waits() -> None:
    async with endpoint(flow(W=WAITS, R=answers())) as (served, client):
        waiting = asyncio.create_task(client.post(await signed(served)))
        async with asyncio.timeout(60):
            while not served.server.waits.holders():
                await asyncio.wait([waiting], timeout=0.01)
        await served.runtime.flow_address("a", url=HOST, rotate=True)
        assert (await waiting).status_code == 401


async def test_an_address_ends_with_its_flow() -> None:
    async with endpoint(HI) as (served, client):
        document = {"definition": {"triggers": {"manual": {"type": "Request"}}, "actions": {"R": answers(1)}}}
        assert (await client.put("/v1/definitions/new", json=document)).status_code == 201
        address = await signed(served, "new")
        assert await code(client, address) == (200, None)
        await client.put("/v1/definitions/new", json={"definition": {**document["definition"], "description": "2"}})
        assert await code(client, address) == (200, None)
        renamed = {"triggers": {"other": {"type": "Request"}}, "actions": {"R": answers(1)}}
        await client.put("/v1/definitions/new", json={"definition": renamed})
        assert await code(client, address) == REFUSED  # it was for another trigger
        await client.put("/v1/definitions/new", json=document)
        await client.delete("/v1/definitions/new")
        assert await code(client, address) == REFUSED
        await client.put("/v1/definitions/new", json=document)
        assert await code(client, address) == REFUSED  # this is another flow of the same name


async def test_an_address_opens_nothing_else() -> None:
    async with endpoint(TELLS) as (served, client):
        await served.key("read")
        good = await signed(served)
        query = good.partition("?")[2]
        run = await client.post(good)
        run_id = run.headers["loom-run-id"]
        for path in (
            f"/v1/runs/{run_id}",
            "/v1/runs",
            "/v1/definitions",
            "/v1/definitions/a",
            f"/v1/runs/{run_id}/response",
        ):
            assert await code(client, f"{path}?{query}", "GET") == REFUSED, path
        assert await code(client, f"/v1/runs?{query}", json={"workflow": "a"}) == REFUSED
        assert await code(client, f"/v1/definitions/a/disable?{query}") == REFUSED
        # What only keys have.
        assert await code(client, good, headers={"Loom-Parameters": "{}"}) == (403, "forbidden")


async def test_what_a_flow_sees_of_a_signed_request() -> None:
    async with endpoint(TELLS) as (served, client):
        address = await signed(served, expires_in=60)
        answer = await client.post(
            f"{address}&wait=3&colour=red",
            json={},
            headers={"Referer": f"{HOST}{address}", "X-Original-Url": address},
        )
        seen = answer.json()
        assert seen["queries"] == {"wait": "3", "colour": "red"}
        assert signature(address) not in answer.text
        assert seen["headers"]["Referer"].endswith("sig=***")


async def test_nothing_repeats_a_signature(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"sqlite:///{tmp_path}/r.db"
    async with endpoint(flow(F=FAILS, R=answers()), flow(W=WAITS, R=answers()), url=url) as (served, client):
        good = await signed(served)
        secret = signature(good)
        told: list[str] = []
        failed = await client.post(good, headers={"Idempotency-Key": "k"})
        assert failed.status_code == 502
        told.append(failed.text)
        for wrong in (
            good.replace("sv=1", "sv=7"),
            good.replace("/invoke", "/invoke/more"),
            good.replace("/v1/", "/v2/"),
        ):
            told.append((await client.post(wrong)).text)
        run_id = failed.headers["loom-run-id"]
        for path in ("", "/why", "/state", "/history", "/actions", "/stream", "/attempts", "/export"):
            told.append((await client.get(f"/v1/runs/{run_id}{path}")).text)
        told.append((await client.get("/v1/audit")).text)
        told.append((await client.get("/metrics")).text)
        lines = [record.getMessage() for record in caplog.records if record.name.startswith("loom")]
        assert lines
        assert not any(secret in text for text in (*told, *lines))
    stored = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert secret.encode() not in stored


class Recorder(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def access_log() -> Iterator[list[str]]:
    handler, logger = Recorder(), logging.getLogger("uvicorn.access")
    logger.addHandler(handler)
    level, logger.level = logger.level, logging.INFO
    yield handler.lines
    logger.removeHandler(handler)
    logger.level = level


async def test_the_access_log_of_a_server_of_the_users_has_no_signature(access_log: list[str]) -> None:
    async with endpoint(GETS) as (served, _):
        config = uvicorn.Config(served.app, port=0, log_config=None, lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        async with asyncio.timeout(60):
            while not server.started:
                await asyncio.wait([serving], timeout=0.01)
        [socket] = server.servers[0].sockets
        base = f"http://127.0.0.1:{socket.getsockname()[1]}"
        address = await signed(served)
        async with httpx2.AsyncClient(base_url=base) as client:
            assert (await client.get(address)).text == "hi"
            assert (await client.get(address.replace("sig=", "%73ig="))).text == "hi"
        server.should_exit = True
        await serving
    assert len(access_log) == 2
    assert all("sig=***" in line and signature(address) not in line for line in access_log)


async def test_who_has_called_is_in_the_record_and_at_the_run() -> None:
    async with endpoint(HI) as (served, client):
        run_id = (await client.post(await signed(served))).headers["loom-run-id"]
        acts = (await client.get("/v1/audit")).json()["items"]
        assert [(act["action"], act["actor_name"], act["target"], act["made"]) for act in acts] == [
            ("run.start", "address of a", "a", run_id)
        ]
        assert (await client.get(f"/v1/runs/{run_id}")).json()["tags"] == {"loom.address": "address of a"}
        await client.post(INVOKE)
        assert len((await client.get("/v1/audit")).json()["items"]) == 1


async def test_an_idempotency_key_counts_also_after_a_rotation() -> None:
    async with endpoint(flow({"inputs": {"method": "PUT"}}, R=answers("@workflow()['run']['name']"))) as (
        served,
        client,
    ):
        first = await client.put(await signed(served), headers={"Idempotency-Key": "k"})
        again = await client.put(await signed(served, rotate=True), headers={"Idempotency-Key": "k"})
        assert (first.text, again.headers["idempotent-replay"]) == (again.text, "true")
        other = await client.put(f"{await signed(served)}&x=1", headers={"Idempotency-Key": "k"})
        assert other.status_code == 422


async def test_limits_hold_for_callers_of_addresses() -> None:
    async with endpoint(HI, flow(W={"type": "wait", "inputs": {"interval": {"count": 1, "unit": "hour"}}}),
                        rate=2.0, max_body=100, max_starts=1) as (served, client):  # fmt: skip
        address = await signed(served, "b")
        assert await code(client, address, content=b"x" * 101) == (413, "too-large")
        served.server.draining = True
        assert await code(client, address) == (503, "draining")
        served.server.draining = False
        found = [await code(client, address) for _ in range(4)]
        assert (429, "limited") in found


# -- GET without a signature ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("site", "status"),
    [(None, 200), ("none", 200), ("same-origin", 200), ("same-site", 403), ("cross-site", 403), ("whatever", 403)],
)
async def test_a_get_of_another_site_starts_nothing(site: str | None, status: int) -> None:
    async with endpoint(GETS) as (served, client):
        headers = {"Sec-Fetch-Site": site} if site is not None else {}
        assert (await client.get(INVOKE, headers=headers)).status_code == status
        assert len((await client.get("/v1/runs")).json()["items"]) == (1 if status == 200 else 0)
        # Who has the address may come from everywhere.
        assert (await client.get(await signed(served), headers=headers)).status_code == 200
        start, read = await served.key("start"), await served.key("read")
        for key, expected in ((start, status), (read, 403)):
            async with served.client(key) as caller:
                assert (await caller.get(INVOKE, headers=headers)).status_code == expected


async def test_a_session_needs_its_token_where_the_browser_does_not_say_from_where() -> None:
    async with endpoint(GETS) as (served, client):
        key = await served.key("start", "read")
        made = await client.post("/v1/session", json={"key": key})
        token = made.json()["csrf_token"] if "csrf_token" in made.json() else made.json()["csrf"]
        assert await code(client, INVOKE, "GET") == (403, "csrf")
        assert (await client.get(INVOKE, headers={"X-Loom-CSRF": token})).status_code == 200
        assert (await client.get(INVOKE, headers={"Sec-Fetch-Site": "same-origin"})).status_code == 200


async def test_a_server_that_only_shows_fires_nothing() -> None:
    async with endpoint(GETS) as (served, _):
        shows = Served(served.runtime, ServerSettings(read_only=True))
        async with shows.client() as client:
            assert await code(client, INVOKE, "GET") == (403, "read-only")
            assert await code(client, await signed(served), "GET") == (403, "read-only")


# -- parameters -------------------------------------------------------------------------------------------------------

ASKS = loom.load(
    {
        "definition": {
            "parameters": {
                "Limit": {"type": "Int", "defaultValue": 1},
                "Secret": {"type": "SecureString", "defaultValue": "d"},
            },
            "triggers": {
                "manual": {"type": "Request", "conditions": [{"expression": "@greater(parameters('Limit'), 0)"}]}
            },
            "actions": {"R": answers("@concat(parameters('Limit'), parameters('Secret'))")},
        }
    }
)


async def test_parameters_of_callers_who_may_start() -> None:
    async with endpoint(ASKS) as (_, client):

        async def asked(given: Any) -> httpx2.Response:
            text = given if isinstance(given, str) else json.dumps(given)
            return await client.post(INVOKE, headers={"Loom-Parameters": text})

        assert (await asked({"limit": 5, "Secret": "grüß"})).text == "5grüß"
        assert (await asked({})).text == "1d"
        none = await asked({"Limit": 0})  # the condition does not hold
        assert (none.status_code, none.json()["items"]) == (202, [])
        for wrong in ("[1]", "{", "1", {"Limit": "x"}, {"Nobody": 1}, '{"Limit": 1, "Limit": 2}'):
            answer = await asked(wrong)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid-request"), wrong
        first = await client.post(INVOKE, headers={"Loom-Parameters": '{"Limit": 2}', "Idempotency-Key": "k"})
        other = await client.post(INVOKE, headers={"Loom-Parameters": '{"Limit": 3}', "Idempotency-Key": "k"})
        assert (first.text, other.status_code) == ("2d", 422)
        run = (await asked({"Secret": "hidden-one"})).headers["loom-run-id"]
        assert "hidden-one" not in (await client.get(f"/v1/runs/{run}/history")).text


# -- giving addresses out ---------------------------------------------------------------------------------------------


async def test_addresses_are_given_out_to_administrators() -> None:
    recurs = {"triggers": {"daily": {"type": "Recurrence", "recurrence": {"frequency": "Day", "interval": 1}}}}
    pathed = flow({"inputs": {"method": "GET", "relativePath": "/o/{id}"}}, R=answers("hi"))
    timed = loom.load({"definition": {**recurs, "actions": {"C": {"type": "Compose", "inputs": 1}}}})
    async with endpoint(HI, pathed, timed, loom.load(FLOW)) as (served, client):
        await served.key("read")
        at = "/v1/definitions/{}/address"
        for scopes, status in ((("read", "start", "event"), 403), (("admin",), 200)):
            async with served.client(await served.key(*scopes)) as caller:  # type: ignore[arg-type]
                assert (await caller.post(at.format("a"))).status_code == status
        async with served.client(await served.key("admin", workflows=("b",))) as limited:
            assert (await limited.post(at.format("a"))).status_code in (403, 404)
            found = (await limited.post(at.format("b"), json={"expires_in": 60})).json()
            assert found["url"].startswith("http://127.0.0.1/v1/definitions/b/invoke/o/{id}?sp=manual&sv=1&se=")
            assert (found["methods"], found["key"], found["trigger"]) == (["GET"], 1, "manual")
            assert found["expires_at"] is not None
        async with served.client(await served.key("admin")) as admin:
            assert (await admin.post(at.format("c"))).json()["code"] == "invalid-request"
            assert (await admin.post(at.format("asks"))).status_code == 404
            assert (await admin.post(at.format("nobody"))).status_code == 404
            assert (await admin.post(at.format("a"), json={"expires_in": -1})).status_code == 400
            plain = (await admin.post(at.format("d"))).json()["url"]  # Loom's dialect has no triggers
            assert await code(client, plain.removeprefix("http://127.0.0.1")) == (202, None)
            acts = (await admin.get("/v1/audit")).json()["items"]
        assert "definition.address" in {act["action"] for act in acts}
        assert not any("sig" in json.dumps(act) for act in acts)


def test_the_caller_of_an_address_is_no_key() -> None:
    caller = Principal("address:a%20b", frozenset(), address_key=3)
    assert caller.holder == "address:a%20b 3"
