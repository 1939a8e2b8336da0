"""Who may begin a run: not above the memory limit, and each key only so many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest
from server_serving import LOOP, Served

import loom
from loom import StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.admission import MemoryLimit
from loom.server.auth import new_key
from loom.server.settings import ServerSettings

STARTS = [
    ("/v1/runs", {"workflow": "holds"}),
    ("/workflows/holds/run-nowait", {}),
    ("/workflows/holds/run", {}),
    ("/v1/definitions/loop/invoke", {}),
]


class Holds(Workflow):
    """Is at work until it is let go."""

    def __init__(self) -> None:
        super().__init__(timeout=None)
        self.go = asyncio.Event()
        self.fails = False

    @step
    async def hold(self, ev: StartEvent) -> StopEvent:
        if self.fails:
            raise ValueError("as asked")
        await self.go.wait()
        return StopEvent(result="over")


class Rig:
    """A server where a key may have two runs at work."""

    def __init__(self, served: Served, holds: Holds) -> None:
        self.served = served
        self.holds = holds


@pytest.fixture
async def rig(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr("loom.server.caller_limits._LOOK_S", 0.0)
    async with loom.connect("memory://") as runtime:
        holds = Holds()
        runtime.register(holds, name="holds")
        runtime.register(loom.load(LOOP), name="loop")
        await runtime.ready()
        yield Rig(Served(runtime, ServerSettings(max_starts=2)), holds)


async def started(client: httpx2.AsyncClient, run_id: str, workflow: str = "holds") -> int:
    return (await client.post("/v1/runs", json={"workflow": workflow, "run_id": run_id})).status_code


async def test_a_key_has_only_so_many_runs_at_work(rig: Rig) -> None:
    one, other = await rig.served.key("start"), await rig.served.key("start")
    async with rig.served.client(one) as client, rig.served.client(other) as neighbor:
        assert [await started(client, run_id) for run_id in ("a", "b", "c")] == [201, 201, 429]
        assert await started(neighbor, "d") == 201
        refused = await client.post("/v1/runs", json={"workflow": "holds"})
        assert refused.headers["retry-after"] == "1"
        assert "has 2 runs at work, and may have 2" in refused.json()["detail"]
        for path, body in STARTS[1:]:
            assert (await client.post(path, json=body)).status_code == 429, path
        rig.holds.go.set()
        for run_id in ("a", "b"):
            await (await rig.served.runtime.handler(run_id))
        assert await started(client, "c") == 201


async def test_a_retried_run_takes_a_place(rig: Rig) -> None:
    rig.holds.fails = True
    key = await rig.served.key("start", "read")
    async with rig.served.client(key) as client:
        for run_id in ("a", "b", "c"):
            assert await started(client, run_id) == 201
            with pytest.raises(ValueError, match="as asked"):
                await (await rig.served.runtime.handler(run_id))
        rig.holds.fails = False
        codes = [(await client.post(f"/v1/runs/{run_id}/retry", json={})).status_code for run_id in ("a", "b", "c")]
        assert codes == [202, 202, 429]
        assert await started(client, "d") == 429


async def test_a_rotated_key_counts_with_the_old_one(rig: Rig) -> None:
    old, stored = new_key(("start",))
    await rig.served.server.keys.add(stored)
    async with rig.served.client(old) as client:
        assert await started(client, "a") == 201
    new, _ = await rig.served.server.keys.rotate(stored.id, 3600.0)
    async with rig.served.client(new) as client:
        assert [await started(client, run_id) for run_id in ("b", "c")] == [201, 429]


async def test_a_request_that_is_refused_or_fails_takes_no_place(rig: Rig) -> None:
    async with rig.served.client() as client:
        for _ in range(5):
            assert (await client.post("/v1/runs", json={"workflow": "nobody"})).status_code == 404
            assert (await client.post("/v1/runs", json={"workflow": "holds", "input": 7})).status_code == 400
        assert [await started(client, run_id) for run_id in ("a", "b", "c")] == [201, 201, 429]
        # A start that is repeated is no second run, but whoever has no place left is not even asked which it is.
        assert await started(client, "a") == 429


async def test_runs_that_wait_do_not_count(rig: Rig) -> None:
    async with rig.served.client() as client:
        for number in range(6):
            assert await started(client, f"l{number}", "loop") == 201
            await rig.served.until_waiting(f"l{number}")


async def test_many_at_once_get_no_more_places(rig: Rig) -> None:
    async with rig.served.client() as client:
        codes = await asyncio.gather(*(started(client, f"m{number}") for number in range(20)))
    assert sorted(codes) == [201] * 2 + [429] * 18


async def test_above_the_memory_limit_every_start_is_a_503_that_says_why(rig: Rig) -> None:
    runtime = rig.served.runtime
    async with rig.served.client() as client:
        assert await started(client, "a") == 201
        runtime.memory = MemoryLimit(1000, lambda: 5 << 20)
        for path, body in [*STARTS, ("/v1/runs/a/fork", {"tick": 0})]:
            refused = await client.post(path, json=body)
            assert refused.status_code == 503, path
            assert refused.headers["retry-after"] == "1"
            assert "uses 5 MiB of memory" in refused.json()["detail"]
        assert (await client.post("/v1/runs", json={"workflow": "holds"})).json()["code"] == "memory-exceeded"
        ready = await client.get("/v1/health/ready")
        assert (ready.status_code, ready.json()["reasons"]) == (503, ["memory-exceeded"])
        assert (await client.get("/v1/health/live")).status_code == 200
        figures = (await client.get("/metrics")).text
        assert "loom_memory_exceeded 1\n" in figures
        assert "loom_memory_limit_bytes 1000\n" in figures
        assert "loom_starts_refused_total 6\n" in figures
        # What is there can be looked at and told something.
        assert (await client.get("/v1/runs/a")).status_code == 200
        assert (await client.post("/v1/runs/a/cancel", json={})).status_code == 202
        runtime.memory = MemoryLimit(1000, lambda: 10)
        assert await started(client, "b") == 201
        assert (await client.get("/v1/health/ready")).status_code == 200


@pytest.mark.parametrize("wrong", [0, -1, float("inf")])
def test_limits_that_are_none_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="max_starts must be greater than 0"):
        ServerSettings(max_starts=wrong)  # type: ignore[arg-type]
