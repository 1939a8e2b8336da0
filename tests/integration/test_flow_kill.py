"""A flow that polls a server is killed in mid-loop, and the same command goes on at the iteration where it was.

The definition is the polling example of the design, with another address and a delay that the server chooses.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

CONDITION = "@equals(body('checkStatus').status, 'complete')"
POLLING: dict[str, Any] = {
    "type": "until",
    "name": "waitForJob",
    "condition": CONDITION,
    "actions": {
        "checkStatus": {
            "type": "http",
            "inputs": {"method": "GET", "uri": "http://{host}/jobs/@{variables('jobId')}?i=@{variables('loopIndex')}"},
        }
    },
    "delay": {"interval": {"count": "@body('checkStatus').pause", "unit": "second"}},
    "limit": {"count": 60, "timeout": "PT10M"},
}
LAST = 6
"""The iteration in which the job is found complete."""


class Jobs:
    """A server with a job that is complete in its last iteration, and what it was asked for."""

    def __init__(self, pauses: dict[int, float], held: int | None = None) -> None:
        self.asked: list[int] = []
        self.pauses = pauses
        """How long the flow shall wait behind an iteration."""
        self.held = held
        """The iteration whose first answer is held back."""
        self.reached = threading.Event()
        self.let_go = threading.Event()

    def answer(self, iteration: int) -> dict[str, Any]:
        is_repeated = iteration in self.asked
        self.asked.append(iteration)
        if iteration == self.held and not is_repeated:
            self.reached.set()
            self.let_go.wait(60)
        status = "complete" if iteration == LAST else "running"
        return {"status": status, "iteration": iteration, "pause": self.pauses.get(iteration, 0.01)}


@contextmanager
def serving(jobs: Jobs) -> Iterator[str]:
    """The server on a loopback address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = jobs.answer(int(parse_qs(urlsplit(self.path).query)["i"][0]))
            body = json.dumps(answer).encode()
            try:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except ConnectionError:
                pass  # whoever asked was killed

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            jobs.let_go.set()
            server.shutdown()
            thread.join()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOOM_STORE", raising=False)
    monkeypatch.delenv("LOOM_HTTP_ALLOW", raising=False)
    return tmp_path


def run_command(host: str) -> list[str]:
    """The command, which is the same before and after the crash."""
    Path("poll.json").write_text(json.dumps(POLLING).replace("{host}", host))
    options = ["--variable", "jobId=42", "--run-id", "job-42", "--allow-host", "127.0.0.1", "--store", "sqlite:///x.db"]
    return [sys.executable, "-m", "loom", "run", "poll.json", *options]


def look(*arguments: str) -> str:
    command = [sys.executable, "-m", "loom", "workflow", *arguments, "--store", "sqlite:///x.db"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def finished(command: list[str]) -> list[str]:
    """The lines of a run that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_run_that_is_killed_in_a_delay_goes_on_with_the_next_iteration(place: Path) -> None:
    jobs = Jobs(pauses={2: 3.0})
    with serving(jobs) as host:
        command = run_command(host)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("Iteration  waitForJob 3/60"):
                    break
            process.send_signal(signal.SIGKILL)
        assert jobs.asked == [0, 1, 2]
        # What the seed shows, from the state alone, with nobody there.
        shape = (
            r"Workflow: poll\n"
            r"Status: Running\n"
            r"Current Action: waitForJob \(until\)\n"
            r"  Iteration: 3/60\n"
            rf"  Condition: {re.escape(CONDITION)}\n"
            r"  Duration: \d+m?s\n"
            r"  Last Result: \{ checkStatus: \{ status: \"running\", iteration: 2, pause: 3.0 \} \}\n"
            r"  Next Iteration: (in \d+m?s|due now)\n"
        )
        shown = look("status", "job-42")
        assert re.fullmatch(shape, shown), shown
        lines = finished(command)
    assert lines[0] == "Run job-42 of poll goes on"
    assert jobs.asked == list(range(LAST + 1)), "an iteration was repeated or left out"
    assert next(line for line in lines if line.startswith("Iteration")).startswith("Iteration  waitForJob 4/60")
    assert lines[-1] == "Status: Succeeded"
    assert "ticks and" in look("replay", "job-42")


def test_a_run_that_is_killed_in_a_request_repeats_that_request_alone(place: Path) -> None:
    jobs = Jobs(pauses={}, held=3)
    with serving(jobs) as host:
        command = run_command(host)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            assert jobs.reached.wait(60)
            beside = look("status", "job-42").splitlines()
            process.send_signal(signal.SIGKILL)
        jobs.let_go.set()
        assert beside[2:4] == ["Current Action: waitForJob (until)", "  Iteration: 4/60"]
        assert beside[7] == "  Current Action: checkStatus (http)"
        (loop,) = json.loads(look("status", "job-42", "--json"))["loops"]
        assert (loop["path"], loop["iteration"], loop["max_iterations"]) == ("waitForJob[3]", 4, 60)
        finished(command)
        again = finished(command)
    assert jobs.asked == [0, 1, 2, 3, 3, 4, 5, 6]
    assert again == ["Run job-42 of poll has ended before", "Status: Succeeded"], (
        "a run that is over is told, not run again"
    )
    ended = json.loads(look("status", "job-42", "--json"))
    assert ended["status"] == "completed"
    assert {action["name"]: action["iterations"] for action in ended["actions"]} == {
        "waitForJob": 7,
        "checkStatus": None,
    }


def test_a_run_that_is_interrupted_says_how_it_goes_on(place: Path) -> None:
    jobs = Jobs(pauses={}, held=2)
    with serving(jobs) as host:
        command = run_command(host)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            assert jobs.reached.wait(60)
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            told = process.stderr.read()
        jobs.let_go.set()
        assert process.returncode == 1
        assert "goes on with `loom run poll.json --store sqlite:///x.db --run-id job-42`" in told
        finished([*command[:5], "--store", "sqlite:///x.db", "--run-id", "job-42", "--allow-host", "127.0.0.1"])
    assert jobs.asked == [0, 1, 2, 2, 3, 4, 5, 6]
