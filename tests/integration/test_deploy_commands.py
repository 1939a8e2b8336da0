"""The commands of the files in deploy/ are really started: of the image, of compose, of systemd, of Kubernetes.

There is no container here. What stands for it is a folder in place of /flows, free ports, and this Python.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from postgres_server import fresh_database_url
from served_process import free_port

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PATIENCE_S = 60.0


def image_command() -> list[str]:
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text("utf-8"))
    [entry] = re.findall(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)
    return list(json.loads(entry))


def compose_command() -> list[str]:
    server = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["server"]
    return [*image_command(), *server["command"]]


def unit_command() -> list[str]:
    [command] = re.findall(r"^ExecStart=(.*)$", (DEPLOY / "loom.service").read_text("utf-8"), re.MULTILINE)
    return shlex.split(command)


def container(name: str) -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text("utf-8"))
    [deployment] = [each for each in documents if each["kind"] == "Deployment"]
    [found] = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)


def pod_command(name: str) -> list[str]:
    found = container(name)
    return [word.replace("$(POD_NAME)", f"{name}-1") for word in (*found["command"], *found["args"])]


def mounted(flows: Path, folder: Path) -> Path:
    """Lay flows out as Kubernetes mounts a ConfigMap: names are links into a folder that is exchanged as a whole."""
    (folder / "..2026").mkdir(parents=True)
    (folder / "..data").symlink_to("..2026")
    for flow in flows.glob("*.json"):
        shutil.copy(flow, folder / "..2026" / flow.name)
        (folder / flow.name).symlink_to(Path("..data") / flow.name)
    return folder


def is_good(answer: httpx2.Response) -> bool:
    return answer.status_code == 200


def has_ended(answer: httpx2.Response) -> bool:
    return is_good(answer) and answer.json()["status"] != "running"


class Started:
    """A process of one of the commands."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, health_port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"
        self.health = f"http://127.0.0.1:{health_port}"

    async def until(
        self, url: str, good: Callable[[httpx2.Response], bool], headers: dict[str, str] | None = None
    ) -> httpx2.Response:
        """Ask until an answer is good."""
        async with httpx2.AsyncClient(headers=headers) as client, asyncio.timeout(PATIENCE_S):
            while True:
                assert self.process.returncode is None, "the process has ended"
                try:
                    answer = await client.get(url)
                except httpx2.TransportError:
                    answer = None
                if answer is not None and good(answer):
                    return answer
                await asyncio.sleep(0.02)

    async def stop(self) -> int:
        self.process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            return await self.process.wait()


@asynccontextmanager
async def started(command: list[str], store: str, flows: Path, log: Path) -> AsyncIterator[Started]:
    """Start a command with free ports and other folders; nothing else of it is changed."""
    port, health_port = free_port(), free_port()
    words = [
        re.sub(r"^(--health-port)=\d+$", rf"\1={health_port}", re.sub(r"^(--port)=\d+$", rf"\1={port}", word))
        for word in command[1:]
    ]
    words = [str(flows) if re.fullmatch(r"/flows|/etc/loom/flows", word) else word for word in words]
    if "--port" in words:
        words[words.index("--port") + 1] = str(port)
    elif not any(word.startswith("--port=") for word in words) and words[0] == "serve":
        words += ["--port", str(port)]
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "loom", *words),
            env={**os.environ, "LOOM_STORE": store},
            cwd=log.parent,
            stdout=file,
            stderr=file,
        )
    try:
        yield Started(process, port, health_port)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def command_line(store: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "loom", *words],
        env={**os.environ, "LOOM_STORE": store},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return done.stdout


def make_key(store: str) -> str:
    return str(json.loads(command_line(store, "keys", "create", "ops", "--scope", "admin", "--json"))["key"])


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'loom.db'}"


@pytest.mark.parametrize(
    "command", [image_command(), compose_command(), unit_command()], ids=["image", "compose", "unit"]
)
async def test_the_command_serves_and_stops(command: list[str], store: str, tmp_path: Path) -> None:
    command_line(store, "db", "upgrade")
    key = make_key(store)
    flows = DEPLOY / "kubernetes" / "flows"
    async with started(command, store, flows, tmp_path / "log") as server:
        await server.until(f"{server.url}/v1/health/ready", is_good)
        async with httpx2.AsyncClient(base_url=server.url, follow_redirects=True) as client:
            page = await client.get("/", headers={"accept": "text/html"})
            assert "<script" in page.text, "the page is there"
            assert (await client.get("/v1/runs")).status_code == 401
            assert (await client.get("/v1/runs", headers={"authorization": f"Bearer {key}"})).status_code == 200
        assert await server.stop() == 0


async def test_servers_and_workers_share_the_work_on_kubernetes(tmp_path: Path) -> None:
    store = fresh_database_url()
    flows = mounted(DEPLOY / "kubernetes" / "flows", tmp_path / "flows")
    serving, working = (container(name) for name in ("server", "worker"))
    async with (
        started(pod_command("server"), store, flows, tmp_path / "server.log") as server,
        started(pod_command("worker"), store, flows, tmp_path / "worker.log") as worker,
    ):
        for process, found in ((server, serving), (worker, working)):
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                path = found[probe]["httpGet"]["path"]
                await process.until(f"{process.health}{path}", is_good)
        headers = {"authorization": f"Bearer {make_key(store)}", "host": "loom"}
        async with httpx2.AsyncClient(base_url=server.url, headers=headers) as client:
            start = {"workflow": "weave", "input": {"rows": 5}, "run_id": "w"}
            assert (await client.post("/v1/runs", json=start)).status_code == 201
            ended = await server.until(f"{server.url}/v1/runs/w", has_ended, headers)
            assert ended.json()["status"] == "completed", ended.text
            workers = (await client.get("/v1/workers")).text
            assert "worker-1" in workers
            assert (await client.get("/v1/runs", headers={"host": "elsewhere"})).status_code in (400, 403, 421)
        assert [await worker.stop(), await server.stop()] == [0, 0]
