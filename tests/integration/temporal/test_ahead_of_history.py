"""A query reaches a worker before the task that the run waits for. The worker must not get ahead of the history.

Nothing is killed here: the worker that has the run in memory is cut off from the network, so that the next task waits
for it a little longer than the query does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from temporal_server import session_server
from temporal_wire import Wire
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle, WorkflowHistory, WorkflowQueryFailedError
from temporalio.converter import DataConverter, PayloadCodec
from temporalio.worker import Replayer, Worker

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.registration import Registration, prepared
from loom.temporal.activity.step_activity import make_activity
from loom.temporal.address import parse_address
from loom.temporal.plugin import LoomPlugin
from loom.temporal.store import TemporalStore
from loom.temporal.workflow.runner import LoomHost, LoomRunner

STICKY_S = 1.0
ARRIVES_S = 0.4
"""How long a call to a server on this machine takes at the most, as a rule. If not, the scene is played again."""
TRIES = 5


class Reversed(PayloadCodec):
    """Stands for encryption: nobody but its owner can read a payload."""

    async def encode(self, payloads: Iterable[Payload]) -> list[Payload]:
        return [Payload(metadata={"encoding": b"reversed"}, data=p.SerializeToString()[::-1]) for p in payloads]

    async def decode(self, payloads: Iterable[Payload]) -> list[Payload]:
        return [Payload.FromString(p.data[::-1]) if p.metadata["encoding"] == b"reversed" else p for p in payloads]


class Mail(HumanResponseEvent):
    n: int


class Done(Event):
    pass


class Read(Event):
    pass


class Box(Workflow):
    """Mail and the end of the first step lead to different steps. Their order is the order of the commands."""

    go: asyncio.Event

    @step
    async def begin(self, ev: StartEvent) -> Done:
        await Box.go.wait()
        return Done()

    @step(num_workers=4)
    async def read(self, ev: Mail) -> Read:
        return Read()

    @step
    async def after(self, ev: Done) -> Read:
        return Read()

    @step
    async def end(self, ctx: Context, ev: Read) -> StopEvent | None:
        return None if ctx.collect_events(ev, [Read] * 3) is None else StopEvent(result="read")


@dataclass
class Scene:
    """What came of one query before its task."""

    answer: str
    """What the query told; empty if it was answered."""
    result: Any
    history: WorkflowHistory

    @property
    def was_early(self) -> bool:
        """Whether the query had found the task still waiting for the worker that was cut off."""
        kinds = [event.event_type for event in self.history.events]
        return EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT in kinds


def codes_of_box() -> dict[str, Registration]:
    box = Box(timeout=None)
    return {"box": prepared("box", box)}


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    """Let a worker work. One that is cut off does not end by itself."""
    polling = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)


async def has_begun(run: WorkflowHandle[Any, Any]) -> None:
    """Wait until the task that has scheduled the first step is completed."""
    while True:
        kinds = [event.event_type for event in (await run.fetch_history()).events]
        if EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED in kinds:
            return
        await asyncio.sleep(0.05)


async def play(run_id: str) -> Scene:
    """Ask for a run whose worker is cut off, let its step end and mail come, and let the next worker go on."""
    server, Box.go = session_server(), asyncio.Event()
    namespace = server.fresh_namespace(attributes=False)
    wire, codes = Wire(server.target), codes_of_box()
    converter = replace(DataConverter.default, payload_codec=Reversed())
    await wire.open()
    there = await Client.connect(wire.target, namespace=namespace, data_converter=converter)
    here, beside = [
        await Client.connect(server.target, namespace=namespace, data_converter=converter) for _ in range(2)
    ]
    sticky = timedelta(seconds=STICKY_S)
    first = Worker(
        there,
        task_queue="loom",
        workflows=[LoomHost],
        unsandboxed_workflow_runner=LoomRunner(codes),
        build_id="loom",
        sticky_queue_schedule_to_start_timeout=sticky,
    )
    bodies = Worker(here, task_queue="loom", activities=[make_activity(codes, here)], build_id="loom")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(wire.close)
        url = f"temporal://{server.target}/{namespace}?task_queue=loom"
        client = await stack.enter_async_context(loom.connect(TemporalStore(parse_address(url), here)))
        await stack.enter_async_context(running(bodies))
        await stack.enter_async_context(running(first))
        handler = await client.start("box", {}, run_id=run_id)
        run = here.get_workflow_handle(run_id)
        await has_begun(run)
        wire.cut()
        second = Worker(
            beside,
            task_queue="loom",
            workflows=[],
            plugins=[LoomPlugin({"box": Box(timeout=None)})],
            build_id="loom",
            sticky_queue_schedule_to_start_timeout=sticky,
        )
        await stack.enter_async_context(running(second))
        asked = asyncio.create_task(run.query("loom.row", rpc_timeout=timedelta(seconds=20)))
        await asyncio.sleep(ARRIVES_S)  # the query waits at the server for the worker that is gone
        Box.go.set()
        (answer,) = await asyncio.gather(asked, return_exceptions=True)
        for n in (1, 2):
            await run.signal("Mail", {"n": n})
        assert (await client.get(run_id)).status in ("running", "completed")  # Loom's own clients ask again
        result = await asyncio.wait_for(handler, 60)
        history = await run.fetch_history()
    if isinstance(answer, BaseException) and not isinstance(answer, WorkflowQueryFailedError):
        raise answer
    return Scene(str(answer) if isinstance(answer, WorkflowQueryFailedError) else "", result, history)


async def test_a_query_before_the_task_does_not_change_what_the_task_decides() -> None:
    replayer = Replayer(
        workflows=[],
        plugins=[LoomPlugin({"box": Box(timeout=None)})],
        data_converter=replace(DataConverter.default, payload_codec=Reversed()),
    )
    for number in itertools.count(1):
        scene = await play(f"run-{number}")
        assert scene.result == "read"
        replayed = await replayer.replay_workflow(scene.history, raise_on_replay_failure=False)
        assert replayed.replay_failure is None
        if scene.was_early and scene.answer:
            assert scene.answer.startswith("loom.AskAgain: Please ask again: this worker has seen events of the run")
            return
        assert number < TRIES, "no query came before its task"
