"""Loom workflows on a worker that somebody has already: beside ordinary ones, by the plugin alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporal_ordinary import Ordinary, double
from temporal_samples import Talk, Word
from temporal_server import fresh_temporal_url
from temporalio.client import Client
from temporalio.worker import Replayer, Worker

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.state import specs_of
from loom.steps.events import WorkflowIdleEvent
from loom.temporal.plugin import LoomPlugin


class Said(HumanResponseEvent):
    word: str = ""


class Hearing(Workflow):
    """Takes a word from outside."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> None:
        await ctx.store.set("begun", True)

    @step
    async def hear(self, ev: Said) -> StopEvent:
        return StopEvent(result=f"heard {ev.word}")


class Listening(Workflow):
    """The same after a change: the step that takes the word has another name."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> None:
        await ctx.store.set("begun", True)

    @step
    async def listen(self, ev: Said) -> StopEvent:
        return StopEvent(result=f"listened to {ev.word}")


@asynccontextmanager
async def worker_of(client: Client, plugin: LoomPlugin) -> AsyncIterator[None]:
    async with Worker(client, task_queue="loom", workflows=[Ordinary], activities=[double], plugins=[plugin]):
        yield


async def test_loom_runs_live_beside_ordinary_workflows_and_replay_by_the_plugin() -> None:
    async with loom.connect(fresh_temporal_url()) as runtime:  # a client: nothing is registered here
        client, plugin = runtime.client, LoomPlugin({"talk": Talk(timeout=None)})
        async with worker_of(client, plugin), asyncio.timeout(60):
            handler = await runtime.start("talk", {"words": 1}, run_id="a")
            assert await client.execute_workflow(Ordinary.run, 21, id="o", task_queue="loom") == 42
            await runtime.send_event("a", Word(n=3))
            assert await handler == [3]
        replayer = Replayer(workflows=[Ordinary], plugins=[plugin])
        for run_id in ("a", "o"):
            await replayer.replay_workflow(await client.get_workflow_handle(run_id).fetch_history())


async def test_a_run_is_told_of_the_code_that_a_plugin_brings() -> None:
    async with loom.connect(fresh_temporal_url()) as runtime:
        async with worker_of(runtime.client, LoomPlugin({"hear": Hearing(timeout=None)})), asyncio.timeout(60):
            handler = await runtime.start("hear", run_id="a")
            async for event in handler.stream_events(expose_internal=True):
                if isinstance(event, WorkflowIdleEvent):
                    break
        async with worker_of(runtime.client, LoomPlugin({"hear": Listening(timeout=None)})), asyncio.timeout(60):
            await runtime.pause("a")  # whoever takes this in sees that the code has changed
            while "listen" not in specs_of((await runtime.state_at("a")).config):  # noqa: ASYNC110 - nobody tells it
                await asyncio.sleep(0.02)
            await runtime.resume("a")
            await runtime.send_event("a", Said(word="first"))
            assert await handler == "listened to first"
