"""A snapshot of any moment with the ticks behind it gives the same run as all ticks from the beginning."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.adapter import RunAdapterDecorator
from loom.core.invariants import violations
from loom.core.state import BrokerState
from loom.core.ticks import WorkflowTick
from loom.runtime.basic import BasicRuntime, JournalRecord
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.testing import run_virtual


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
