"""Refusals: a key that is gone waits for nothing; the log and the record say who was refused, and not too often."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from server_serving import Asks, Served

import loom
from loom.runtime.durable.runtime import DurableRuntime
from loom.server.app import create_app
from loom.server.auth import new_key
from loom.server.caller_limits import Refusals
from loom.server.http_server import bind, serving
from loom.server.problems import ApiProblem
from loom.server.settings import ServerSettings

START = {"workflow": "asks", "input": {"topic": "tea"}}
RESPONDS: dict[str, Any] = {
    "definition": {
        "actions": {
            "Wait": {"type": "waitForEvent", "inputs": {"event": "Go"}, "runAfter": {}},
            "Say": {"type": "Response", "inputs": {"statusCode": 200}, "runAfter": {"Wait": ["Succeeded"]}},
        }
    }
}


@pytest.fixture
async def runtime() -> AsyncIterator[DurableRuntime]:
    async with loom.connect("memory://") as found:
        found.register(Asks(timeout=None), name="asks")
        found.register(loom.load(RESPONDS), name="says")
        yield found


# -- waits end with their key -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["revoked", "expired"])
async def test_a_key_that_is_gone_ends_its_waits_and_no_others(runtime: DurableRuntime, ending: str) -> None:
    """As its streams do. The runs go on, and with another key the request finds the same one."""
    app = create_app(runtime, ServerSettings())
    server = app.state.server
    moved = 0.0
    clock, server.keys._now = server.keys._now, lambda: clock() + moved
    key, stored = new_key(("admin",), now=runtime.now(), expires_at=runtime.now() + 3600)
    other, other_stored = new_key(("admin",))
    await server.keys.add(stored)
    await server.keys.add(other_stored)
    bearer = {"Authorization": f"Bearer {key}"}
    once = {**bearer, "Idempotency-Key": "once"}
    async with (
        serving(app, await bind("127.0.0.1", 0)) as served,
        httpx2.AsyncClient(base_url=served.url, timeout=60) as client,
    ):
        with_key = {
            "start": client.post("/v1/runs?wait=60", json={**START, "run_id": "w"}, headers=bearer),
            "repeated": client.post("/v1/runs?wait=60", json=START, headers=once),
            "get": client.get("/v1/runs/w?wait=60", headers=bearer),
            "invoke": client.post("/v1/definitions/says/invoke?wait=60", json={}, headers=bearer),
            "run": client.post("/workflows/asks/run", json={"start_event": {"topic": "x"}}, headers=bearer),
        }
        asked = {"start": asyncio.create_task(with_key.pop("start"))}
        await until(lambda: len(server.waits) == 1)
        asked |= {name: asyncio.create_task(request) for name, request in with_key.items()}
        goes_on = asyncio.create_task(client.get("/v1/runs/w?wait=60", headers={"Authorization": f"Bearer {other}"}))
        await until(lambda: len(server.waits) == len(asked) + 1)
        if ending == "revoked":
            rotated, _ = await server.keys.rotate(stored.id, 3600)
            await server.keys.revoke(stored.id)
        else:
            moved = 3601.0
        async with asyncio.timeout(60):
            answers = {name: await task for name, task in asked.items()}
        assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(asked, 401)
        assert not goes_on.done()
        assert len(server.waits) == 1
        if ending == "revoked":
            # The run that the request had begun is the one that its repetition finds, with the new key.
            again = {"Authorization": f"Bearer {rotated}", "Idempotency-Key": "once"}
            before = len((await client.get("/v1/runs", headers=again)).json()["items"])
            repeated = asyncio.create_task(client.post("/v1/runs?wait=60", json=START, headers=again))
            await until(lambda: len(server.waits) == 2)
            assert len((await client.get("/v1/runs", headers=again)).json()["items"]) == before
            repeated.cancel()
        goes_on.cancel()
        await asyncio.gather(goes_on, return_exceptions=True)


async def test_a_key_that_is_gone_ends_its_waits_in_an_application_of_the_users(served: Served) -> None:
    """It is mounted there: nothing tells it that it begins or ends. Within a second, as the page says."""
    key = await served.key("admin")
    async with served.client(key) as client:
        await client.post("/v1/runs", json={**START, "run_id": "w"})
        waits = asyncio.create_task(client.get("/v1/runs/w?wait=60"))
        await until(lambda: len(served.server.waits) == 1)
        await served.server.keys.revoke(key.split("_")[1])
        began = time.monotonic()
        assert (await waits).status_code == 401
        assert time.monotonic() - began < 15, "a second, and what a busy machine adds to it"
        assert len(served.server.waits) == 0


async def until(holds: Any) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


# -- rotation ---------------------------------------------------------------------------------------------------------


async def test_a_repeated_request_is_known_after_its_key_was_rotated_twice(served: Served) -> None:
    key, headers = await served.key("start"), {"Idempotency-Key": "k"}
    async with served.client(key) as client:
        first = await client.post("/v1/runs", json=START, headers=headers)
    second_key, second = await served.server.keys.rotate(key.split("_")[1], 60)
    third_key, third = await served.server.keys.rotate(second.id, 60)
    assert third.lineage == second.lineage == key.split("_")[1]
    for newer in (second_key, third_key):
        async with served.client(newer) as client:
            again = await client.post("/v1/runs", json=START, headers=headers)
        assert (again.content, again.headers.get("idempotent-replay")) == (first.content, "true")
    async with served.client(await served.key("start")) as client:
        other = await client.post("/v1/runs", json=START, headers=headers)
    assert other.json()["run_id"] != first.json()["run_id"]


# -- the log ----------------------------------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("Refused")]


async def test_the_log_tells_who_was_refused_without_their_key(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    key = await served.key("read")
    wrong = f"loom_{'0' * 11}7_{'A' * 43}"
    with caplog.at_level(logging.WARNING):
        for tried, address in ((key, "127.0.0.1"), (wrong, "10.0.0.9"), (None, "2001:db8::1"), ("x\ny", "10.0.0.8")):
            headers = {} if tried is None else {"X_API_Key": tried.replace("\n", " ")}
            async with served.client(address=address, **headers) as client:
                await client.delete("/v1/runs/secret-run")
        async with served.client(base="http://evil.example") as client:
            assert (await client.get("/v1/runs")).status_code == 401
    found = lines(caplog)
    assert found == [
        f"Refused with 403 (forbidden): DELETE /v1/runs/{{run_id}} from 127.0.0.1, key {key.split('_')[1]}.",
        "Refused with 401 (unauthenticated): DELETE /v1/runs/{run_id} from 10.0.0.9, key 000000000007.",
        "Refused with 401 (unauthenticated): DELETE /v1/runs/{run_id} from 2001:db8::/64, without a key.",
        "Refused with 401 (unauthenticated): DELETE /v1/runs/{run_id} from 10.0.0.8, with what is no key.",
        "Refused with 401 (unauthenticated): GET /v1/runs from 127.0.0.1, without a key.",
    ]
    assert not any(key in line or "secret-run" in line or "AAAA" in line for line in found)


async def test_refusals_do_not_fill_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    served.server.refusals.__init__(lambda: now)  # type: ignore[misc]
    await served.key("read")
    with caplog.at_level(logging.WARNING):
        async with served.client("nonsense") as client:
            for _ in range(40):
                await client.get("/v1/runs")
            assert len(lines(caplog)) == 10
            now = 6.0
            await client.get("/v1/runs")
        assert lines(caplog)[10].endswith("Not told before: 30 more.")
        before = len(lines(caplog))
        for number in range(300):
            scope = {
                "type": "http",
                "method": "GET",
                "headers": [],
                "client": (f"10.0.{number // 200}.{number % 200}", 1),
            }
            served.server.refusals.log(scope, ApiProblem("unauthenticated", ""))
        assert before + 80 < len(lines(caplog)) <= before + 100, "and so for all addresses together"


# -- the record -------------------------------------------------------------------------------------------------------


async def test_refused_acts_are_recorded_and_bounded(served: Served) -> None:
    reader, admin = await served.key("read"), await served.key("admin")
    limited = await served.key("admin", workflows=("flow",))
    served.server.refusals = Refusals(lambda: 0.0)
    async with served.client(reader) as client, served.client(limited) as other, served.client(admin) as operator:
        await client.delete("/v1/runs/r")
        await client.post("/v1/runs/r/cancel")
        await client.put("/v1/definitions/flow", json={})
        await client.post("/v1/schedules", content=b"\xff not json")
        await client.post("/handlers/r/cancel?purge=true")
        await client.get("/v1/audit")  # to look is no act
        await client.post("/v1/runs", json=START)  # nor is to start
        await other.put("/v1/definitions/theirs", json={"definition": {"actions": {}}})
        found = (await operator.get("/v1/audit")).json()["items"]
        ids = {key.split("_")[1] for key in (reader, limited)}
        assert {(act["outcome"], act["actor"] in ids) for act in found} == {(403, True)}
        assert [(act["action"], act["target"]) for act in reversed(found)] == [
            ("run.delete", "r"),
            ("run.cancel", "r"),
            ("definition.put", "flow"),
            ("schedule.put", ""),
            ("run.delete", "r"),
            ("definition.put", "theirs"),
        ]
        for _ in range(20):
            await client.delete("/v1/runs/r")
        kept = (await operator.get("/v1/audit")).json()["items"]
    assert sum(act["actor"] == reader.split("_")[1] for act in kept) == 10
