"""A process that works on a cluster: `python temporal_worker.py URL PLACE`, until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from temporal_samples import Held

import loom


async def main(url: str, place: Path) -> None:
    """Work."""
    async with loom.connect(url, heartbeat_timeout=3.0) as runtime:
        runtime.register(Held(place), name="held")
        await runtime.ready()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
