"""A runtime over a real Temporal server: when it works, what it tells those who wait, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from temporal_server import fresh_temporal_url, session_server

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.state import specs_of
from loom.core.ticks import TickParkRun
from loom.runtime.durable.schedules import ScheduleNotFound
from loom.runtime.durable.worker import WorkerRuntime
from loom.store.codec import encode_tick
from loom.store.errors import StoreError, StoreUnavailable
from loom.store.operations import PostMessage
from loom.store.records import RunQuery, RunRow
from loom.temporal.client.visibility import Candidate, Visibility
from loom.temporal.runtime import TemporalRuntime
from loom.temporal.store import TemporalStore


class Greeting(Workflow):
    @step
    async def greet(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=f"hello {ev.name}")


class Parting(Workflow):
    @step
    async def part(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="bye")


class Waiting(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> None:
        ctx.write_event_to_stream(Event(asked=True))

    @step
    async def hear(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=ev.response)


class Held(Workflow):
    """Its step goes on only where it is let."""

    def __init__(self, gate: asyncio.Event, begun: asyncio.Event) -> None:
        super().__init__(timeout=None)
        self._gate, self._begun = gate, begun

    @step
    async def hold(self, ev: StartEvent) -> StopEvent:
        self._begun.set()
        await self._gate.wait()
        return StopEvent(result="held")


@pytest.fixture
def url() -> str:
    return fresh_temporal_url()


@asynccontextmanager
async def at_work(url: str, workflows: dict[str, Workflow], **options: Any) -> AsyncIterator[WorkerRuntime]:
    async with loom.connect(url, **options) as runtime:
        for name, workflow in workflows.items():
            runtime.register(workflow, name)
        await runtime.ready()
        yield runtime


async def until_idle(runtime: WorkerRuntime, run_id: str) -> None:
    while (await runtime.get(run_id)).idle_since is None:  # noqa: ASYNC110 - the cluster tells nobody
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("cached", [0, 1000])
async def test_a_run_goes_to_its_end(url: str, cached: int) -> None:
    async with at_work(url, {"greeting": Greeting()}, max_cached_workflows=cached) as runtime:
        handler = await runtime.start("greeting", {"name": "you"}, run_id="one")
        assert await handler == "hello you"
        assert (await runtime.get("one")).status == "completed"
        # The same start again is the same run, whose end is at hand.
        assert await (await runtime.start("greeting", {"name": "you"}, run_id="one")) == "hello you"


async def test_what_is_registered_later_needs_no_other_worker(url: str) -> None:
    async with at_work(url, {"greeting": Greeting()}) as runtime:
        assert await (await runtime.start("greeting", {"name": "you"})) == "hello you"
        runtime.register(Parting(), "parting")
        assert await (await runtime.start("parting")) == "bye"


async def test_a_client_leaves_the_work_to_others_and_hears_of_the_end(url: str) -> None:
    async with loom.connect(url) as client:
        handler = await client.start("greeting", {"name": "you"}, run_id="one")
        end = asyncio.ensure_future(handler)
        async with at_work(url, {"greeting": Greeting()}):
            async with asyncio.timeout(60):
                assert await end == "hello you"


async def test_an_event_moves_a_run_and_readers_see_it(url: str) -> None:
    async with at_work(url, {"waiting": Waiting()}) as runtime:
        handler = await runtime.start("waiting", run_id="one")
        stream = handler.stream_events()
        assert (await anext(stream)).get("asked") is True
        assert await runtime.send_event("one", HumanResponseEvent(response="yes"), event_id="answer")
        assert not await runtime.send_event("one", HumanResponseEvent(response="yes"), event_id="answer")
        assert await handler == "yes"


async def test_steps_under_way_when_a_process_stops_run_again_in_the_next(url: str) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()
    async with loom.connect(url) as client:
        async with at_work(url, {"held": Held(gate, begun)}, grace=0.0, retry_interval=0.1):
            handler = await client.start("held", run_id="one")
            await begun.wait()
        gate.set()
        async with at_work(url, {"held": Held(gate, begun)}):
            assert await handler == "held"


async def test_who_waits_is_told_when_the_runtime_is_closed(url: str) -> None:
    async with at_work(url, {"waiting": Waiting()}) as runtime:
        handler = await runtime.start("waiting", run_id="one")
        end = asyncio.ensure_future(handler)
        await until_idle(runtime, "one")
        await runtime.close()
        with pytest.raises(StoreError, match=r"closed|not open"):
            await end


async def test_a_worker_that_has_ended_begins_anew(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with at_work(url, {"greeting": Greeting()}) as runtime:
        await runtime._worker.shutdown()  # type: ignore[attr-defined]
        assert await (await runtime.start("greeting", {"name": "you"})) == "hello you"
    assert "has ended, and begins anew" in caplog.text


class Said(HumanResponseEvent):
    pass


class Older(Workflow):
    @step
    async def ask(self, ev: StartEvent) -> None:
        return None

    @step
    async def hear(self, ev: HumanResponseEvent) -> StopEvent | None:
        return StopEvent(result="old") if ev.response == "stop" else None


class Newer(Older):
    @step
    async def listen(self, ev: Said) -> StopEvent:
        return StopEvent(result="new")


async def test_a_run_is_told_of_the_code_that_is_at_hand(url: str) -> None:
    async with loom.connect(url) as client:
        async with at_work(url, {"asking": Older()}):
            handler = await client.start("asking", run_id="one")
            await until_idle(client, "one")
        async with at_work(url, {"asking": Newer()}):
            await client.send_event("one", HumanResponseEvent(response="go on"))
            while "listen" not in specs_of((await client.state_at("one")).config):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            await client.send_event("one", Said())
            assert await handler == "new"


async def test_a_parked_run_that_is_not_to_be_found_at_first_is_tried_a_little_later(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loom.temporal.runtime._PARKED_LOOKS_S", ())  # the first one shall not find it
    async with at_work(url, {"waiting": Waiting()}) as runtime:
        await runtime.start("waiting", run_id="one")
        await until_idle(runtime, "one")
        tick = encode_tick(TickParkRun(at=runtime.now(), reason="its code was lost"))
        await runtime.committer.submit(PostMessage("one", tick, runtime.now()))
        while not [run async for run in runtime.list(parked=True)]:  # noqa: ASYNC110 - the cluster tells nobody
            await asyncio.sleep(0.02)
    looks, tried, found_by, asked = 0, asyncio.Event(), TemporalStore.find, TemporalRuntime._has_grown

    async def find(store: TemporalStore, query: RunQuery) -> list[RunRow]:
        nonlocal looks
        looks += 1
        return await found_by(store, query) if looks > 1 else []

    def has_grown(runtime: TemporalRuntime, run_id: str, ticks: int) -> None:
        asked(runtime, run_id, ticks)
        tried.set()

    monkeypatch.setattr(TemporalStore, "find", find)
    monkeypatch.setattr(TemporalRuntime, "_has_grown", has_grown)
    monkeypatch.setattr("loom.temporal.runtime._PARKED_LOOKS_S", (0.0, *[0.1] * 300))
    async with at_work(url, {"waiting": Waiting()}):
        await asyncio.wait_for(tried.wait(), 60)
    assert looks > 1


async def test_a_run_that_another_worker_parks_later_is_tried_too(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.temporal.runtime._PARKED_LOOKS_S", ())
    monkeypatch.setattr("loom.temporal.runtime._PARKED_AGAIN_S", 0.05)
    async with at_work(url, {"waiting": Waiting()}) as runtime:
        await runtime.start("waiting", run_id="one")
        await until_idle(runtime, "one")
        tick = encode_tick(TickParkRun(at=runtime.now(), reason="an old worker has no such step"))
        await runtime.committer.submit(PostMessage("one", tick, runtime.now()))
        await until_idle(runtime, "one")


async def test_what_another_process_has_scheduled_just_now_is_known_before_it_is_listed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing_yet(_visibility: Visibility, _where: str) -> AsyncIterator[Candidate]:
        for never in ():
            yield never

    async with at_work(url, {"greeting": Greeting()}) as one, loom.connect(url) as other:
        monkeypatch.setattr(Visibility, "listed", nothing_yet)
        await one.schedule("a", "greeting", every=3600)
        assert (await other.schedule("a", "greeting", every=1800)).recurrence["interval"] == 1800
        async with loom.connect(url) as third:
            await third.unschedule("a")
            with pytest.raises(ScheduleNotFound):
                await third.unschedule("a")


async def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreUnavailable, match=r"temporal://127\.0\.0\.1:1/nowhere"):
        async with loom.connect("temporal://127.0.0.1:1/nowhere"):
            pass


async def test_a_namespace_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        async with at_work(f"temporal://{session_server().target}/nowhere", {"greeting": Greeting()}):
            pass


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heartbeat_timeout": 0}, "heartbeat_timeout must be greater than 0"),
        ({"grace": -1.0}, "grace must not be negative"),
        ({"max_steps": 0}, "max_steps must be at least 1"),
        ({"max_cached_workflows": -1}, "max_cached_workflows must be at least 0"),
        ({"lease": 0}, "lease must be greater than 0"),
        ({"encryption_keys": "k:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}, "payload codec of Temporal's"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        loom.connect("temporal://localhost", **options)


def test_options_about_runs_in_memory_are_taken() -> None:
    loom.connect("temporal://localhost", idle_timeout=1.0, lease=3.0, max_in_memory=10, retention=5.0, prune=True)
