"""Supply chain: dependencies are few and pinned by hash (tests/tidy), and nothing here reports home."""

from __future__ import annotations

import subprocess
import sys

SERVE = """
import sys

def watch(event, args):
    if event == "socket.connect" and isinstance(args[1], tuple) and args[1][0] not in ("127.0.0.1", "::1"):
        raise SystemExit(f"a connection to {args[1]}")
    if event == "socket.getaddrinfo" and args[0] not in (None, "", "127.0.0.1", "::1", "localhost"):
        raise SystemExit(f"a look-up of {args[0]}")

sys.addaudithook(watch)

import asyncio
import httpx2
import loom, loom.cli.app, loom.client, loom.compat, loom.testing
from loom.server.app import create_app

async def main():
    async with loom.connect() as runtime:
        runtime.register(loom.load({"definition": {"actions": {"A": {"type": "Compose", "inputs": 1}}}}), name="flow")
        transport = httpx2.ASGITransport(app=create_app(runtime), client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answer = await client.post("/v1/runs?wait=5", json={"workflow": "flow"})
            assert answer.json()["status"] == "completed", answer.text
            for path in ("/health", "/openapi.json", "/metrics", "/workflows"):
                assert (await client.get(path)).status_code == 200, path

asyncio.run(main())
print("served")
"""
"""Also a thread that connects would end with a message: the hook sees every socket of the process."""


def test_importing_and_serving_connects_to_nobody() -> None:
    done = subprocess.run([sys.executable, "-c", SERVE], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "served"), done.stderr[-2000:]
    assert "SystemExit" not in done.stderr


def test_the_guard_of_this_test_catches_whoever_reports_home() -> None:
    home = SERVE.partition("import asyncio")[0] + "import socket\nsocket.create_connection(('192.0.2.1', 443), 1)"
    done = subprocess.run([sys.executable, "-c", home], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "192.0.2.1" in done.stderr
