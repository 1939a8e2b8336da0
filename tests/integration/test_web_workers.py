"""The web applications of examples/web under two processes of real servers, of which the one that works is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

WEB = Path(__file__).resolve().parents[2] / "examples" / "web"
PATIENCE_S = 60.0
ORDERS = 12


def command(server: str, port: int) -> list[str]:
    """The command of the page, with a port of its own."""
    if server == "gunicorn":
        words = ["gunicorn", "--chdir", str(WEB), "--workers", "2", "--threads", "8", "django_app:application"]
        return [sys.executable, "-m", *words, "--bind", f"127.0.0.1:{port}"]
    app = {"fastapi": "fastapi_app:app", "django": "django_app:asgi"}[server]
    words = ["uvicorn", app, "--app-dir", str(WEB), "--workers", "2"]
    return [sys.executable, "-m", *words, "--port", str(port)]


class Site:
    """A server with two processes on one file."""

    def __init__(self, server: str, place: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.log = place / "server.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command(server, port),
                cwd=place,
                env={**os.environ, "LOOM_STORE": f"sqlite:///{place / 'orders.db'}"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ask(self, method: str, path: str, **given: Any) -> httpx2.Response:
        """Ask over a connection of its own, so that either process may answer."""
        return httpx2.request(method, self.url + path, timeout=PATIENCE_S, **given)

    def roles(self) -> dict[int, str]:
        """The roles of the two processes, once both have answered and one of them works."""
        found: dict[int, str] = {}
        pause = threading.Event()
        for _ in range(3000):
            try:
                answer = self.ask("GET", "/role").json()
            except httpx2.TransportError:
                found.clear()  # it begins, or a process was killed
                pause.wait(0.05)
                continue
            found[answer["pid"]] = answer["role"]
            if sorted(found.values()) == ["standby", "worker"]:
                return found
            if len(found) > 1 and "worker" not in found.values():
                found.clear()
            pause.wait(0.01)
        raise AssertionError(f"{found}: {self.log.read_text()}")

    def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(PATIENCE_S)


@pytest.fixture(params=["fastapi", "django", "gunicorn"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    found = Site(request.param, tmp_path)
    try:
        yield found
    finally:
        found.close()


def started(site: Site, number: int) -> None:
    """Start an order until that is acknowledged: a process that dies may take a request with it."""
    while True:
        try:
            answer = site.ask("POST", f"/orders?order_id=order-{number}", json={"item": f"item {number}"})
        except httpx2.TransportError:
            continue
        assert (answer.status_code, answer.json()) == (202, {"run_id": f"order-{number}"})
        return


def test_two_processes_share_the_runs_and_one_takes_over(site: Site) -> None:
    roles = site.roles()
    told = site.log.read_text()
    for pid, role in roles.items():
        assert f"Process {pid} is a {role} for the runs." in told  # at start, before the first request
    for number in range(ORDERS):
        started(site, number)
    assert site.ask("GET", "/orders/nobody").status_code == 404
    (worker,) = [pid for pid, role in roles.items() if role == "worker"]
    (standby,) = [pid for pid, role in roles.items() if role == "standby"]
    for number in range(ORDERS // 2):
        assert site.ask("POST", f"/orders/order-{number}/approval", json={"approved": True}).status_code == 202

    os.kill(worker, signal.SIGKILL)
    for number in range(ORDERS // 2, ORDERS):
        while True:
            try:
                assert site.ask("POST", f"/orders/order-{number}/approval", json={"approved": True}).is_success
                break
            except httpx2.TransportError:
                continue  # the killed process had the connection
    roles = site.roles()
    assert roles[standby] == "worker"  # its server has begun another one, which stands by
    assert worker not in roles
    for number in range(ORDERS):
        events = [json.loads(line) for line in site.ask("GET", f"/orders/order-{number}/events").text.splitlines()]
        assert [event["item"] for event in events if "item" in event] == [f"item {number}"]
        shown = site.ask("GET", f"/orders/order-{number}").json()
        assert shown == {"status": "completed", "waits": False, "result": f"receipt for item {number}, shipped"}
