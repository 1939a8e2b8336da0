"""A process that used a Temporal cluster ends as it means to, whatever the SDK's threads still do."""

from __future__ import annotations

import subprocess
import sys

from temporal_server import fresh_temporal_url

SCRIPT = """
import asyncio, sys
import loom

async def main(url):
    async with loom.connect(url) as runtime:
        print(len([run async for run in runtime.list()]), "runs")

asyncio.run(main(sys.argv[1]))
sys.exit(int(sys.argv[2]))
"""


def test_processes_end_with_their_own_exit_code_and_all_that_they_printed() -> None:
    # Without the pause at exit, one in four of such processes dies of a signal.
    url = fresh_temporal_url()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, url, str(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for code in (0, 0, 0, 7, 7, 7)
    ]
    ends = [(*process.communicate(timeout=60), process.returncode) for process in processes]
    assert ends == [("0 runs\n", "", code) for code in (0, 0, 0, 7, 7, 7)]
