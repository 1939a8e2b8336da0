"""The fixed store: scripted runs in every state, under the virtual clock, in one SQLite file.

Several processes work on it one after the other, as in real life. Ids are given and times are virtual, so that each
building of the store gives the same rows.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
from surface_workflows import (
    FAILING,
    LOOP,
    Approval,
    Asks,
    Broken,
    Chatty,
    Dead,
    Halved,
    Naps,
    Parent,
    Report,
    Slow,
    Whole,
    stored_flow,
)

import loom
from loom import Workflow
from loom.server import ServerSettings, create_app
from loom.testing import VIRTUAL_EPOCH, run_virtual

AFTER = VIRTUAL_EPOCH + 4 * 3600
"""When the store is looked at: the script is over by then. 2023-11-15 02:13:20 UTC."""

RUNS = (
    "report-1",
    "broken-1",
    "slow-1",
    "asks-1",
    "paused-1",
    "cancelled-1",
    "nap-1",
    "early-1",
    "parent-1",
    "parent-2",
    "parked-1",
    "stuck-1",
    "timeout-1",
    "chatty-1",
    "queued-1",
    "loop-1",
    "loop-2",
    "failed-flow-1",
    "weighed-1",
    "stored-1",
    "handler-1",
)
"""Every run that the script names, in the order in which they begin or nearly so."""


class Built(NamedTuple):
    """The fixed store, and what was logged while it was built."""

    path: Path
    logged: list[logging.LogRecord]


def code(*, whole: type[Workflow] = Halved) -> dict[str, Workflow]:
    """Make one of each workflow, under the name that its runs have."""
    return {
        "report": Report(timeout=None),
        "broken": Broken(timeout=None),
        "slow": Slow(timeout=None),
        "asks": Asks(timeout=None),
        "hurried": Asks(timeout=600),
        "naps": Naps(timeout=None),
        "parent": Parent(timeout=None),
        "whole": whole(timeout=None),
        "dead": Dead(timeout=None),
        "chatty": Chatty(timeout=None),
        "loop": loom.load(LOOP, name="loop"),
        "failing": loom.load(FAILING, name="failing"),
    }


def process(path: Path, *, whole: type[Workflow] = Halved, **options: Any) -> Any:
    """Make the runtime of a process that works for all workflows and stored definitions, for `async with`."""
    runtime = loom.connect(f"sqlite:///{path}", idle_timeout=30.0, definitions=True, name="surface", **options)
    for name, workflow in code(whole=whole).items():
        runtime.register(workflow, name=name)
    return runtime


def client_of(runtime: Any, address: str = "127.0.0.1", **headers: str) -> httpx2.AsyncClient:
    """Make a client of a server over a runtime, in this process."""
    app = create_app(runtime, ServerSettings())
    transport = httpx2.ASGITransport(app=app, client=(address, 1234))
    return httpx2.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", headers={"X-Request-ID": "surface", **headers}
    )


def build(path: Path) -> None:
    """Let the script happen, into a new database."""
    run_virtual(_build(path))


async def _build(path: Path) -> None:
    async with process(path, whole=Whole) as runtime:
        await _begin_steps(runtime)
        await _begin_flows(runtime)
        await _use_server(runtime)
    await asyncio.sleep(300)  # no process works
    async with process(path) as runtime:
        await _go_on(runtime)
    async with loom.connect(f"sqlite:///{path}") as client:
        await client.start("elsewhere", {"topic": "nobody"}, run_id="queued-1", tags={"team": "blue"})
        await client.send_event("paused-1", Approval(by="Ada", amount=7), event_id="answer-1")


async def _start(runtime: Any, workflow: str, run_id: str, inputs: Any = None, **options: Any) -> None:
    """Start a run, and let a second pass, so that each has a time of its own."""
    await runtime.start(workflow, inputs, run_id=run_id, **options)
    await asyncio.sleep(1)


async def _begin_steps(runtime: Any) -> None:
    await _start(runtime, "report", "report-1", {"topic": "looms"}, tags={"team": "blue", "kind": "weekly"})
    await _start(runtime, "broken", "broken-1", {"number": 17}, tags={"team": "red"})
    await _start(runtime, "slow", "slow-1")
    await _start(runtime, "asks", "asks-1", {"item": "tea"}, tags={"team": "blue"})
    await _start(runtime, "asks", "paused-1", {"item": "coffee"})
    await runtime.pause("paused-1")
    await _start(runtime, "asks", "cancelled-1", {"item": "milk"})
    await runtime.cancel("cancelled-1", reason="nobody wants milk")
    await _start(runtime, "naps", "nap-1")
    await _start(runtime, "naps", "early-1", {"asks": True})
    await runtime.send_event("early-1", Approval(by="Grace"), event_id="early-answer")
    await _start(runtime, "parent", "parent-1", {"child": "report"})
    await _start(runtime, "parent", "parent-2", {"child": "asks"})
    await _start(runtime, "whole", "parked-1")
    await _start(runtime, "dead", "stuck-1")
    await _start(runtime, "hurried", "timeout-1", {"item": "late"})
    await _start(runtime, "chatty", "chatty-1")


async def _begin_flows(runtime: Any) -> None:
    for run_id in ("loop-1", "loop-2"):
        await _start(runtime, "loop", run_id, tags={"team": "blue"})
        await runtime.send_event(run_id, loom.FlowEvent(name="Go", data={"word": "warp"}))
        await asyncio.sleep(1)
    await _start(runtime, "failing", "failed-flow-1", {"item": "anvil", "pin": 1234})
    await _start(runtime, "failing", "weighed-1", {"item": "feather", "pin": 4321})
    await runtime.schedule("nightly", "report", cron="30 0 * * *", input={"topic": "night"}, tags={"team": "night"})
    await runtime.schedule("rarely", "asks", every=7 * 86400, catch_up=True)
    await asyncio.sleep(1)


async def _use_server(runtime: Any) -> None:
    """Do what only a server does: definitions with versions, a handler of the compatible routes, a paused schedule."""
    async with client_of(runtime) as client:
        answers = [await client.put("/v1/definitions/stored", json=stored_flow("warp"))]
        await asyncio.sleep(1)
        answers.append(await client.put("/v1/definitions/stored", json=stored_flow("weft")))
        answers.append(await client.post("/v1/runs", json={"workflow": "stored", "run_id": "stored-1"}))
        await asyncio.sleep(1)
        begin = {"start_event": {"topic": "handlers"}, "handler_id": "handler-1"}
        answers.append(await client.post("/workflows/report/run-nowait", json=begin))
        await asyncio.sleep(1)
        answers.append(await client.post("/v1/schedules/rarely/pause"))
    assert [answer.status_code for answer in answers] == [201, 200, 201, 200, 202], [each.text for each in answers]
    await asyncio.sleep(100)


async def _go_on(runtime: Any) -> None:
    """Let the first loop end, the hurried run time out, and the nightly schedule start a run."""
    await asyncio.sleep(10)
    for word in ("weft", "shed"):
        await runtime.send_event("loop-1", loom.FlowEvent(name="Go", data={"word": word}))
        await asyncio.sleep(400)
    await asyncio.sleep(2.5 * 3600)
