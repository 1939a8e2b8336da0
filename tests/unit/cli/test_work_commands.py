from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_rig import DOUBLE, ORDER, data, failure, good, loom, started, until_end, wait_for, working

from loom.cli.problems import Problem
from loom.cli.run_to_end import result_of
from loom.cli.targets import named_workflow
from loom.runtime.connect import connect

SHOP_TARGETS = (ORDER, DOUBLE)


def waiting(run_id: str) -> None:
    """Start an order beside the worker, which takes it to its wait."""
    good("workflow", "start", "Order", '{"item": "tea"}', "--run-id", run_id)
    wait_for("Approval")


def test_commands_work_beside_a_worker_and_a_second_engine_is_refused(shop: Path) -> None:
    with working(shop, *SHOP_TARGETS, "--idle-timeout", "0") as process:
        waiting("order-1")
        for second in (["run", DOUBLE], ["worker", DOUBLE]):
            message = failure(3, *second)
            assert f"process {process.pid} " in message
            assert message.startswith("Another engine works on the database loom.db")
        good("workflow", "send", "order-1", "Approval", '{"amount": 5}')
        last = good("workflow", "events", "order-1", "--follow").splitlines()[-1]
        assert last.endswith('StopEvent(result={"amount": 5, "note": ""})')
        waiting("order-2")
        good("workflow", "cancel", "order-2")
        assert good("workflow", "events", "order-2", "--follow").splitlines()[-1].endswith("cancelled")
        assert data("workflow", "replay", "order-1")["replay"] == "same"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_standby_takes_over_from_a_worker_that_was_killed(shop: Path) -> None:
    command = [sys.executable, "-m", "loom", "worker", *SHOP_TARGETS, "--when-locked", "standby"]
    with (
        working(shop, *SHOP_TARGETS) as first,
        subprocess.Popen(command, cwd=shop, stderr=subprocess.PIPE, text=True) as second,
    ):
        assert second.stderr is not None
        try:
            assert " is a standby: " in second.stderr.readline()
            assert second.stderr.readline().startswith("Standing by for ")
            waiting("order-1")
            first.kill()
            while " takes over: " not in (line := second.stderr.readline()):
                assert line, "the standby has ended"
            good("workflow", "send", "order-1", "Approval", '{"amount": 5}')
            last = good("workflow", "events", "order-1", "--follow").splitlines()[-1]
            assert last.endswith('StopEvent(result={"amount": 5, "note": ""})')
            second.send_signal(signal.SIGTERM)
            assert second.wait(60) == 0
        finally:
            second.kill()


def test_a_worker_that_stops_leaves_its_runs_to_the_next(shop: Path) -> None:
    with working(shop, *SHOP_TARGETS) as process:
        waiting("order-1")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr is not None
        *logged, told = process.stderr.read().splitlines()
        assert told == "Stopped. Unfinished runs are in the store."
        assert [line.partition(" loom.run: ")[2].partition(" [")[0] for line in logged] == [
            "Run order-1 of Order started",
            "Run order-1 of Order became idle, waiting for Approval",
        ]
    good("workflow", "send", "order-1", "Approval", '{"amount": 7}')
    until_end("order-1")
    assert data("workflow", "status", "order-1")["status"] == "completed"


@pytest.fixture
def stubborn(shop: Path) -> Path:
    """A file of workflows with bodies that do not end; each leaves a file when it has begun."""
    (shop / "stubborn.py").write_text(
        "import asyncio, pathlib, time\n"
        "from loom import StartEvent, StopEvent, Workflow, step\n"
        "class Stubborn(Workflow):\n"
        "    @step\n"
        "    async def begin(self, ev: StartEvent) -> StopEvent:\n"
        "        pathlib.Path('begun').touch()\n"
        "        while True:\n"
        "            try:\n"
        "                await asyncio.sleep(3600)\n"
        "            except asyncio.CancelledError:\n"
        "                pass\n"
        "class InThread(Workflow):\n"
        "    @step\n"
        "    def begin(self, ev: StartEvent) -> StopEvent:\n"
        "        pathlib.Path('begun').touch()\n"
        "        time.sleep(3600)\n"
    )
    return shop


def stopped_when_begun(process: subprocess.Popen[str], shop: Path) -> int:
    """Tell a process to stop once its body has begun; its exit code."""
    deadline = time.monotonic() + 60
    while not (shop / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    try:
        return process.wait(60)
    finally:
        process.kill()


def test_a_body_that_will_not_be_cancelled_does_not_keep_a_worker_from_ending(stubborn: Path) -> None:
    with working(stubborn, "stubborn.py:Stubborn") as process:
        good("workflow", "start", "Stubborn", "{}", "--run-id", "s")
        assert stopped_when_begun(process, stubborn) == 0
    assert data("workflow", "status", "s")["status"] == "running"


@pytest.mark.parametrize("name", ["Stubborn", "InThread"])
def test_a_body_that_cannot_be_ended_does_not_keep_a_run_from_stopping(stubborn: Path, name: str) -> None:
    command = [sys.executable, "-m", "loom", "run", f"stubborn.py:{name}", "--run-id", "s"]
    with subprocess.Popen(command, cwd=stubborn, stderr=subprocess.PIPE, text=True) as process:
        assert stopped_when_begun(process, stubborn) == 1
        assert process.stderr is not None
        assert process.stderr.read().startswith("Error: Stopped. Run 's' is in the store")
    assert data("workflow", "status", "s")["status"] == "running"


@pytest.mark.usefixtures("shop")
def test_runs_a_workflow_to_its_end() -> None:
    assert good("run", DOUBLE, "--input", '{"number": 21}', "--run-id", "d", "--tag", "size=big") == "42\n"
    # The same run again is the same result.
    again = data("run", DOUBLE, "--input", '{"number": 21}', "--run-id", "d")
    assert again == {"run_id": "d", "status": "completed", "result": 42, "error": None}
    assert data("workflow", "status", "d")["tags"] == {"size": "big"}
    assert "with another input" in failure(1, "run", DOUBLE, "--run-id", "d", "--input", "{}")
    assert "as a run of 'Double'" in failure(1, "run", "shop.py:Order", "--run-id", "d")


@pytest.mark.usefixtures("shop")
def test_goes_on_with_a_run_that_was_left() -> None:
    started("order-1")
    good("workflow", "send", "order-1", "Approval", '{"amount": 5}')
    result = good("run", "shop.py:Order", "--run-id", "order-1")
    assert result == '{"amount": 5, "note": ""}\n'


@pytest.mark.usefixtures("shop")
def test_a_run_that_fails_is_told_with_its_step() -> None:
    started("order-1")
    good("workflow", "send", "order-1", "Approval", '{"amount": -1}')
    order = ["run", "shop.py:Order", "--run-id", "order-1"]
    assert failure(1, *order) == "Run 'order-1' has failed: place: ValueError: -1 is negative"
    assert loom(*order, "--json").exit_code == 1


@pytest.mark.usefixtures("shop")
def test_an_interrupted_run_in_memory_is_gone() -> None:
    async def stopped() -> None:
        async with connect("memory://") as runtime:
            runtime.register(named_workflow(ORDER)[1], name="Order")
            stop = asyncio.Event()
            stop.set()
            await result_of(runtime, await runtime.start("Order", {}), stop)

    with pytest.raises(Problem, match="was in memory and is gone"):
        asyncio.run(stopped())


def test_an_interrupted_run_stays_in_the_store(shop: Path) -> None:
    command = [sys.executable, "-m", "loom", "run", "shop.py:Order", "--run-id", "order-1"]
    good("db", "upgrade")
    with subprocess.Popen(command, cwd=shop, stderr=subprocess.PIPE, text=True) as process:
        while not data("workflow", "list", "--idle"):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert process.stderr.read().startswith("Error: Stopped. Run 'order-1' is in the store")
        assert process.wait(60) == 1
    assert data("workflow", "status", "order-1")["status"] == "running"


@pytest.mark.usefixtures("shop")
def test_memory_holds_a_run_for_its_time() -> None:
    assert good("run", DOUBLE, "--input", '{"number": 2}', "--store", "memory://") == "4\n"


@pytest.mark.usefixtures("shop")
def test_targets_that_cannot_be_worked_for(shop: Path) -> None:
    (shop / "broken.py").write_text(
        "from loom import Event, StartEvent, StopEvent, Workflow, step\n"
        "class Lost(Event): pass\n"
        "class Broken(Workflow):\n"
        "    @step\n"
        "    async def begin(self, ev: StartEvent) -> Lost | StopEvent: ...\n"
    )
    assert "Broken cannot be run: " in failure(2, "worker", "broken.py:Broken")
    assert "Two targets are named Double" in failure(2, "worker", DOUBLE, DOUBLE)
    assert "has no 'Nobody'" in failure(2, "worker", "shop.py:Nobody")


def test_inputs_that_the_start_event_refuses(shop: Path) -> None:
    (shop / "strict.py").write_text(
        "from loom import StartEvent, StopEvent, Workflow, step\n"
        "class Begin(StartEvent):\n"
        "    number: int\n"
        "class Strict(Workflow):\n"
        "    @step\n"
        "    async def begin(self, ev: Begin) -> StopEvent:\n"
        "        return StopEvent(result=ev.number)\n"
    )
    told = failure(2, "run", "strict.py:Strict", "--input", '{"number": "x"}')
    assert told.startswith("The input is not what the workflow takes. number: Input should be a valid integer")
    assert failure(2, "run", "strict.py:Strict").endswith(" number: Field required.")
    assert data("workflow", "list") == []
