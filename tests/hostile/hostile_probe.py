"""Asks a server again and again whether it lives, from a process of its own, and tells the server's delays from others.

    python tests/hostile/hostile_probe.py PID FILE NAME=HOST:PORT/PATH ...

Appends one line of JSON for each answer to FILE: when it was asked, what it took, and how much of that is noise of the
machine: the server's threads or the probe itself were ready and had no core, or a control process beside it was late
too. All targets whose name is not `control` belong to the process PID. Ends when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

INTERVAL_S = 0.06
PATIENCE_S = 60.0


class Probed(NamedTuple):
    """One answer, or none."""

    name: str
    at: float
    """By the clock that all processes of the machine share (`time.monotonic`)."""
    wall: float
    noise: float
    """Seconds that the server's threads and the probe were ready without a core; or the delay of the control."""
    status: str
    rss: int


def waited(pid: int) -> dict[int, float]:
    """Seconds for which each thread of a process was ready and had no core, ever since it began."""
    found = {}
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError, IndexError):
                found[int(task)] = int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[1]) / 1e9
    return found


def noise_between(before: dict[int, float], after: dict[int, float]) -> float:
    """Seconds in which the loop thread, or a thread that holds the interpreter's lock, had no core.

    Which thread held the lock is not known, so all are added. On a machine with free cores that is next to nothing.
    """
    return sum(seconds - before.get(task, 0.0) for task, seconds in after.items())


def own_wait() -> float:
    """Seconds for which the calling thread was ready and had no core."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    try:
        return int(path.read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def memory_of(pid: int, field: str = "VmRSS") -> int:
    """Bytes that a process has in memory now (VmRSS) or had at most (VmHWM); 0 if it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) << 10
    return 0


def ask(host: str, port: int, path: str) -> str:
    """The status of one GET, or the name of what went wrong."""
    try:
        with socket.create_connection((host, port), timeout=PATIENCE_S) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
            head = connection.recv(4096)
            return head.split()[1].decode()
    except (OSError, IndexError) as error:
        return type(error).__name__


class Prober:
    """Probes one target until it is told to stop."""

    def __init__(self, pid: int, name: str, address: str, record: Any) -> None:
        place, _, path = address.partition("/")
        host, _, port = place.partition(":")
        self._target = (host, int(port), "/" + path)
        self._pid, self._name, self._record = pid, name, record
        self.enough = threading.Event()

    def run(self) -> None:
        """Ask at regular times."""
        while not self.enough.wait(INTERVAL_S):
            before, mine = waited(self._pid), own_wait()
            at = time.monotonic()
            status = ask(*self._target)
            wall = time.monotonic() - at
            noise = noise_between(before, waited(self._pid)) + own_wait() - mine
            if self._name == "control":
                noise = 0.0
            self._record(Probed(self._name, at, wall, min(noise, wall), status, memory_of(self._pid)))


def read_probes(path: Path) -> list[Probed]:
    """Read all answers that were recorded, with the control's delays counted as noise."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    probes = [Probed(*json.loads(line)) for line in lines if line.endswith("]")]
    controls = [probe for probe in probes if probe.name == "control" and probe.wall > 0.03]
    return [_with_control(probe, controls) for probe in probes]


def _with_control(probe: Probed, controls: list[Probed]) -> Probed:
    if probe.name == "control" or probe.wall < 0.05:
        return probe
    ends = probe.at + probe.wall
    beside = max((each.wall for each in controls if each.at < ends and each.at + each.wall > probe.at), default=0.0)
    return probe._replace(noise=min(probe.wall, max(probe.noise, beside)))


async def control() -> None:
    """Answer like a server that has nothing else to do."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    """Probe all targets until nobody holds the standard input open."""
    if sys.argv[1:] == ["control"]:
        asyncio.run(control())
        return
    pid, path = int(sys.argv[1]), Path(sys.argv[2])
    with path.open("a", buffering=1) as out:
        probers = []
        for target in sys.argv[3:]:
            name, _, address = target.partition("=")
            probers.append(Prober(pid, name, address, lambda probed: out.write(json.dumps(probed) + "\n")))
        threads = [threading.Thread(target=prober.run) for prober in probers]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        for prober in probers:
            prober.enough.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
