"""A signed address and the place of a late answer outlive the server that gave them out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
from click.testing import CliRunner
from served_process import ServedProcess

from loom.cli import main

ORDER: dict[str, Any] = {
    "definition": {
        "triggers": {"call": {"type": "Request", "inputs": {"method": "PUT", "relativePath": "o/{id}"}}},
        "actions": {
            "W": {"type": "waitForEvent", "inputs": {"event": "Go"}, "runAfter": {}},
            "R": {
                "type": "Response",
                "operationOptions": "Asynchronous",
                "inputs": {
                    "statusCode": 201,
                    "body": "@concat(triggerOutputs()['relativePathParameters']['id'], body('W')?['by'])",
                },
                "runAfter": {"W": ["Succeeded"]},
            },
        },
    }
}


async def loom(*arguments: str) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, main, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


async def test_an_asynchronous_answer_is_got_after_the_server_was_killed(tmp_path: Path) -> None:
    (tmp_path / "order.json").write_text(json.dumps(ORDER))
    store = f"sqlite:///{tmp_path}/runs.db"
    key = await loom("keys", "create", "ops", "--scope", "start,event,read,admin", "--store", store, "-q")
    server = ServedProcess("order.json", "--store", store, cwd=tmp_path, log=tmp_path / "log")
    await server.start()
    asks = ("--url", server.url, "--api-key", key)
    address = (await loom("flows", "url", "order", *asks)).replace("{id}", "17")
    assert address.startswith(f"{server.url}/v1/definitions/order/invoke/o/17?sp=call&sv=1&sig=")
    async with httpx2.AsyncClient(base_url=server.url, timeout=60) as stranger:
        assert (await stranger.put("/v1/definitions/order/invoke/o/17")).status_code == 401
        accepted = await stranger.put(address)
        assert accepted.status_code == 202
        place, run_id = accepted.headers["location"], accepted.headers["loom-run-id"]
        assert (await stranger.get(place)).status_code == 202
        await server.kill()
        await server.start()
        pending = await stranger.get(place)
        assert (pending.status_code, pending.headers["location"]) == (202, place)
        assert (await stranger.put(address)).status_code == 202  # it opens the trigger as before
        sent = await stranger.post(
            f"/v1/runs/{run_id}/events",
            json={"type": "Go", "value": {"by": " for Ada"}},
            headers={"Authorization": f"Bearer {key}"},
        )
        assert sent.status_code == 200
        found = await stranger.get(f"{place}&wait=30")
        assert (found.status_code, found.text) == (201, "17 for Ada")
        # An address that is made beside the server is the same, and a rotation there ends it here at once.
        beside = ("--store", store, "--callback-url", server.url)
        assert (await loom("flows", "url", "order", *beside)).replace("{id}", "17") == address
        rotated = (await loom("flows", "url", "order", *beside, "--rotate", "--expires", "1h")).replace("{id}", "17")
        assert (await stranger.put(address)).status_code == 401
        assert (await stranger.get(place)).status_code == 401
        assert (await stranger.put(rotated)).status_code == 202
        assert json.loads(await loom("flows", "disable", "order", "--store", store, "--json"))["enabled"] is False
        assert (await stranger.put(rotated)).status_code == 404
        await loom("flows", "enable", "order", *asks)
        assert (await stranger.put(rotated)).status_code == 202
    assert await server.stop() == 0
    assert address.rpartition("sig=")[2] not in (tmp_path / "log").read_text()
