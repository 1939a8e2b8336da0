"""The demo kills its process for real, and the run in the file that it leaves behind is whole."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

import loom
from loom.core.ticks import TickRecordResult, TickResume

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def _demo(*arguments: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", DEMO, *arguments],
        env={**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def test_the_demo_finishes_a_run_whose_process_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "demo.db"
    shown = _demo("--keep", file)
    assert "kill -9" in shown
    assert "sold, 7 attempts" in shown
    assert "6 times for 6 threads" in shown
    assert "8, 0 of them twice" in shown
    async with loom.connect(f"sqlite:///{file}") as runtime:
        info = await runtime.get("cloth-1")
        ticks = [entry.tick async for entry in runtime.history("cloth-1")]
    assert info.status == "completed"
    assert sum(isinstance(tick, TickRecordResult) for tick in ticks) == 6
    # Taken up after the kill, and again with the answer, after it was released.
    assert sum(isinstance(tick, TickResume) for tick in ticks) >= 2


def test_the_demo_serves_a_page_with_runs_in_every_state_and_ends_its_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [sys.executable, DEMO, "--ui", "--port", str(port)],
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8", "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        said = []
        for line in demo.stdout:
            said.append(line)
            if "in a browser" in line:
                break
        try:
            assert url in "".join(said)
            assert httpx2.get(url, headers={"accept": "text/html"}).headers["location"] == "ui/"
            counts = httpx2.get(f"{url}/v1/counts").json()
            states = ("running", "waiting", "idle", "asleep", "paused", "parked", "stuck")
            assert all(counts[state] for state in (*states, "completed", "failed", "cancelled")), counts
        finally:
            demo.terminate()
            demo.wait(60)
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url)
