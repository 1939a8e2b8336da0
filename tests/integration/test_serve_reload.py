"""`loom serve --reload` as processes: edits are served, broken ones are told, runs under way go on."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from loom.cli import main

PATIENCE_S = 60.0

SHOP = """
from pathlib import Path

import prices
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step


class Approval(HumanResponseEvent):
    pass


class Order(Workflow):
    @step
    async def price(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=prices.PRICE)


class Asking(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Approval, timeout=None)
        return StopEvent(result=prices.PRICE)


order = Order(timeout=None)
asking = Asking(timeout=None)
"""


def flow(expression: str) -> str:
    actions = {"One": {"type": "Compose", "inputs": expression, "runAfter": {}}}
    return json.dumps(
        {"definition": {"actions": actions, "outputs": {"n": {"type": "string", "value": "@outputs('One')"}}}}
    )


class Served:
    """A server that reloads, what it says, and a client of it."""

    def __init__(self, place: Path) -> None:
        command = [sys.executable, "-W", "error", "-m", "loom", "serve", "order=shop.py:order", "asking=shop.py:asking"]
        self.process = subprocess.Popen(
            [*command, "flows", "--reload", "--port", "0"], cwd=place, stderr=subprocess.PIPE, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        first = self.until("Serving ")[-1]
        self.url = first.partition(" at ")[2].partition(". ")[0]
        self.client = httpx2.Client(base_url=self.url, timeout=PATIENCE_S)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line.rstrip())

    def until(self, words: str) -> list[str]:
        """All lines up to the next one with these words."""
        found = [self._lines.get(timeout=PATIENCE_S)]
        while words not in found[-1]:
            found.append(self._lines.get(timeout=PATIENCE_S))
        return found

    def result(self, workflow: str) -> Any:
        answer = self.client.post("/v1/runs", json={"workflow": workflow}, params={"wait": 30})
        assert answer.status_code in (200, 201, 202), answer.text
        return self.result_of(answer.json()["run_id"])

    def result_of(self, run_id: str) -> Any:
        run = self.client.get(f"/v1/runs/{run_id}", params={"wait": 30}).json()
        assert run["status"] == "completed", run
        found = run["result"]
        return found["value"]["result"] if "value" in found else found["outputs"]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        assert self.process.stderr is not None
        self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        self.process.stderr.close()
        self.client.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "prices.py").write_text("PRICE = 1\n")
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "greet.json").write_text(flow("hello"))
    return tmp_path


@pytest.fixture
def served(place: Path) -> Iterator[Served]:
    server = Served(place)
    yield server
    server.close()


def test_edits_are_served_and_broken_ones_are_not(served: Served, place: Path) -> None:
    prices, greet = place / "prices.py", place / "flows" / "greet.json"
    assert served.result("order") == 1
    waiting = served.client.post("/v1/runs", json={"workflow": "asking", "run_id": "asking-1"})
    assert waiting.status_code == 201

    prices.write_text("PRICE = 2\n")
    assert served.until("Reloaded")[-1].endswith(" s: prices.py changed.")
    assert served.result("order") == 2

    # A broken module: the version before answers, and the author's line comes first.
    prices.write_text("def price():\n    return NOTHING\n\n\nPRICE = price()\n")
    told = served.until("cannot be served.")
    assert told[-1] == "prices.py changed, and cannot be served. The version before goes on."
    wrong = told.index("NameError: name 'NOTHING' is not defined")
    assert told[wrong + 1 : wrong + 3] == [f'  File "{prices}", line 2, in price', "    return NOTHING"]
    assert served.result("order") == 2

    prices.write_text("PRICE = 3\n")
    served.until("Reloaded")
    assert served.result("order") == 3

    # A flow with two problems: both are told with their paths, and the version before answers.
    assert served.result("greet") == {"n": "hello"}
    greet.write_text(flow("@nosuch(").replace("{}", '{"Two": ["Succeeded"]}'))
    told = served.until("cannot be served.")
    problems = [line for line in told if line.startswith("flows/greet.json:")]
    assert [line.partition("error: ")[2].partition(":")[0] for line in problems] == [
        "definition.actions.One.inputs",
        "definition.actions.One.runAfter.Two",
    ]
    assert told[-1] == "flows/greet.json changed, and cannot be served. The version before goes on."
    assert served.result("greet") == {"n": "hello"}
    greet.write_text(flow("bye"))
    served.until("Reloaded")
    assert served.result("greet") == {"n": "bye"}

    # The run of the first version goes on with the code of now.
    sent = served.client.post("/v1/runs/asking-1/events", json={"type": "Approval", "value": {}})
    assert sent.is_success, sent.text
    assert served.result_of("asking-1") == 3


def test_a_module_that_never_loads_is_given_up_for_the_next_edit(served: Served, place: Path) -> None:
    prices, hangs = place / "prices.py", place / "hangs"
    prices.write_text(f"import pathlib, threading\npathlib.Path({str(hangs)!r}).touch()\nthreading.Event().wait()\n")
    deadline = time.monotonic() + PATIENCE_S
    while not hangs.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert served.result("order") == 1, "the version before answers"
    prices.write_text("PRICE = 5\n")
    assert served.until("Reloaded")[-1].endswith(" s: prices.py changed.")
    assert served.result("order") == 5


def test_a_new_file_in_a_folder_of_flows_is_served(served: Served, place: Path) -> None:
    (place / "flows" / "more.json").write_text(flow("more"))
    assert served.until("Reloaded")[-1].endswith(" s: flows changed.")
    assert served.result("more") == {"n": "more"}


def test_no_connection_is_refused_while_it_reloads(served: Served, place: Path) -> None:
    """A client that connects anew for each request is let in each time.

    A connection that the old process had accepted in its last moment may be closed before its request was read.
    """
    stop = threading.Event()
    answers: list[int | str] = []

    def ask() -> None:
        while not stop.is_set():
            try:
                answers.append(httpx2.get(f"{served.url}/v1/health/live", timeout=PATIENCE_S).status_code)
            except httpx2.ConnectError as error:
                answers.append(f"refused: {error}")
            except (httpx2.ReadError, httpx2.RemoteProtocolError):
                continue

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for price in (2, 3):
            before = len(answers)
            (place / "prices.py").write_text(f"PRICE = {price}\n")
            served.until("Reloaded")
            deadline = time.monotonic() + PATIENCE_S
            while len(answers) <= before and time.monotonic() < deadline:
                time.sleep(0.01)
    finally:
        stop.set()
        asking.join(PATIENCE_S)
    assert set(answers) == {200}
    assert served.result("order") == 3


def test_a_server_that_died_begins_again_with_the_next_change(served: Served, place: Path) -> None:
    child = int(served.client.get("/v1/workers").json()["items"][0]["pid"])
    assert child != served.process.pid
    os.kill(child, signal.SIGKILL)
    assert served.until("The server has ended")[-1].startswith("The server has ended with 137.")
    (place / "prices.py").write_text("PRICE = (\n")
    assert served.until("cannot be served.")[-1].endswith("The next change is tried.")
    (place / "prices.py").write_text("PRICE = 4\n")
    served.until("Reloaded")
    assert served.result("order") == 4


def test_the_server_ends_with_its_supervisor(served: Served) -> None:
    child = int(served.client.get("/v1/workers").json()["items"][0]["pid"])
    served.process.kill()
    served.until("Stopped.")
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            break
        time.sleep(0.01)
    with socket.socket() as free, pytest.raises(ConnectionRefusedError):
        free.connect(("127.0.0.1", int(served.url.rpartition(":")[2])))


def test_a_signal_ends_both_and_a_broken_start_ends_at_once(served: Served, place: Path) -> None:
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(PATIENCE_S) == 0
    (place / "prices.py").write_text("PRICE = 1 / 0\n")
    command = [sys.executable, "-m", "loom", "serve", "shop.py:order", "--reload", "--port", "0"]
    ended = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "name one"),
        (("shop.py:order", "--when-locked", "standby"), "one process"),
        (("shop.py:order", "--store", "memory://"), "would lose them"),
    ],
)
def test_it_is_refused_where_it_makes_no_sense(arguments: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(main, ["serve", "--reload", *arguments])
    assert result.exit_code == 2
    assert why in result.stderr
