"""What happens to the runs whose histories on Temporal are recorded: each case drives runs on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import temporal_workflows as flows
from temporal_workflows import Answer
from temporalio.client import Client
from temporalio.common import RawValue

import loom
from loom import Workflow
from loom.core.ticks import TickAddEvent
from loom.runtime.durable.registration import Registration, prepared
from loom.steps.stand_ins import stand_in
from loom.temporal.names import UPDATE_TELL
from loom.temporal.payloads import RunMessage, payload_of
from loom.temporal.runtime import TemporalRuntime

_PATIENCE_S = 60.0


class Stage:
    """A namespace of a cluster, and processes that work in it one after the other."""

    def __init__(self, url: str) -> None:
        self.url = url

    def process(self, *workflows: Workflow, name: str = "") -> TemporalRuntime:
        """A process that works for workflows, under the names of their classes or under the given one."""
        runtime = loom.connect(self.url, retry_interval=0.05)
        assert isinstance(runtime, TemporalRuntime)
        for workflow in workflows:
            runtime.register(workflow, name=name or type(workflow).__name__)
        return runtime


Case = Callable[[Stage, str], Awaitable[None]]
CASES: dict[str, Case] = {}
SETTINGS: dict[str, Mapping[str, Any]] = {"continued": {"limit.historyCount.suggestContinueAsNew": 60}}
"""What the server of a case is configured with."""


def case(function: Case) -> Case:
    """Record this one."""
    CASES[function.__name__] = function  # type: ignore[attr-defined]
    return function


_FLOWS = {"Loop": flows.LOOP, "Retried": flows.RETRIED, "Spinning": flows.SPINNING}


def codes() -> dict[str, Registration]:
    """The code of all workflows that the histories name, as a worker has it at hand."""
    kinds = (
        flows.Spread,
        flows.Endless,
        flows.Waiting,
        flows.Stubborn,
        flows.Failing,
        flows.Child,
        flows.Parent,
        flows.Counting,
        flows.Whole,
        flows.Telling,
    )
    known = {kind.__name__: _code(kind.__name__, kind(timeout=None)) for kind in kinds}
    return {**known, **{name: _code(name, loom.load(document)) for name, document in _FLOWS.items()}}


def _code(name: str, workflow: Workflow) -> Registration:
    return prepared(name, workflow)


def other_codes() -> dict[str, Registration]:
    """The same names, and nothing of what they stood for; a flow is still a flow."""
    other = loom.load({"actions": {"only": {"type": "compose", "inputs": 1}}})
    return {name: _code(name, other if name in _FLOWS else flows.Unlike(timeout=None)) for name in codes()}


async def _run(stage: Stage, run_id: str, workflow: Workflow, **inputs: Any) -> Any:
    async with stage.process(workflow) as runtime:
        return await (await runtime.start(type(workflow).__name__, inputs, run_id=run_id))


async def _until(runtime: TemporalRuntime, run_id: str, what: Callable[[Any], Any]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not what(await runtime.get(run_id)):  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.05)


async def _told(client: Client, run_id: str, event: loom.Event) -> None:
    """Tell a run something by an update, and wait until it is at rest again."""
    record = _code("Whole", flows.Whole(timeout=None)).codec.record(event)
    message = RunMessage(TickAddEvent(at=0.0, event=record, event_id="told", accepted=True))
    handle = client.get_workflow_handle(run_id)
    await handle.execute_update(UPDATE_TELL, RawValue(payload_of(message)), result_type=RawValue)


@case
async def fence(stage: Stage, run_id: str) -> None:
    assert await _run(stage, run_id, flows.Spread(timeout=None), pieces=110, length=2_500) == 110


@case
async def window(stage: Stage, run_id: str) -> None:
    assert await _run(stage, run_id, flows.Spread(timeout=None), pieces=1_020, length=0) == 1_020


@case
async def continued(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Endless(timeout=None)) as runtime:
        handler = await runtime.start("Endless", {"rounds": 50}, run_id=run_id)
        for number in range(8):
            await runtime.send_event(run_id, Answer(text=f"note {number}"), event_id=f"note {number}")
            await asyncio.sleep(0.03)
        assert await handler == 8


@case
async def waiting(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Waiting(timeout=None)) as runtime:
        handler = await runtime.start("Waiting", run_id=run_id)
        await _until(runtime, run_id, lambda info: info.idle_since)
        await runtime.send_event(run_id, Answer(text="red"))
        assert await handler == [17, "red"]


@case
async def retries(stage: Stage, run_id: str) -> None:
    assert await _run(stage, run_id, flows.Stubborn(timeout=60)) == 2


@case
async def failed(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Failing(timeout=None)) as runtime:
        await runtime.start("Failing", run_id=run_id)
        await _until(runtime, run_id, lambda info: info.status == "failed")


@case
async def children(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Parent(timeout=None), flows.Child(timeout=None)) as runtime:
        assert await (await runtime.start("Parent", run_id=run_id)) == [42, "ChildRunFailed"]


@case
async def cancelled(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Waiting(timeout=None)) as runtime:
        await runtime.start("Waiting", run_id=run_id)
        await _until(runtime, run_id, lambda info: info.idle_since)
        await runtime.cancel(run_id)
        await _until(runtime, run_id, lambda info: info.status == "cancelled")


@case
async def cancelled_first(stage: Stage, run_id: str) -> None:
    """A start that nobody has begun, and an answer that nobody has taken, are overtaken by a cancel."""
    waiting = f"{run_id}-waiting"
    async with stage.process(flows.Waiting(timeout=None)) as runtime:
        await runtime.start("Waiting", run_id=waiting)
        await _until(runtime, waiting, lambda info: info.idle_since)
    async with stage.process() as client:
        await client.start("Waiting", run_id=run_id)
        await client.send_event(waiting, Answer(text="too late"))
        for cancelled in (run_id, waiting):
            await client.cancel(cancelled)
        async with stage.process(flows.Waiting(timeout=None)):
            for cancelled in (run_id, waiting):
                await _until(client, cancelled, lambda info: info.status == "cancelled")


@case
async def flow(stage: Stage, run_id: str) -> None:
    async with stage.process(loom.load(flows.LOOP), name="Loop") as runtime:
        assert (await (await runtime.start("Loop", {"number": 5}, run_id=run_id))).status == "Succeeded"


@case
async def store(stage: Stage, run_id: str) -> None:
    assert await _run(stage, run_id, flows.Counting(timeout=None)) == 10


@case
async def updated(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Whole(timeout=None)) as runtime:
        await runtime.start("Whole", run_id=run_id)
        await _until(runtime, run_id, lambda info: info.idle_since)
        await _told(runtime.client, run_id, Answer(text="four"))
        await _until(runtime, run_id, lambda info: info.idle_since)


@case
async def without_code(stage: Stage, run_id: str) -> None:
    async with stage.process() as client:
        await client.start("Spread", {"pieces": 2, "length": 1}, run_id=run_id)
        await client.send_event(run_id, Answer(text="nobody takes it"))
        async with stage.process(flows.Spread(timeout=None)):
            await _until(client, run_id, lambda info: info.status == "completed")


@case
async def other_code(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Whole(timeout=None)) as runtime:
        await runtime.start("Whole", run_id=run_id)
        await _until(runtime, run_id, lambda info: info.idle_since)
    async with stage.process(flows.Halved(timeout=None), name="Whole") as runtime:
        await runtime.send_event(run_id, Answer(text="yes"))
        handler = await runtime.handler(run_id)
        assert await handler == "another way"


@case
async def parked(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Whole(timeout=None)) as runtime:
        await runtime.start("Whole", run_id=run_id)
        await _until(runtime, run_id, lambda info: info.idle_since)
        await runtime.send_event(run_id, Answer(text="four"))
        await _until(runtime, run_id, lambda info: info.active_waiters)
    async with stage.process(flows.Halved(timeout=None), name="Whole") as runtime:
        await runtime.send_event(run_id, Answer(text="late"), waiter_id="end")
        await _until(runtime, run_id, lambda info: info.parked)


@case
async def retried_loop(stage: Stage, run_id: str) -> None:
    async with stage.process(loom.load(flows.RETRIED), name="Retried") as runtime:
        result = await (await runtime.start("Retried", run_id=run_id))
        for _ in range(2):
            assert result.status == "Failed"
            await runtime.retry(run_id)
            await _until(runtime, run_id, lambda info: info.status != "running")
            result = await (await runtime.handler(run_id))
        assert result.status == "Succeeded"


@case
async def spinning_retry(stage: Stage, run_id: str) -> None:
    async with stage.process(loom.load(flows.SPINNING), name="Spinning") as runtime:
        assert (await (await runtime.start("Spinning", run_id=run_id))).actions["spin"].outputs == 6


async def _told_twice(stage: Stage, run_id: str, *tokens: int) -> None:
    flows.Telling.tokens = list(tokens)
    async with stage.process(flows.Telling(timeout=None)) as runtime:
        await runtime.start("Telling", run_id=run_id)
        await _until(runtime, run_id, lambda info: info.idle_since)
        await runtime.send_event(run_id, Answer(text="yes"))
        await _until(runtime, run_id, lambda info: info.parked or info.status != "running")
        assert flows.Telling.tokens == []


@case
async def repeated_stream(stage: Stage, run_id: str) -> None:
    await _told_twice(stage, run_id, 3, 3)


@case
async def repeated_stream_of_other_length(stage: Stage, run_id: str) -> None:
    await _told_twice(stage, run_id, 3, 5)


@case
async def wrong_answer(stage: Stage, run_id: str) -> None:
    """Recorded where an answer that does not fit its class failed the run, and a retry repeated that."""
    wrong = stand_in("temporal_workflows.Answer")(colour="red")
    async with stage.process(flows.Waiting(timeout=None)) as runtime, stage.process() as client:
        await runtime.start("Waiting", run_id=run_id)
        await _until(runtime, run_id, lambda info: info.idle_since)
        await client.send_event(run_id, wrong)
        await _until(runtime, run_id, lambda info: info.status == "failed")
        await runtime.retry(run_id)
        await _until(runtime, run_id, lambda info: info.status == "running")
        await _until(runtime, run_id, lambda info: info.status == "failed")
