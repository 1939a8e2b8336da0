"""A worker of a Temporal cluster that is restarted when it dies. Run as a program: `URL`."""

from __future__ import annotations

import asyncio
import signal
import sys

import deadly_bodies
from deadly_supervisor import Supervisor

import loom
import loom.temporal.runtime


async def work(url: str) -> None:
    """Work until SIGTERM, with short times."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with loom.connect(
        url, heartbeat_timeout=1.0, retry_interval=0.1, sticky_timeout=0.5, probation=0.05, grace=0.1
    ) as runtime:
        runtime.register(deadly_bodies.Deadly(timeout=None), name="Deadly")
        runtime.register(deadly_bodies.DeadlyClass(timeout=None), name="DeadlyClass")
        runtime.register(deadly_bodies.Long(timeout=None), name="Long")
        await stopped.wait()


if __name__ == "__main__":
    sys.exit(Supervisor().run(100, lambda: asyncio.run(work(sys.argv[1]))))
