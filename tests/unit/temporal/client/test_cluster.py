"""Processes that use a cluster: where the core of the SDK logs to, and how they end."""

from __future__ import annotations

import subprocess
import sys

from temporal_server import fresh_temporal_url, session_server

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

_LISTS = """
import asyncio, sys
import loom

async def main(url):
    async with loom.connect(url) as runtime:
        print(len([run async for run in runtime.list()]), "runs")

asyncio.run(main(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


def test_the_standard_output_is_left_to_results() -> None:
    """The core warns of a namespace that it cannot find: as the program logs, and nowhere else."""
    command = [sys.executable, "-c", _WARNED, session_server().target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    assert '"level": "WARNING", "logger": "temporalio.core"' in done.stderr


def test_processes_end_with_their_own_exit_code_and_all_that_they_printed() -> None:
    # Without the pause at exit, one in four of such processes dies of a signal.
    url = fresh_temporal_url()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _LISTS, url, str(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for code in (0, 0, 7, 7)
    ]
    ends = [(*process.communicate(timeout=60), process.returncode) for process in processes]
    assert ends == [("0 runs\n", "", code) for code in (0, 0, 7, 7)]
