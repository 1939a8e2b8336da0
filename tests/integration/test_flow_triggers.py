"""The triggers of a served flow, looked at, fired and turned off by commands, at the server and beside it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from served_process import ServedProcess

from loom.cli.app import main

TRIGGER = "polls"


class Service:
    """A service that has something new each time it is asked, and remembers what asked it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readuntil(b"\r\n\r\n")).decode().partition("\r\n")[0]
            self.asked.append(line.rpartition(" ")[0])
            body = json.dumps({"n": len(self.asked)}).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
            await writer.drain()
        finally:
            writer.close()


def flow(kind: str, url: str) -> dict[str, Any]:
    request = {"method": "POST", "uri": f"{url}/hooks", "body": "@listCallbackUrl()"}
    polls = {
        "type": "Http",
        "inputs": {"method": "GET", "uri": f"{url}/new"},
        "recurrence": {"frequency": "Day", "interval": 1},
    }
    hook = {"type": "HttpWebhook", "inputs": {"subscribe": request, "unsubscribe": {**request, "method": "DELETE"}}}
    echo = {"Echo": {"type": "Compose", "inputs": "@triggerBody()", "runAfter": {}}}
    return {"triggers": {kind: polls if kind == TRIGGER else hook}, "actions": echo}


async def loom(*arguments: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, main, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not await holds():  # noqa: ASYNC110 - another process tells nobody
            await asyncio.sleep(0.1)


async def test_commands_show_fire_and_turn_triggers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOM_HTTP_ALLOW", "127.0.0.1")
    service = Service()
    listening = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    (tmp_path / "orders.json").write_text(json.dumps(flow(TRIGGER, url)))
    (tmp_path / "alerts.json").write_text(json.dumps(flow("called", url)))
    store = f"sqlite:///{tmp_path}/runs.db"
    server = ServedProcess("orders.json", "alerts.json", "--store", store, cwd=tmp_path, log=tmp_path / "log")
    async with listening:
        await server.start()

        async def runs(*beside: str) -> int:
            found = json.loads(await loom("flows", "history", "orders", "--json", *beside))
            return sum(each["runs"] for each in found["firings"])

        async def subscribed() -> bool:
            found = json.loads(await loom("flows", "history", "alerts", "--json", "--store", store))
            return found["subscribed"] is True

        async def polled_once() -> bool:
            return await runs("--url", server.url) == 1

        async def polled_thrice() -> bool:
            return await runs("--store", store) == 3

        async def unsubscribed() -> bool:
            return "DELETE /hooks" in service.asked

        await until(polled_once)
        said = await loom("flows", "fire", "orders", "--url", server.url)
        assert said == f"The trigger {TRIGGER} fires: run trigger:orders:{TRIGGER}."
        await loom("flows", "fire", "orders", TRIGGER, "--store", store)
        await until(polled_thrice)
        shown = await loom("flows", "history", "orders", "--url", server.url)
        assert shown.startswith(f"{TRIGGER} (http), run trigger:orders:{TRIGGER}\nnext at: ")
        assert "succeeded" in shown
        await until(subscribed)
        # By a process beside the server, which tells the listener there.
        await loom("flows", "disable", "alerts", "--store", store)
        await until(unsubscribed)
        command = ["flows", "fire", "alerts", "called", "--store", store]
        wrong = await asyncio.to_thread(CliRunner().invoke, main, command)
        assert wrong.exit_code != 0
        assert "is disabled" in wrong.output
        assert await server.stop() == 0
