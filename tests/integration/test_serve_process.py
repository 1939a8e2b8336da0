"""`loom serve` as a process: what it prints, idle runs, keys that are made beside it, and both ways to stop it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from click.testing import CliRunner

from loom.cli import main

SHOP = """
import asyncio
import time
from pathlib import Path

from loom import Context, Event, StartEvent, StopEvent, Workflow, step


class Approval(Event):
    by: str


class Begun(Event):
    pass


class Order(Workflow):
    @step
    async def place(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(Approval, timeout=None)).by)


class Slow(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if not Path("go").exists():
            ctx.write_event_to_stream(Begun())
            await asyncio.Event().wait()
        return StopEvent(result="done")


class Blocking(Workflow):
    @step
    def work(self, ev: StartEvent) -> StopEvent:
        Path("blocked").touch()
        while not Path("go").exists():
            time.sleep(0.01)
        return StopEvent(result="done")


order = Order(timeout=None)
blocking = Blocking(timeout=None)
slow = Slow(timeout=None)
"""


FLOW = {"definition": {"actions": {"One": {"type": "Compose", "inputs": 1, "runAfter": {}}}, "outputs": {}}}


class Served(NamedTuple):
    process: subprocess.Popen[str]
    first: str
    client: httpx2.Client

    def said(self) -> str:
        """The next line that is not of the log of runs and requests."""
        assert self.process.stderr is not None
        while " loom." in (line := self.process.stderr.readline()):
            pass
        return line

    def logged(self, words: str) -> str:
        """The next line of the log with these words."""
        assert self.process.stderr is not None
        while words not in (line := self.process.stderr.readline()):
            assert line, "the log is at its end"
        return line

    def run(self, run_id: str, wait: int = 0) -> Any:
        answer = self.client.get(f"/v1/runs/{run_id}", params={"wait": wait} if wait else {})
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextmanager
def served(place: Path, *options: str, key: str | None = None) -> Iterator[Served]:
    """A server of the shop on a free port."""
    targets = ("Order=shop.py:order", "Slow=shop.py:slow", "Blocking=shop.py:blocking")
    command = [sys.executable, "-W", "error", "-m", "loom", "serve", *targets, "--port", "0", *options]
    with subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            first = process.stderr.readline()
            url = first.partition(" from sqlite:///loom.db at ")[2].partition(". ")[0]
            assert url.startswith("http://127.0.0.1:"), first
            headers = {"X-API-Key": key} if key is not None else {}
            with httpx2.Client(base_url=url, timeout=60, headers=headers) as client:
                yield Served(process, first, client)
        finally:
            process.kill()


def loom(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def until(is_so: Any) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_server_is_stopped_and_the_next_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    with served(tmp_path, "--idle-timeout", "0.2s") as first:
        assert first.first.startswith("Serving Blocking, Order, Slow from ")
        assert "No key yet: only this machine may ask." in first.first
        body = {"workflow": "Order", "input": {}, "run_id": "order-1"}
        assert first.client.post("/v1/runs", json=body).status_code == 201
        until(lambda: first.run("order-1")["idle_since"] is not None and not first.run("order-1")["in_memory"])
        assert [found["handler_id"] for found in first.client.get("/handlers?idle=true").json()["handlers"]] == [
            "order-1"
        ]

        second = CliRunner().invoke(main, ["serve", "--port", "0"])
        assert second.exit_code == 3
        assert f"process {first.process.pid} " in second.output

        key = loom("keys", "create", "ops", "--scope", "admin", "--quiet")
        until(lambda: first.client.get("/v1/runs/order-1").status_code == 401)
        first.client.headers["X-API-Key"] = key
        assert first.client.put("/v1/definitions/stored", json=FLOW).status_code == 201
        for name, run_id in (("Blocking", "blocking-1"), ("Slow", "slow-1")):
            body = {"workflow": name, "input": {}, "run_id": run_id}
            assert first.client.post("/v1/runs", json=body).status_code == 201
        until((tmp_path / "blocked").exists)
        with first.client.stream("GET", "/v1/runs/slow-1/stream") as stream:
            lines = stream.iter_lines()
            assert any('"Begun"' in line for line in lines)
            first.process.send_signal(signal.SIGTERM)
            with pytest.raises(httpx2.RemoteProtocolError):
                list(lines)
        assert first.process.wait(60) == 0
        assert first.said() == "Stopping. Once more to stop at once.\n"
        assert first.said() == "Stopped. Unfinished runs are in the store.\n"
        assert first.said() == ""

    (tmp_path / "go").touch()
    with served(tmp_path, "--drain", "60s", key=key) as second:
        assert second.first.startswith("Serving Blocking, Order, Slow, stored from ")
        assert "A key is asked for." in second.first
        body = {"workflow": "stored", "input": {}, "run_id": "flow-1"}
        assert second.client.post("/v1/runs?wait=20", json=body).json()["status"] == "completed"
        recovered = {second.logged(" was recovered") for _ in range(2)}
        assert {line.split(" Run ")[1].split()[0] for line in recovered} == {"slow-1", "blocking-1"}
        for run_id in ("slow-1", "blocking-1"):
            assert second.run(run_id, wait=20)["result"]["value"] == {"result": "done"}
        event = {"type": "Approval", "value": {"by": "Ada"}}
        assert second.client.post("/v1/runs/order-1/events", json=event).status_code == 200
        assert second.run("order-1", wait=20)["result"]["value"] == {"result": "Ada"}

        loom("keys", "revoke", key[5:17])
        until(lambda: second.client.get("/v1/runs/order-1").status_code == 401)
        second.client.headers["X-API-Key"] = key = loom("keys", "create", "ops", "--scope", "admin", "--quiet")
        body = {"workflow": "Order", "input": {}, "run_id": "order-2"}
        assert second.client.post("/v1/runs", json=body).status_code == 201
        with socket.create_connection((second.client.base_url.host, second.client.base_url.port or 80)) as asking:
            # This request would keep the server for a minute, if nobody asked twice.
            head = f"GET /v1/runs/order-2?wait=60 HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n\r\n"
            asking.sendall(head.encode())
            assert second.client.get("/health").status_code == 200  # so the request before it is there too
            second.process.send_signal(signal.SIGINT)
            assert second.said() == "Stopping. Once more to stop at once.\n"
            until(lambda: second.process.send_signal(signal.SIGTERM) or second.process.poll() is not None)
            assert second.process.returncode == -signal.SIGTERM
            assert asking.recv(1) == b""
