"""Real processes whose event loop is held, or whose memory is: they still answer, and the log names the culprit."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from served_process import ServedProcess

import loom

PATIENCE_S = 60.0
PROGRAM = """
import asyncio, time
from pathlib import Path
from loom import StartEvent, StopEvent, Workflow, step

class Blocks(Workflow):
    @step
    async def charge(self, ev: StartEvent) -> StopEvent:
        while not Path("go").exists():
            time.sleep(0.01)  # holds the event loop
        return StopEvent(result="over")

class Takes(Workflow):
    @step
    async def take(self, ev: StartEvent) -> StopEvent:
        held = bytearray(400 << 20)
        held[::4096] = b"x" * (len(held) // 4096)
        while not Path("go").exists():
            await asyncio.sleep(0.01)
        return StopEvent(result="over")

class Quick(Workflow):
    @step
    async def go(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="over")
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await condition():  # noqa: ASYNC110 - another process is looked at
            await asyncio.sleep(0.05)


@asynccontextmanager
async def served(tmp_path: Path, *arguments: str) -> AsyncIterator[tuple[ServedProcess, Path]]:
    (tmp_path / "held.py").write_text(PROGRAM)
    log = tmp_path / "log"
    targets = [f"held.py:{name}" for name in ("Blocks", "Takes", "Quick")]
    process = ServedProcess(*targets, *arguments, cwd=tmp_path, log=log)
    await process.start()
    try:
        yield process, log
    finally:
        (tmp_path / "go").touch()
        await process.kill()


async def figures_of(client: httpx2.AsyncClient, url: str) -> dict[str, float]:
    lines = [line.split() for line in (await client.get(url)).text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines if "{" not in name}


async def live(client: httpx2.AsyncClient, health: str) -> dict[str, Any]:
    answer = await client.get(f"{health}/live")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def test_a_server_that_is_held_answers_on_its_health_port(tmp_path: Path) -> None:
    health = f"http://127.0.0.1:{free_port()}"
    async with (
        served(tmp_path, "--health-port", health.rpartition(":")[2], "--log-format", "json") as (process, log),
        httpx2.AsyncClient(timeout=PATIENCE_S) as client,
    ):
        assert (await live(client, health))["status"] == "live"
        assert (await client.get(f"{health}/ready")).json() == {"status": "ready", "reasons": [], "role": "worker"}
        await client.post(f"{process.url}/v1/runs", json={"workflow": "Blocks", "run_id": "order-17"})

        async def is_stalled() -> bool:
            return (await live(client, health))["status"] == "stalled"

        await until(is_stalled)
        # The main port is silent. Whoever asks the other one is told at once, as often as they like.
        answering = asyncio.ensure_future(client.get(f"{process.url}/v1/health/live"))
        for _ in range(20):
            ready = await client.get(f"{health}/ready")
            assert (ready.status_code, ready.json()["reasons"]) == (503, ["stalled"])
        assert (await client.get(f"{health}/live?stalled=0")).status_code == 503
        assert (await client.get(f"{health}/live?stalled=9999")).status_code == 200
        assert (await client.get(f"{health}/live?x")).status_code == 400
        assert (await client.get(f"{health}/v1/runs")).status_code == 404
        assert (await figures_of(client, f"{health}/metrics"))["loom_loop_stalled"] == 1
        assert not answering.done()
        (tmp_path / "go").touch()
        assert (await answering).status_code == 200
        figures = await figures_of(client, f"{process.url}/metrics")
        assert figures["loom_loop_stalls_total"] >= 1
        assert figures["loom_loop_stalled_seconds_total"] >= 1.0

        async def is_over() -> bool:
            return "turns again" in log.read_text()

        await until(is_over)
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    told = next(line for line in lines if "has not turned" in line["message"])
    assert (told["run_id"], told["workflow"], told["step"]) == ("order-17", "Blocks", "charge")
    assert told["exception"].splitlines()[0].endswith("in charge")
    assert "holds the event loop" in told["exception"].splitlines()[1]


async def test_a_worker_that_is_held_answers_on_its_health_port(tmp_path: Path) -> None:
    (tmp_path / "held.py").write_text(PROGRAM)
    health = f"http://127.0.0.1:{free_port()}"
    log = tmp_path / "log"
    with log.open("wb") as out:
        arguments = ("worker", "held.py:Blocks", "--health-port", health.rpartition(":")[2], "--watchdog", "0.3")
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "loom", *arguments), cwd=tmp_path, stdout=out, stderr=out, env=dict(os.environ)
        )
    try:
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:

            async def is_there() -> bool:
                try:
                    return (await live(client, health))["watched"] is True
                except httpx2.TransportError:
                    return False

            await until(is_there)
            async with loom.connect(f"sqlite:///{tmp_path}/loom.db") as runtime:
                await runtime.start("Blocks", run_id="order-17")

            async def is_stalled() -> bool:
                return (await client.get(f"{health}/live?stalled=0")).status_code == 503

            await until(is_stalled)
            (tmp_path / "go").touch()

            async def is_ready() -> bool:
                return (await client.get(f"{health}/ready")).status_code == 200

            await until(is_ready)
            assert "step charge of run order-17 holds it" in log.read_text()
    finally:
        if worker.returncode is None:
            worker.send_signal(signal.SIGKILL)
        await worker.wait()


async def test_a_server_above_its_memory_limit_takes_no_more_until_it_is_below(tmp_path: Path) -> None:
    health = f"http://127.0.0.1:{free_port()}"
    async with (
        served(tmp_path, "--max-memory", "300M", "--health-port", health.rpartition(":")[2]) as (process, log),
        httpx2.AsyncClient(timeout=PATIENCE_S, base_url=process.url) as client,
    ):
        assert (await client.post("/v1/runs", json={"workflow": "Takes", "run_id": "big"})).status_code == 201

        async def is_short() -> bool:
            return (await client.get("/v1/health/ready")).status_code == 503

        await until(is_short)
        refused = await client.post("/v1/runs", json={"workflow": "Quick", "run_id": "a"})
        assert (refused.status_code, refused.json()["code"]) == (503, "memory-exceeded")
        assert "and may use 300" in refused.json()["detail"]
        assert refused.headers["retry-after"] == "1"
        ready = await client.get(f"{health}/ready")
        assert (ready.status_code, "memory-exceeded" in ready.json()["reasons"]) == (503, True)
        assert (await figures_of(client, "/metrics"))["loom_memory_exceeded"] == 1

        async def has_told() -> bool:
            return "Runs that wait leave memory." in log.read_text()

        await until(has_told)
        (tmp_path / "go").touch()

        async def has_started() -> bool:
            answer = await client.post("/v1/runs?wait=20", json={"workflow": "Quick", "run_id": "a"})
            return answer.status_code in (200, 201) and answer.json()["status"] == "completed"

        await until(has_started)
