"""Resources: limits for what a request, an event, a run and a caller may ask for; a run that is too large stalls."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from security_rig import is_parked, until
from server_serving import Served, serving

import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.core.ticks import TickResume
from loom.effects.off_loop import is_heavier
from loom.runtime.durable.settings import Settings
from loom.server.app import create_app
from loom.server.caller_limits import Buckets, Rates, address_of
from loom.server.settings import ServerSettings

START = {"workflow": "asks", "input": {"topic": "tea"}}


class More(Event):
    text: str = ""


class Hoards(Workflow):
    """Keeps whatever it is sent, and ends when that is nothing."""

    @step
    async def hoard(self, ctx: Context, ev: StartEvent) -> StopEvent:
        kept = 0
        while text := (await ctx.wait_for_event(More)).text:
            kept += 1
            await ctx.store.set(f"part{kept}", text)
        return StopEvent(result=kept)


# -- events -----------------------------------------------------------------------------------------------------------


async def test_a_large_event_is_refused_on_both_faces(served: Served, client: httpx2.AsyncClient) -> None:
    await client.post("/v1/runs", json={**START, "run_id": "r"})
    large = {"type": "Approval", "value": {"by": "x" * 256 * 1024}}
    answer = await client.post("/v1/runs/r/events", json=large)
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
    assert (await client.post("/events/r", json={"event": large})).status_code == 413
    small = {"type": "Approval", "value": {"by": "x" * 200 * 1024}}
    await served.until_waiting("r")
    assert (await client.post("/v1/runs/r/events", json=small)).status_code == 200
    assert (await client.get("/v1/runs/r?wait=10")).json()["status"] == "completed"


async def test_a_request_of_too_many_values_is_refused_before_it_is_decoded(
    served: Served, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = b'{"workflow": "asks", "input": {"topic": [' + b"[]," * 200_000 + b"[]]}}"
    monkeypatch.setattr("loom.server.call.json.loads", None)
    for path in ("/v1/runs", "/workflows/asks/run"):
        answer = await client.post(path, content=lists, headers={"Content-Type": "application/json"})
        assert (answer.status_code, "100000 values" in answer.text) == (413, True), answer.text


async def test_one_answer_cannot_outgrow_the_run_that_asked_for_it() -> None:
    assert Settings().response_bytes == 16 * 1024 * 1024
    assert Settings(max_state=1_000_000).response_bytes == 250_000
    assert Settings(max_state=None, max_response=5).response_bytes == 5
    with pytest.raises(ValueError, match="max_response_values must be at least 1"):
        Settings(max_response_values=0)


# -- runs that become too large ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"max_state": 1_500_000}, {"max_history": 12}])
async def test_an_oversized_run_stalls_and_goes_on_when_the_limit_is_raised(
    limits: dict[str, int], tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url, **limits) as runtime:
        runtime.register(Hoards(), name="hoards")
        handle = await runtime.start("hoards", run_id="r")
        sent = 0
        while (await runtime.get("r")).parked is None and sent < 40:
            await handle.send_event(More(text=str(sent) * 200_000))
            sent += 1
            await asyncio.sleep(0.01)
        reason = (await until(runtime, "r", is_parked)).parked or ""
        [(name, limit)] = limits.items()
        assert name in reason
        assert str(limit) in reason
        await handle.send_event(More())  # what comes for it is kept

    async with loom.connect(url, max_state=None) as runtime:
        runtime.register(Hoards(), name="hoards")
        async with asyncio.timeout(60):
            assert await (await runtime.handler("r")) == sent
        assert (await runtime.get("r")).parked is None
        resumed = [entry async for entry in runtime.history("r") if isinstance(entry.tick, TickResume)]
        assert len(resumed) == 1, "it was not taken up in vain before"


async def test_an_oversized_run_can_be_cancelled(tmp_path: Path) -> None:
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db", max_history=1) as runtime:
        runtime.register(Hoards(), name="hoards")
        await runtime.start("hoards", run_id="r")
        await until(runtime, "r", is_parked)
        await runtime.cancel("r")
        ended = await until(runtime, "r", lambda info: info.status != "running")
        assert ended.status == "cancelled"


async def test_a_parked_run_tells_its_size_over_http(tmp_path: Path) -> None:
    async with loom.connect(max_history=1) as runtime:
        runtime.register(Hoards(), name="hoards")
        app = create_app(runtime)
        transport = httpx2.ASGITransport(app=app, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            await client.post("/v1/runs", json={"workflow": "hoards", "run_id": "r"})
            await until(runtime, "r", is_parked)
            run = (await client.get("/v1/runs/r")).json()
            assert run["status"] == "running"
            assert "max_history allows 1" in run["parked"]
            assert [each["run_id"] for each in (await client.get("/v1/runs?parked=true")).json()["items"]] == ["r"]


def _bomb(times: int) -> dict[str, Any]:
    """A flow that names one long text many times: it is small in memory, and large wherever it is written."""
    text = {"name": "text", "type": "string", "value": "x" * 20_000}
    fill = {"type": "AppendToArrayVariable", "inputs": {"name": "all", "value": "@variables('text')"}}
    loop = {
        "type": "Until",
        "expression": f"@equals(length(variables('all')), {times})",
        "limit": {"count": times + 1, "timeout": "PT1H"},
        "actions": {"Add": fill},
        "runAfter": {"All": ["Succeeded"]},
    }
    return {
        "definition": {
            "actions": {
                "Text": {"type": "InitializeVariable", "inputs": {"variables": [text]}, "runAfter": {}},
                "All": {
                    "type": "InitializeVariable",
                    "inputs": {"variables": [{"name": "all", "type": "array", "value": []}]},
                    "runAfter": {"Text": ["Succeeded"]},
                },
                "Fill": loop,
            }
        }
    }


async def test_a_flow_that_grows_within_one_tick_stalls_before_it_is_written(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url, max_state=300_000) as runtime:
        runtime.register(loom.load(_bomb(40)), name="bomb")
        runtime.register(loom.load(_bomb(2)), name="small")
        await runtime.start("bomb", run_id="r")
        assert "max_state" in ((await until(runtime, "r", is_parked)).parked or "")
        async with asyncio.timeout(60):
            assert (await (await runtime.start("small"))).status == "Succeeded"
    assert (tmp_path / "runs.db").stat().st_size < 40 * 20_000
    async with loom.connect(url) as runtime:
        runtime.register(loom.load(_bomb(40)), name="bomb")
        async with asyncio.timeout(60):
            assert (await (await runtime.handler("r"))).status == "Succeeded"


def test_weighing_looks_no_further_than_it_must() -> None:
    text = "x" * 1000
    nested: Any = text
    for _ in range(60):
        nested = [nested, nested]  # 2 ** 60 texts
    begun = time.monotonic()
    assert is_heavier([nested], 10_000_000)
    assert time.monotonic() - begun < 30
    assert not is_heavier([{"a": [text, None, 1, 2.5, True]}], 2000)
    assert is_heavier([{"a": [text]}], 900)


# -- rate -------------------------------------------------------------------------------------------------------------


def time_stands_still(served: Served) -> None:
    """No bucket fills up again while a test asks, however slow the machine is."""
    server = served.server
    server.rates = Rates(server.keys, server.sessions, server.settings.rate, clock=lambda: 0.0)


async def test_a_caller_that_asks_too_often_is_told_to_wait() -> None:
    async with serving(rate=1.0) as served, served.client() as client:
        time_stands_still(served)
        answers = [await client.get("/v1/runs") for _ in range(4)]
        assert [each.status_code for each in answers] == [200, 200, 429, 429]
        refused = answers[-1]
        assert (refused.status_code, refused.json()["code"]) == (429, "limited")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await client.get("/handlers")).status_code == 429, "the compatible face is no way around it"
        for path in ("/health", "/v1/health/live", "/v1/health/ready"):
            assert (await client.get(path)).status_code == 200, path
    async with serving(rate=1.0) as served:
        time_stands_still(served)
        loud, quiet = await served.key("read"), await served.key("read")
        async with served.client(loud) as one, served.client(quiet) as other:
            assert 429 in [(await one.get("/v1/runs")).status_code for _ in range(4)]
            assert (await other.get("/v1/runs")).status_code == 200


async def test_keys_cannot_be_guessed_fast_and_guessing_locks_nobody_out() -> None:
    async with serving() as served:
        time_stands_still(served)
        good, later = await served.key("read"), await served.key("read")
        async with served.client(good) as client:
            assert (await client.get("/v1/runs")).status_code == 200

        async def guess(number: int) -> int:
            async with served.client(f"loom_{number:012x}_{'A' * 43}") as client:
                return (await client.get("/v1/runs")).status_code

        codes = await asyncio.gather(*(guess(number) for number in range(60)))
        assert (codes.count(401), codes.count(429)) == (20, 40), "twice as many as in a second, and no more"
        async with served.client(good) as client:
            assert (await client.get("/v1/runs")).status_code == 200, "whoever was known goes on"
        async with served.client(later) as client:
            assert (await client.get("/v1/runs")).status_code == 200, "and so does a right key that was never seen"
        assert await guess(61) == 429


async def test_headers_of_proxies_do_not_make_another_caller() -> None:
    async with serving(rate=1.0) as served, served.client() as client:
        time_stands_still(served)
        codes = [
            (await client.get("/v1/runs", headers={"X-Forwarded-For": f"10.0.0.{number}"})).status_code
            for number in range(4)
        ]
        assert 429 in codes


def test_buckets_fill_up_again_and_their_number_is_bounded() -> None:
    now = 0.0
    buckets = Buckets(10.0, lambda: now, most=100)
    taken = 0
    while not buckets.wait("a"):
        buckets.take("a")
        taken += 1
    assert taken == 20
    now = buckets.wait("a")
    assert 0 < now < 0.11
    assert not buckets.wait("a")
    for number in range(1000):
        buckets.take(str(number))
    assert len(buckets) == 100


def test_a_network_of_ipv6_is_one_caller() -> None:
    one, same, other = ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1")
    assert address_of({"client": (one, 1)}) == address_of({"client": (same, 2)})
    assert address_of({"client": (one, 1)}) != address_of({"client": (other, 1)})
    assert address_of({"client": ("::ffff:1.2.3.4", 1)}) == "1.2.3.4"


# -- patterns and expressions that never end --------------------------------------------------------------------------


async def test_a_pattern_that_would_backtrack_for_hours_answers_at_once(client: httpx2.AsyncClient) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    definition = {
        "triggers": {"manual": {"type": "Request", "inputs": {"schema": schema}}},
        "actions": {
            "Parse": {
                "type": "ParseJson",
                "inputs": {"content": {"a": "a" * 40 + "!"}, "schema": schema},
                "runAfter": {},
            }
        },
    }
    runtime = client._transport.app.state.server.runtime  # type: ignore[attr-defined]
    runtime.register(loom.load({"definition": definition}), name="slow")
    begun = time.monotonic()
    answer = await client.post("/v1/runs?wait=20", json={"workflow": "slow", "input": {"a": "a" * 40 + "!"}})
    assert time.monotonic() - begun < 15
    assert answer.status_code == 400 or answer.json()["status"] == "failed"


@pytest.mark.parametrize(
    "wrong", [{"rate": 0}, {"rate": -1}, {"rate": float("inf")}, {"max_event": 0}, {"max_body": 0}]
)
def test_limits_cannot_be_set_to_nonsense(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ServerSettings(**wrong)


@pytest.mark.parametrize("wrong", [{"max_state": 0}, {"max_history": -1}])
def test_sizes_of_runs_cannot_be_set_to_nonsense(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        loom.connect(**wrong)
