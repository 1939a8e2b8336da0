"""A worker process of the chaos test: it works on stored runs until it is told to stop.

Like any process with a supervisor, it begins again if it could not begin because the database was away.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "kill"))

from kill_workload import WORKFLOWS, witness

import loom
from loom.runtime.durable import adapter
from loom.store.errors import StoreUnavailable


async def work(url: str, prefix: str, options: dict[str, Any]) -> None:
    """Until SIGTERM."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    while not stopped.is_set():
        try:
            async with loom.connect(url, **options) as runtime:
                for kind, workflow in WORKFLOWS.items():
                    runtime.register(type(workflow)(timeout=600), name=prefix + kind)
                await runtime.ready()
                await stopped.wait()
        except StoreUnavailable:
            logging.exception("The worker begins again.")
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s %(message)s")
    adapter.SNAPSHOT_TICKS = 8
    witness.open(Path(sys.argv[3]))
    asyncio.run(work(sys.argv[1], sys.argv[2], json.loads(sys.argv[4])))
