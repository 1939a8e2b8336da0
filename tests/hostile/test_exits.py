"""Bodies that ask their process to end, in every way that Python knows: each is a failure of that attempt."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confined import confined

from loom.store.sqlite import SqliteStore

_PROGRAM = """
import argparse, asyncio, json, sys
import loom
from loom import StartEvent, StopEvent, Workflow, step
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed


class Unspeakable(Exception):
    def __str__(self):
        raise SystemExit("from __str__")


def deadly(kind):
    if kind == "SystemExit":
        raise SystemExit(3)
    if kind == "KeyboardInterrupt":
        raise KeyboardInterrupt
    if kind == "GeneratorExit":
        raise GeneratorExit
    if kind == "argparse":
        argparse.ArgumentParser("body").parse_args(["--nope"])
    if kind == "unspeakable":
        raise Unspeakable
    return kind


KINDS = ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "argparse", "unspeakable")
RETRIES = retry_policy(wait=wait_fixed(0), stop=stop_after_attempt(2))


class OnTheLoop(Workflow):
    @step(retry_policy=RETRIES)
    async def work(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=deadly(ev.kind))


class InAThread(Workflow):
    @step(retry_policy=RETRIES)
    def work(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=deadly(ev.kind))


@loom.activity("here")
async def here(kind):
    return deadly(kind)


@loom.activity("there")
def there(kind):
    return deadly(kind)


@loom.actor("player")
def player(state, kind):
    return state, deadly(kind)


def flow(kind):
    calls = {
        "Here": {"type": "activity", "inputs": {"activityType": "here", "input": kind}},
        "There": {"type": "activity", "inputs": {"activityType": "there", "input": kind}},
        "Actor": {"type": "actor", "inputs": {"actorType": "player", "actorId": kind, "input": kind}},
    }
    return loom.load({"definition": {"actions": {
        name: {**call, "runAfter": {}} for name, call in calls.items()
    }}})


async def told(runtime, name, kind):
    handler = await runtime.start(name, {"kind": kind})
    try:
        return await handler
    except Exception as error:
        info = await runtime.get(handler.run_id)
        return f"{info.status}: {type(error).__name__}: {info.error}"


async def durable(url):
    async with loom.connect(url) as runtime:
        runtime.register(OnTheLoop(), name="loop")
        runtime.register(InAThread(), name="thread")
        for kind in KINDS:
            runtime.register(flow(kind), name=f"flow-{kind}")
        found = {}
        for kind in (*KINDS, "fine"):
            found[f"loop {kind}"] = await told(runtime, "loop", kind)
            found[f"thread {kind}"] = await told(runtime, "thread", kind)
        for kind in KINDS:
            result = await (await runtime.start(f"flow-{kind}", {}))
            for name, action in result.actions.items():
                found[f"{name} {kind}"] = f"{action.status}: {action.code}"
        return found


async def live():
    found = {}
    for workflow in (OnTheLoop(), InAThread()):
        for kind in KINDS:
            try:
                found[f"{type(workflow).__name__} {kind}"] = await workflow.run(kind=kind)
            except Exception as error:
                found[f"{type(workflow).__name__} {kind}"] = type(error).__name__
    return found


async def main():
    async with asyncio.timeout(60):
        return {"memory": await live(), "durable": await durable("sqlite:///runs.db")}

print("found:" + json.dumps(asyncio.run(main())))
"""


def test_a_wish_to_exit_is_a_failure_of_the_attempt(tmp_path: Path) -> None:
    told = confined(_PROGRAM, cwd=tmp_path, memory_mib=4096).check()
    found = json.loads(told.rpartition("found:")[2])
    errors = {
        "SystemExit": "SystemExit: 3",
        "KeyboardInterrupt": "KeyboardInterrupt",
        "GeneratorExit": "GeneratorExit",
        "argparse": "SystemExit: 2",
        "unspeakable": "(its text cannot be shown: SystemExit)",
    }
    names = {"argparse": "SystemExit", "unspeakable": "Unspeakable"}
    for kind, error in errors.items():
        for place in ("loop", "thread"):
            told = found["durable"][f"{place} {kind}"]
            assert told.startswith("failed: "), (kind, place, told)
            assert error in told, (kind, place, told)
        for action in ("Here", "There", "Actor"):
            # A future cannot carry a GeneratorExit from its thread: it comes as the cause of another error.
            name = "RuntimeError" if kind == "GeneratorExit" and action != "Here" else names.get(kind, kind)
            assert found["durable"][f"{action} {kind}"] == f"Failed: {name}", (action, kind)
        for workflow in ("OnTheLoop", "InAThread"):
            name = "RuntimeError" if (kind, workflow) == ("GeneratorExit", "InAThread") else "WorkflowRuntimeError"
            expected = "Unspeakable" if kind == "unspeakable" else name
            assert found["memory"][f"{workflow} {kind}"] == expected, (workflow, kind)
    assert found["durable"]["loop fine"] == found["durable"]["thread fine"] == "fine"


_BLOCKED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it

import asyncio, time
from loom import StartEvent, StopEvent, Workflow, step

class Blocks(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        print("blocked", flush=True)
        time.sleep(1000)

async def main():
    await Blocks(timeout=None).run()

asyncio.run(main())
"""


def test_ctrl_c_ends_a_script_whose_body_blocks(tmp_path: Path) -> None:
    """The first one is told to the event loop, which hears nothing; the second one is raised in the body."""
    script = subprocess.Popen(
        [sys.executable, "-c", _BLOCKED], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert script.stdout is not None
        assert script.stdout.readline() == "blocked\n"
        ends_at = time.monotonic() + 60
        while script.poll() is None:
            assert time.monotonic() < ends_at
            script.send_signal(signal.SIGINT)
            time.sleep(0.1)
    finally:
        script.kill()
        _, told = script.communicate()
    assert "KeyboardInterrupt" in told


_ENDS_AT_START = """
import asyncio, sys
import loom
from loom import StartEvent, StopEvent, Workflow, step
from loom.cli.engine_process import host

class Ends(Workflow):
    stops = asyncio.Event()

    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        loop = asyncio.get_running_loop()
        if ev.how == "cancel-while-it-stops":
            await self.stops.wait()
        if ev.how.startswith("cancel"):
            for task in asyncio.all_tasks():
                task.cancel()
        else:
            loop.call_soon(loop.stop)
            self.stops.set()
        await asyncio.sleep(1000)
        return StopEvent()

async def work():
    # As while a process starts: nobody waits here for a signal, and everything would be left in order.
    async with loom.connect("sqlite:///runs.db") as runtime:
        runtime.register(Ends(timeout=None), name="ends")
        for how in sys.argv[1:]:
            await runtime.start("ends", {"how": how}, run_id=f"ends-{how}")
        await asyncio.sleep(1000)

host(work())
"""


@pytest.mark.parametrize(("how", "did"), [("cancel", "cancelled every task"), ("stop", "stopped the event loop")])
async def test_what_takes_the_event_loop_from_under_all_is_named_and_counted(
    how: str, did: str, tmp_path: Path
) -> None:
    ended = await asyncio.to_thread(confined, _ENDS_AT_START, how, cwd=tmp_path, memory_mib=4096)
    assert ended.code == 70, ended
    assert f"The process ends: a body has {did}. It was step 'work' of run ends-{how}. At work:" in ended.err
    store = SqliteStore(tmp_path / "runs.db")
    await store.open()
    await store.join("next", 15.0)
    stored = await store.load(f"ends-{how}")
    assert stored is not None
    assert stored.deaths is not None
    assert stored.deaths.marks == 1
    await store.close()


async def test_of_two_that_take_the_event_loop_the_line_names_the_one_that_did_what_it_says(tmp_path: Path) -> None:
    hows = ("cancel-while-it-stops", "stop")
    ended = await asyncio.to_thread(confined, _ENDS_AT_START, *hows, cwd=tmp_path, memory_mib=4096)
    assert ended.code == 70, ended
    did = "a body has cancelled every task. It was step 'work' of run ends-cancel-while-it-stops. At work:"
    assert f"The process ends: {did}" in ended.err
