"""Journals: ticks as text and back, and runs restored from snapshots and journals."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, Field

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.adapter import RunAdapterDecorator
from loom.core.invariants import violations
from loom.core.records import Failure
from loom.core.state import BrokerConfig, BrokerState, StepSpec
from loom.core.ticks import (
    CollectCall,
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickCancelRun,
    TickEditStore,
    TickEndWait,
    TickLeaveStep,
    TickPublishEvent,
    TickResume,
    TickSkip,
    TickSleep,
    TickStartRun,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
    WorkflowTick,
)
from loom.effects.event_codec import exception_of, failure_of, record_of
from loom.runtime.journal import JournalCodec
from loom.runtime.memory import BasicRuntime, JournalRecord
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.steps.serializers import JsonSerializer
from loom.steps.state_store import DictState, UnserializableKeyWarning
from loom.testing import run_virtual


class Parcel(Event):
    weight: int


class Typed(BaseModel):
    since: datetime | None = None
    parcels: list[Parcel] = []
    handle: Any = Field(default=None, exclude=True)


SOURCE = Source("pack", 3, 7, 1)
PARCEL = record_of(Parcel(weight=2, note="fragile"))
CONFIG = BrokerConfig("shop", (StepSpec("pack", (PARCEL.kind.name,), num_workers=2, slots=(("a", ("x",)),)),), 45.0)


def codec(state_type: type[BaseModel] = DictState, serializer: JsonSerializer | None = None) -> JournalCodec:
    return JournalCodec(serializer or JsonSerializer(), state_type)


@pytest.mark.parametrize(
    "tick",
    [
        TickStartRun(at=1.5, run_id="r", config=CONFIG, event=record_of(StartEvent(a=1)), seed=9, store={"k": [1, {}]}),
        TickStartRun(at=1.5, run_id="r", config=BrokerConfig("w")),
        TickResume(at=2.0, away_s=0.25, config=CONFIG),
        TickAddEvent(at=3.0, more=True, event=PARCEL, step="pack", waiter_id="w", event_id="e", source=SOURCE),
        TickStepResult(
            at=4.0,
            step="pack",
            item=3,
            seq=7,
            returned=(PARCEL, PARCEL),
            fanned_out=True,
            collects=(CollectCall("default", PARCEL, (("x", 2),), True, 0, 4),),
        ),
        TickStepResult(at=4.0, step="pack", item=3, seq=7, failure=Failure("builtins.OSError", "x"), retry_delay_s=0.5),
        TickPublishEvent(at=5.0, event=PARCEL, source=SOURCE),
        TickAwaitEvent(
            at=6.0,
            source=SOURCE,
            waiter_id="w",
            occurrence=1,
            event_type="t",
            requirements=(("weight", 2), ("parcel", Parcel(weight=1))),
            timeout_s=3.0,
            waiter_event=PARCEL,
            suspends=False,
        ),
        TickSleep(at=7.0, source=SOURCE, occurrence=0, delay_s=3600.0),
        TickEndWait(at=8.0, step="pack", item=3, seq=7, key="k"),
        TickLeaveStep(at=8.5, step="pack", item=3, seq=7, pending=("k", "l")),
        TickEditStore(at=9.0, base_version=4, changed={"a": Parcel(weight=1), "b": 0}, removed=("c",), source=SOURCE),
        TickTimerFired(at=10.0, timer=4),
        TickTimeout(at=11.0, timer=5),
        TickCancelRun(at=12.0, reason="enough"),
        TickSkip(at=13.0, timer=4),
        TickSkip(at=13.0),
    ],
    ids=lambda tick: type(tick).__name__,
)
def test_tick_comes_back_as_it_was(tick: WorkflowTick) -> None:
    text = codec().encode(tick)
    json.loads(text)
    assert codec().decode(text) == tick


def test_event_keeps_its_kind_and_its_extra_values() -> None:
    read = codec().decode(codec().encode(TickAddEvent(at=1.0, event=PARCEL)))
    assert isinstance(read, TickAddEvent)
    assert read.event.kind is PARCEL.kind
    assert read.event.body.note == "fragile"


def test_exception_comes_back_as_its_class() -> None:
    tick = TickStepResult(at=1.0, step="s", item=1, seq=1, failure=failure_of(KeyError("lost")))
    read = codec().decode(codec().encode(tick))
    assert isinstance(read, TickStepResult)
    assert read.failure is not None
    error = exception_of(read.failure)
    assert type(error) is KeyError
    assert str(error) == "'lost'"


def test_fields_of_a_typed_state_come_back_as_their_types() -> None:
    moment = datetime(2030, 1, 2, 3, 4, tzinfo=UTC)
    tick = TickEditStore(
        at=1.0, base_version=0, changed={"since": moment, "parcels": [Parcel(weight=3)], "handle": object()}
    )
    read = codec(Typed).decode(codec(Typed).encode(tick))
    assert isinstance(read, TickEditStore)
    assert read.changed == {"since": moment, "parcels": [Parcel(weight=3)]}, "a live handle belongs to no stored form"


def test_state_value_without_a_text_form_is_named() -> None:
    with pytest.raises(ValueError, match="Failed to serialize state value for key lock"):
        codec().encode(TickEditStore(at=1.0, base_version=0, changed={"lock": object()}))


def test_memory_of_an_agent_is_left_out_with_a_warning() -> None:
    with pytest.warns(UnserializableKeyWarning, match="memory"):
        text = codec().encode(TickEditStore(at=1.0, base_version=0, changed={"memory": object(), "a": 1}))
    read = codec().decode(text)
    assert isinstance(read, TickEditStore)
    assert read.changed == {"a": 1}


def test_class_that_is_not_allowed_is_refused() -> None:
    text = codec().encode(TickAddEvent(at=1.0, event=PARCEL))
    strict = codec(serializer=JsonSerializer(allowed_types=[HumanResponseEvent]))
    with pytest.raises(ValueError, match="not in the serializer's allowed types"):
        strict.decode(text)


def test_record_whose_event_is_none_is_refused() -> None:
    text = codec().encode(TickAddEvent(at=1.0, event=PARCEL))
    entry = json.loads(text)
    entry["tick"]["event"][1] = "[1]"
    with pytest.raises(ValueError, match="holds a list"):
        codec().decode(json.dumps(entry))


# -- replay -----------------------------------------------------------------------------------------------------------


class Part(Event):
    number: int


class Done(Event):
    number: int


class Note(Event):
    number: int


class Busy(Workflow):
    """Has some of everything: a stream, a step with one worker, retries, sleeps, waits, collecting, sends."""

    failed: set[int]

    @step
    async def split(self, ctx: Context, ev: StartEvent) -> list[Part] | Note:
        for number in range(3):
            ctx.send_event(Note(number=number))
        return [Part(number=number) for number in range(4)]

    @step(num_workers=1, retry_policy=retry_policy(wait=wait_fixed(60), stop=stop_after_attempt(3)))
    async def work(self, ctx: Context, ev: Part) -> Done:
        if ev.number == 1 and ev.number not in self.failed:
            self.failed.add(ev.number)
            raise ValueError("once")
        if ev.number == 1:
            await asyncio.sleep(150)  # holds the only worker while the wait below is answered
        await ctx.store.set(f"part{ev.number}", ev.number)
        if ev.number == 2:
            await ctx.sleep(30)
        if ev.number == 3:
            answer = await ctx.wait_for_event(HumanResponseEvent, requirements={"about": 3}, timeout=500)
            ctx.write_event_to_stream(Note(number=answer.get("about")))
        return Done(number=ev.number)

    @step(num_workers=2)
    async def collect(self, ctx: Context, ev: Note) -> None:
        await ctx.sleep(10 * ev.number)
        if ctx.collect_events(ev, [Note] * 3):
            await ctx.store.set("notes", True)

    @step
    async def join(self, ctx: Context, evs: list[Done]) -> StopEvent:
        await ctx.sleep(5)
        return StopEvent(result=sorted(ev.number for ev in evs))


class Photographer(RunAdapterDecorator):
    """Takes a snapshot after every tick."""

    take: Any = None

    def on_tick(self, tick: WorkflowTick) -> None:
        super().on_tick(tick)
        if self.take is not None:
            self.take()


def pending(state: BrokerState) -> dict[str, Any]:
    """What a run still has to do, without the numbers that a load gives anew."""
    steps = {}
    for name, worker in sorted(state.workers.items()):
        steps[name] = {
            "queue": [item.id for item in worker.queue],
            "in_progress": sorted(worker.in_progress),
            "suspended": sorted((item, e.waits_on, dict(e.effects)) for item, e in worker.suspended.items()),
            "ready": list(worker.ready),
            "delayed": sorted(item.id for item in worker.delayed.values()),
            "collected": {key: len(buffer.events) for key, buffer in worker.collected_events.items() if buffer.events},
            "waiters": sorted(waiter.key for waiter in worker.collected_waiters.values()),
        }
    return {
        "steps": {name: found for name, found in steps.items() if any(found.values())},
        "timers": sorted((round(timer.due, 6), timer.purpose) for timer in state.timers.values()),
        "streams": {number: stream.tokens for number, stream in state.plan.streams.items()},
        "counters": (state.items, state.active, state.asleep, state.ticks, state.is_running),
        "alive": round(state.at - state.alive_since, 6),
    }


def fresh() -> Busy:
    workflow = Busy(timeout=10_000)
    workflow.failed = set()
    return workflow


async def record_a_run() -> tuple[list[dict[str, Any]], list[JournalRecord]]:
    cameras: list[Photographer] = []

    def decorate(inner: Any) -> Photographer:
        cameras.append(Photographer(inner))
        return cameras[-1]

    runtime = BasicRuntime(decorate=decorate)
    workflow = fresh()
    workflow._switch_runtime(runtime)
    handler = workflow.run()
    snapshots: dict[int, str] = {}

    def take() -> None:
        snapshot = handler.ctx.to_dict()
        snapshots[snapshot["journal_seq"]] = json.dumps(snapshot)

    cameras[0].take = take
    asyncio.get_running_loop().call_later(200, handler.ctx.send_event, HumanResponseEvent(about=3))
    assert await handler == [0, 1, 2, 3]
    records = [record async for record in runtime.journal(handler.run_id)]
    return [json.loads(text) for text in snapshots.values()], records


def test_snapshot_and_tail_equal_the_whole_journal() -> None:
    snapshots, records = run_virtual(record_a_run())
    assert len(snapshots) > 15
    runtime = BasicRuntime()
    workflow = fresh()
    whole = [runtime.restore(workflow, None, records[:end])._restored for end in range(1, len(records) + 1)]
    compared = 0
    for snapshot in snapshots:
        first = snapshot["journal_seq"]
        for end in range(first + 1, len(records) + 1):
            restored = runtime.restore(workflow, snapshot, records[first:end])._restored
            assert restored is not None
            expected = whole[end - 1]
            assert expected is not None
            assert pending(restored) == pending(expected), (first, end)
            assert not violations(restored)
            compared += 1
    assert compared > 100


def test_run_goes_on_from_any_record() -> None:
    async def main() -> list[Any]:
        _, records = await record_a_run()
        results = []
        for end in range(1, len(records)):
            workflow = fresh()
            workflow.failed = {1}
            context = BasicRuntime().restore(workflow, None, records[:end])
            handler = workflow.run(ctx=context)
            handler.ctx.send_event(HumanResponseEvent(about=3))
            results.append(await handler)
            assert await handler.ctx.store.get("part3") == 3
        return results

    results = run_virtual(main())
    assert results == [[0, 1, 2, 3]] * len(results)
