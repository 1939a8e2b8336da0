"""Where the core of the SDK logs to in commands: in a process of its own, for it is set up once."""

from __future__ import annotations

import subprocess
import sys

from temporal_server import session_server

_WARNED = """
import asyncio, logging, os, sys, threading
from temporalio.client import Client
from temporalio.worker import Worker
from temporalio import activity
from loom.runtime.logs import configure_logs
from loom.cli.session import store_at

@activity.defn
async def nothing() -> None: ...

told = threading.Event()

class Told(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "temporalio.core":
            told.set()

async def main() -> None:
    client = await Client.connect(sys.argv[1], namespace="there-is-none")
    try:
        await Worker(client, task_queue="q", activities=[nothing]).run()
    except RuntimeError:
        await asyncio.to_thread(told.wait, 30)  # what is logged is handed over a little later

configure_logs("json")
logging.getLogger().addHandler(Told())  # the last one of the root: the line is written when it is asked
store_at(f"temporal://{sys.argv[1]}", upgrade=False)
asyncio.run(main())
os._exit(0)
"""


def test_the_standard_output_is_left_to_results() -> None:
    """The core warns of a namespace that it cannot find: as the program logs, and nowhere else."""
    command = [sys.executable, "-c", _WARNED, session_server().target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    assert '"level": "WARNING", "logger": "temporalio.core"' in done.stderr
