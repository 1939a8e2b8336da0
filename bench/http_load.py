"""Servers for the HTTP cases, each in a process of its own, and a client that costs little beside them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.spec import LOOM

_PATIENCE_S = 30.0


@contextmanager
def serving(peer: str, url: str, *, idle_timeout: float = 60.0) -> Iterator[int]:
    """The port of a server over a database, which serves `Three` and `Wait`."""
    if peer == LOOM:
        with serving_targets(["bench.served:Three", "bench.served:Wait"], url, idle_timeout=idle_timeout) as port:
            yield port
        return
    port = _free_port()
    with _listening(["bench.served", url, str(port), str(idle_timeout)], port, peer):
        yield port


@contextmanager
def serving_targets(targets: list[str], url: str, *, idle_timeout: float = 60.0) -> Iterator[int]:
    """The port of `loom serve` over a database, which serves these targets."""
    port = _free_port()
    ours = [*targets, "--store", url, "--port", str(port), "--idle-timeout", f"{idle_timeout}s"]
    with _listening(["loom", "serve", *ours], port, LOOM):
        yield port


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def _listening(command: list[str], port: int, peer: str) -> Iterator[None]:
    """Run a server in a process of its own, from when it listens."""
    environment = {**os.environ, "BENCH_PEER": peer}
    process = subprocess.Popen([sys.executable, "-m", *command], env=environment, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    due = time.monotonic() + _PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > due:
                raise RuntimeError(f"The server does not listen: {process.args!r}") from None
            time.sleep(0.05)
        else:
            return


class Connection:
    """One connection to a server that is kept open. It knows as much of HTTP as the servers' answers need."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        """Send a request; the status and the body of its answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        data = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Length: {len(data)}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        status, _, rest = answer.partition(b" ")[2].partition(b" ")
        length = rest.partition(b"content-length:")[2].partition(b"\r\n")[0]
        return int(status), await reader.readexactly(int(length or b"0"))

    async def json(self, method: str, path: str, body: Any = None) -> Any:
        """The same, for an answer that must be good JSON."""
        status, data = await self.ask(method, path, body)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {data[:200]!r}")
        return json.loads(data)

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
