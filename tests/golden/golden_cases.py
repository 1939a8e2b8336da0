"""What happens to the recorded runs: each case drives one run, by the name of the case, under the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import golden_workflows as flows
from golden_workflows import Answer

import loom
from loom import Workflow
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.stand_ins import stand_in
from loom.store.memory import MemoryDatabase, MemoryStore


class Stage:
    """A database, and processes that work on it one after the other."""

    def __init__(self) -> None:
        self.database = MemoryDatabase()

    def process(self, *workflows: Workflow, name: str = "", idle_timeout: float | None = 1.0) -> DurableRuntime:
        """A process that works for workflows, under the names of their classes or under the given one."""
        runtime = loom.connect(MemoryStore(self.database), idle_timeout=idle_timeout, name="golden")
        for workflow in workflows:
            runtime.register(workflow, name=name or type(workflow).__name__)
        return runtime


Case = Callable[[Stage, str], Awaitable[None]]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Record this one."""
    CASES[function.__name__] = function  # type: ignore[attr-defined]
    return function


async def _run(stage: Stage, run_id: str, workflow: Workflow, **inputs: object) -> object:
    async with stage.process(workflow) as runtime:
        return await (await runtime.start(type(workflow).__name__, inputs, run_id=run_id))


@case
async def sequential(stage: Stage, run_id: str) -> None:
    assert await _run(stage, run_id, flows.Chain(), topic="looms") == [1, 2]


@case
async def fan_out_join(stage: Stage, run_id: str) -> None:
    assert await _run(stage, run_id, flows.FanOut(), parts=6) == [0, 1, 2, 4, 5]


@case
async def retries(stage: Stage, run_id: str) -> None:
    assert await _run(stage, run_id, flows.Stubborn(timeout=None)) == 2


@case
async def waiter_timeout_and_release(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Patient(timeout=None)) as runtime:
        handler = await runtime.start("Patient", run_id=run_id)
        await asyncio.sleep(4000)
        await runtime.send_event(run_id, Answer(text="no", about="a"), event_id="one")
        await runtime.send_event(run_id, Answer(text="no", about="a"), event_id="one")
        await asyncio.sleep(10)
        await runtime.send_event(run_id, Answer(text="yes", about="b"))
        assert await handler == "yes"
        assert runtime.figures["released"] >= 2


@case
async def unfinished(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Patient(timeout=None)) as runtime:
        await runtime.start("Patient", run_id=run_id, tags={"kind": "golden"})
        await asyncio.sleep(10)
    async with stage.process() as client:
        await client.send_event(run_id, Answer(text="late", about="b"), waiter_id="which", event_id="one")


@case
async def sleep(stage: Stage, run_id: str) -> None:
    assert await _run(stage, run_id, flows.Sleeper(timeout=10_000)) == "rested"


@case
async def collect_events(stage: Stage, run_id: str) -> None:
    assert await _run(stage, run_id, flows.Collector()) == [1, 0, 3, 2]


@case
async def catch_error(stage: Stage, run_id: str) -> None:
    assert await _run(stage, run_id, flows.Careful()) == 2


@case
async def pause_and_resume(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.FanOut(timeout=None)) as runtime:
        handler = await runtime.start("FanOut", {"parts": 5}, run_id=run_id)
        await asyncio.sleep(2)
        await runtime.pause(run_id)
        await asyncio.sleep(100)
        assert (await runtime.get(run_id)).paused
        await runtime.resume(run_id)
        assert await handler == [0, 1, 2, 4]


@case
async def retry_of_a_failed_run(stage: Stage, run_id: str) -> None:
    flows.Mended.broken = True
    async with stage.process(flows.Mended(timeout=None)) as runtime:
        handler = await runtime.start("Mended", run_id=run_id)
        try:
            await handler
        except RuntimeError:
            flows.Mended.broken = False
        await runtime.retry(run_id)
        assert await (await runtime.handler(run_id)) == 2


@case
async def once(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Billed(timeout=300)) as runtime:
        await runtime.start("Billed", run_id=run_id)
        await asyncio.sleep(5)
    await asyncio.sleep(1000)  # nobody is alive: the run's timeout does not count it
    async with stage.process(flows.Billed(timeout=300)) as runtime:
        assert await (await runtime.handler(run_id)) == 17


@case
async def child_run(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Parent(), flows.Chain()) as runtime:
        handler = await runtime.start("Parent", run_id=run_id)
        assert await handler == ["child", [1, 2]]


@case
async def parked_and_back(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Whole(timeout=None)) as runtime:
        await runtime.start("Whole", run_id=run_id)
        await runtime.send_event(run_id, Answer(text="four"))
        await asyncio.sleep(10)
    async with stage.process(flows.Halved(timeout=None), name="Whole") as runtime:
        await asyncio.sleep(100)
        assert (await runtime.get(run_id)).parked
    async with stage.process(flows.Whole(timeout=None)) as runtime:
        assert await (await runtime.handler(run_id)) == 4


@case
async def multi_slot_join(stage: Stage, run_id: str) -> None:
    assert await _run(stage, run_id, flows.Cross()) == "blue on red"


@case
async def kept_events(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Late(timeout=None)) as runtime:
        handler = await runtime.start("Late", run_id=run_id)
        await runtime.send_event(run_id, Answer(text="a"))
        await runtime.send_event(run_id, Answer(text="b"), waiter_id="second")
        await asyncio.sleep(10)
        assert (await runtime.get(run_id)).kept_events == 2
        assert await handler == ["a", "b"]


@case
async def cancelled(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.FanOut(timeout=None)) as runtime:
        await runtime.start("FanOut", {"parts": 3}, run_id=run_id)
        await asyncio.sleep(1.5)
        await runtime.cancel(run_id)
        await asyncio.sleep(1)
        assert (await runtime.get(run_id)).status == "cancelled"


@case
async def timed_out(stage: Stage, run_id: str) -> None:
    async with stage.process(flows.Patient(timeout=60)) as runtime:
        await runtime.start("Patient", run_id=run_id)
        await asyncio.sleep(100)
        assert (await runtime.get(run_id)).status == "failed"


async def _told_twice(stage: Stage, run_id: str, *tokens: int) -> None:
    flows.Telling.tokens = list(tokens)
    async with stage.process(flows.Telling(timeout=None)) as runtime:
        await runtime.start("Telling", run_id=run_id)
        await asyncio.sleep(10)
        assert runtime.figures["released"] == 1
        await runtime.send_event(run_id, Answer(text="yes"))
        await asyncio.sleep(10)
        assert flows.Telling.tokens == []


@case
async def repeated_stream(stage: Stage, run_id: str) -> None:
    await _told_twice(stage, run_id, 3, 3)


@case
async def repeated_stream_of_other_length(stage: Stage, run_id: str) -> None:
    await _told_twice(stage, run_id, 3, 5)


@case
async def unfinished_stream(stage: Stage, run_id: str) -> None:
    flows.Telling.tokens = [3]
    async with stage.process(flows.Telling(timeout=None)) as runtime:
        await runtime.start("Telling", run_id=run_id)
        await asyncio.sleep(10)
    async with stage.process() as client:
        await client.send_event(run_id, Answer(text="yes"))


@case
async def wrong_answer(stage: Stage, run_id: str) -> None:
    """Recorded where an answer that does not fit its class failed the run, and a retry repeated that."""
    wrong = stand_in("golden_workflows.Answer")(about="b")
    async with stage.process(flows.Patient(timeout=None)) as runtime, stage.process() as client:
        await runtime.start("Patient", run_id=run_id)
        await asyncio.sleep(10)
        await client.send_event(run_id, wrong)
        await asyncio.sleep(10)
        assert (await runtime.get(run_id)).status == "failed"
        await runtime.retry(run_id)
        await asyncio.sleep(10)
        assert (await runtime.get(run_id)).status == "failed"


@case
async def wrong_answer_to_a_step(stage: Stage, run_id: str) -> None:
    """The same, where a step takes such events."""
    wrong = stand_in("golden_workflows.Answer")(about="b")
    async with stage.process(flows.Whole(timeout=None)) as runtime, stage.process() as client:
        await runtime.start("Whole", run_id=run_id)
        await asyncio.sleep(10)
        await client.send_event(run_id, wrong)
        await asyncio.sleep(10)
        assert (await runtime.get(run_id)).status == "failed"
        await runtime.retry(run_id)
        await asyncio.sleep(10)
        assert (await runtime.get(run_id)).status == "failed"
