"""The processes of a hostile sweep: a server with limits, what answers it, what probes it, and a control beside."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hostile_probe import Probed, memory_of, read_probes

HERE = Path(__file__).parent
PATIENCE_S = 120.0
ADDRESS_SPACE = 4 << 30
"""What the server may take of addresses; far above what it may have in memory."""
MAX_MEMORY = "600M"
MAX_STATE = "16M"
"""As the page on operations advises where strangers write flows: a state is encoded in one piece."""
WATCHDOG_S = 0.5
TARGETS = [f"{HERE / 'hostile_bodies.py'}:{name}" for name in ("Contained", "Threaded", "Blocking")]


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def helper(program: str, *arguments: str, told: bool = True) -> tuple[subprocess.Popen[str], int]:
    """Start a program that stands beside this one, and ends with its standard input; the port that it prints."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / program), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if told else None,
        text=True,
    )
    port = int(process.stdout.readline()) if process.stdout else 0
    return process, port


def end(process: subprocess.Popen[str]) -> None:
    """End such a program."""
    assert process.stdin
    process.stdin.close()
    process.wait(PATIENCE_S)
    if process.stdout:
        process.stdout.close()


class HostileServer:
    """`loom serve` on one store, with what watches it. It may be stopped, killed and started again."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store = folder, store
        self.port, self.health_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.peak = 0
        """The most memory that any process of it had."""
        self._answers, answers_port = helper("hostile_answers.py")
        self.answers = f"http://127.0.0.1:{answers_port}"
        self._control, self._control_port = helper("hostile_probe.py", "control")
        self._process: subprocess.Popen[bytes] | None = None
        self._probe: subprocess.Popen[str] | None = None

    @property
    def log(self) -> Path:
        """What it has logged, one object per line."""
        return self.folder / "log"

    async def start(self) -> None:
        """Start it, and the probe, and return when it listens."""
        place = self.answers.removeprefix("http://")
        options = ["--store", self.store, "--port", str(self.port), "--health-port", str(self.health_port)]
        options += ["--max-memory", MAX_MEMORY, "--max-state", MAX_STATE]
        options += ["--watchdog", f"{WATCHDOG_S}s", "--log-format", "json"]
        options += ["--allow-host", place, "--idle-timeout", "5s", f"{HERE / 'hostile_gauge.py'}:Gauge"]
        self._process = self._spawned(*options)
        resource.prlimit(self._process.pid, resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        resource.prlimit(self._process.pid, resource.RLIMIT_CORE, (0, 0))
        ends_at = time.monotonic() + PATIENCE_S
        while not self._listens():
            if not self.is_alive() or time.monotonic() > ends_at:
                raise AssertionError(f"The server does not listen: {self.log_tail()}")
            await asyncio.sleep(0.05)
        ours = {"main": f"127.0.0.1:{self.port}/v1/health/live", "health": f"127.0.0.1:{self.health_port}/live"}
        targets = [f"{name}={address}" for name, address in ours.items()]
        targets.append(f"control=127.0.0.1:{self._control_port}/")
        self._probe, _ = helper(
            "hostile_probe.py", str(self._process.pid), str(self.folder / "probes"), *targets, told=False
        )

    def _spawned(self, *options: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "loom", "serve", *TARGETS, *options],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
                stdout=log,
                stderr=log,
            )

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def is_alive(self) -> bool:
        """Say whether its process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def code(self) -> int | None:
        """How its process ended, if it has."""
        return None if self._process is None else self._process.poll()

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """End it by a signal; its exit code."""
        assert self._process is not None
        self.peak = max(self.peak, memory_of(self._process.pid, "VmHWM"))
        if self._probe is not None:
            end(self._probe)
            self._probe = None
        if self._process.poll() is None:
            self._process.send_signal(number)
        return await asyncio.to_thread(self._process.wait, PATIENCE_S)

    async def close(self) -> None:
        """End all processes."""
        if self.is_alive():
            await self.stop(signal.SIGKILL)
        if self._probe is not None:
            end(self._probe)
        end(self._answers)
        end(self._control)

    async def verify(self) -> str:
        """What `loom db verify` has against the store; empty if nothing."""
        program = [sys.executable, "-m", "loom", "db", "verify", "--store", self.store]
        verified = await asyncio.to_thread(
            subprocess.run, program, cwd=self.folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        return "" if verified.returncode == 0 else f"{verified.stdout[-2000:]}{verified.stderr[-2000:]}"

    def probes(self) -> list[Probed]:
        """All probes up to now."""
        return read_probes(self.folder / "probes")

    def gaps(self) -> list[list[Any]]:
        """All gaps of the event loop up to now, as the gauge wrote them."""
        path = self.folder / "gaps"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("]")]

    def log_lines(self) -> list[dict[str, Any]]:
        """The log's lines that are objects."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def log_tail(self) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-3000:]
