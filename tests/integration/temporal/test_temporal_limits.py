"""Limits, on a real server: what is too large or cannot be read fails where it belongs, and holds nobody up."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from temporal_samples import BIG, WIDE, Talk, Text, Wide, Word
from temporal_server import fresh_temporal_url

import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.core.state import BrokerConfig
from loom.runtime.verification import replayed_run
from loom.steps.workflow import StepsDefinition


class Heavy(Workflow):
    """More comes together for one step than the server takes for it."""

    @step
    async def begin(self, ev: StartEvent) -> list[Text]:
        return [Text(text="x" * 700_000) for _ in range(4)]

    @step
    async def join(self, ev: list[Text]) -> StopEvent:
        return StopEvent(result=len(ev))


class Above(Workflow):
    """Wants to know how its child ended."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            return StopEvent(result=await ctx.run_child(ev.child))
        except Exception as error:  # noqa: BLE001 - whatever it is, its words are the result
            return StopEvent(result=str(error))


class Bulky(Workflow):
    """Its result is too large, but each of its parts is not."""

    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result="x" * 1_850_000)


async def test_a_join_of_more_than_the_server_takes_fails_in_words() -> None:
    async with loom.connect(fresh_temporal_url()) as runtime:
        runtime.register(Heavy(timeout=None), name="heavy")
        handler = await runtime.start("heavy", run_id="a")
        async with asyncio.timeout(60):
            with pytest.raises(Exception, match="2 MiB"):
                await handler
        events = [event async for event in handler.stream_events(expose_internal=True, after=-1)]
        assert len(events) == (await runtime.get("a")).events
        assert (await replayed_run(runtime, "a")).replay == "same"


async def test_a_parent_hears_of_a_child_that_could_not_tell_its_result() -> None:
    async with loom.connect(fresh_temporal_url()) as runtime:
        runtime.register(Above(timeout=None), name="above")
        runtime.register(Bulky(timeout=None), name="bulky")
        async with asyncio.timeout(60):
            assert "2 MiB" in await (await runtime.start("above", {"child": "bulky"}))


async def test_a_signal_that_nobody_can_read_holds_nobody_up() -> None:
    async with loom.connect(fresh_temporal_url()) as runtime:
        runtime.register(Talk(timeout=None), name="talk")
        handler = await runtime.start("talk", {"words": 1}, run_id="a")
        for name in ("loom.mail", "loom.effects", "loom.lock", "loom.code"):
            await runtime.client.get_workflow_handle("a").signal(name, {"non": "sense"})
        await runtime.send_event("a", Word(n=7))
        async with asyncio.timeout(60):
            assert await handler == [7]


async def test_a_signal_that_does_not_fit_its_event_is_refused_and_the_wait_goes_on() -> None:
    async with loom.connect(fresh_temporal_url()) as runtime:
        runtime.register(Talk(timeout=None), name="talk")
        handler = await runtime.start("talk", {"words": 1}, run_id="a")
        async with asyncio.timeout(60):
            while not (await runtime.get("a")).idle_since:  # noqa: ASYNC110 - a cluster is asked, and tells nobody
                await asyncio.sleep(0.01)
            await runtime.client.get_workflow_handle("a").signal("Word", {"n": "many"})
            while not any("refused" in one for one in (await runtime.get("a")).active_waiters):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
            await runtime.client.get_workflow_handle("a").signal("Word", {"n": 7})
            assert await handler == [7]
        assert (await replayed_run(runtime, "a")).differences == []


async def test_a_run_that_left_in_parts_replays() -> None:
    async with loom.connect(fresh_temporal_url()) as runtime:
        runtime.register(Wide(timeout=None), name="wide")
        async with asyncio.timeout(60):
            assert await (await runtime.start("wide", run_id="a")) == WIDE * BIG
        assert (await replayed_run(runtime, "a")).differences == []


class Unasked(Event):
    """Nothing takes it, so it is kept."""


class PatientDefinition(StepsDefinition):
    def config(self, *, stored: bool = False) -> BrokerConfig:
        return replace(super().config(stored=stored), keep_unclaimed=2)


class Patient(Workflow):
    """Keeps two early events."""

    def _make_definition(self) -> StepsDefinition:
        return PatientDefinition(self)

    @step
    async def wait(self, ev: Word) -> StopEvent:
        return StopEvent()

    @step
    async def begin(self, ev: StartEvent) -> None:
        return None


async def test_no_event_is_lost_that_was_acknowledged_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.runtime.durable.run_client._KEEP_UNCLAIMED", 2)
    async with loom.connect(fresh_temporal_url()) as runtime:
        runtime.register(Patient(timeout=None), name="patient")
        await runtime.start("patient", run_id="a")
        async with asyncio.timeout(60):
            sent = await asyncio.gather(*(runtime.send_event("a", Unasked()) for _ in range(5)), return_exceptions=True)
            acknowledged = [answer for answer in sent if answer is True]
            assert len(acknowledged) >= 2
            assert (await runtime.get("a")).kept_events == len(acknowledged)
            with pytest.raises(loom.StoreError, match="keeps"):
                await runtime.send_event("a", Unasked())
