"""A real process of `loom serve` or another command that listens, for tests that start and stop one. All may use it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

_PATIENCE_S = 60.0


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class ServedProcess:
    """`loom serve` with some arguments, on a port that stays the same when it is started again."""

    def __init__(self, *arguments: str, cwd: Path, log: Path, command: str = "serve") -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._arguments = (command, *arguments)
        self._cwd = cwd
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *, may_end: bool = False) -> None:
        """Start it, and return when it listens. If it `may_end`, also when it has."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "loom", *self._arguments, "--port", str(self.port)),
                cwd=self._cwd,
                env={**os.environ, "PYTHONWARNINGS": "default"},
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(_PATIENCE_S):
            while not await self._listens():
                if self._process.returncode is not None:
                    if may_end:
                        return
                    raise AssertionError(f"The server has ended: {self._log.read_text()}")
                await asyncio.sleep(0.02)

    async def _listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True

    async def kill(self) -> None:
        """End it at once, in whatever it is doing."""
        await self._signal(signal.SIGKILL)

    async def stop(self) -> int:
        """End it in order; its exit code."""
        return await self._signal(signal.SIGTERM)

    async def ended(self) -> int:
        """Wait until it has ended by itself; its exit code, or the number of the signal, negative."""
        assert self._process is not None
        async with asyncio.timeout(_PATIENCE_S):
            return await self._process.wait()

    async def _signal(self, number: int) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(_PATIENCE_S):
            return await self._process.wait()
