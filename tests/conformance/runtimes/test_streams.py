"""Streams: every reader sees every event once and in order, whenever it begins and wherever it reads."""

from __future__ import annotations

from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, in_background, result, soon, until_info

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, WorkflowHandler, step
from loom.runtime.durable.runtime import DurableRuntime


class Note(Event):
    n: int


class More(HumanResponseEvent):
    pass


class Reporter(Watched):
    """Writes as many notes as it is asked for, then waits, then as many again."""

    @step
    async def report(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for number in range(ev.notes):
            ctx.write_event_to_stream(Note(n=number))
        await self.witness.at("between")
        await ctx.wait_for_event(More, timeout=None)
        for number in range(ev.notes, 2 * ev.notes):
            ctx.write_event_to_stream(Note(n=number))
        return StopEvent(result="done")


async def notes(handler: WorkflowHandler, after: int | None = None) -> list[int]:
    """All notes until the stream ends, which a stop event does."""
    events = [event async for event in handler.stream_events(after=after)]
    assert type(events[-1]) is StopEvent
    return [event.n for event in events[:-1]]


async def all_events(runtime: DurableRuntime, run_id: str, after: int = -1) -> list[Event]:
    """The whole stream, with what the engine tells of itself: the place in this list is the cursor."""
    handler = await runtime.handler(run_id)
    return [event async for event in handler.stream_events(expose_internal=True, after=after)]


async def test_every_reader_sees_everything(deployment: Deployment) -> None:
    runtime = await deployment.open({"reporter": Reporter()})
    client = await deployment.open()
    handler = await runtime.start("reporter", {"notes": 40}, run_id="a")
    readers = [in_background(notes(handler))]
    readers += [in_background(notes(handler, after=-1)) for _ in range(3)]
    readers += [in_background(notes(await each.handler("a"))) for each in (runtime, client)]
    await until_info(runtime, "a", lambda info: info.events >= 40)
    late = in_background(notes(await runtime.handler("a")))
    await runtime.send_event("a", More())
    for reader in (*readers, late):
        assert await soon(reader) == list(range(80))
    # When it is over, too.
    assert await soon(notes(await client.handler("a"))) == list(range(80))


async def test_any_cursor_can_be_read_on_from(deployment: Deployment) -> None:
    runtime = await deployment.open({"reporter": Reporter()})
    handler = await runtime.start("reporter", {"notes": 5}, run_id="a")
    await runtime.send_event("a", More())
    await result(handler)
    whole = await soon(all_events(runtime, "a"))
    assert (await runtime.get("a")).events == len(whole)
    for cursor in range(len(whole)):
        assert await soon(all_events(runtime, "a", after=cursor)) == whole[cursor + 1 :]
    assert await soon(all_events(runtime, "a", after=len(whole) + 5)) == []


async def test_a_reader_goes_on_after_a_crash_without_gap_or_repeat(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"reporter": Reporter(witness)})
    handler = await first.start("reporter", {"notes": 10}, run_id="a")
    await until_info(first, "a", lambda info: info.idle_since)
    before: list[Event] = []
    async for event in handler.stream_events(expose_internal=True, after=-1):
        before.append(event)
        if isinstance(event, Note) and event.n == 6:
            break
    await deployment.crash(first)
    second = await deployment.open({"reporter": Reporter(witness)})
    rest = in_background(all_events(second, "a", after=len(before) - 1))
    await second.send_event("a", More())
    after = await soon(rest)
    assert [event.n for event in (*before, *after) if isinstance(event, Note)] == list(range(20))
    assert witness.count("between") == 2, "the body ran again, what it had written did not appear again"
    assert await soon(all_events(second, "a")) == before + after


async def test_a_handler_goes_on_where_its_last_reading_stopped(deployment: Deployment) -> None:
    runtime = await deployment.open({"reporter": Reporter()})
    handler = await runtime.start("reporter", {"notes": 4}, run_id="a")
    seen: list[int] = []
    async for event in handler.stream_events():
        assert isinstance(event, Note)
        seen.append(event.n)
        if event.n == 2:
            break
    await runtime.send_event("a", More())
    seen += await soon(notes(handler))
    assert seen == list(range(8))


async def test_a_reader_outlives_the_process_that_runs_the_run(deployment: Deployment) -> None:
    first = await deployment.open({"reporter": Reporter()})
    client = await deployment.open()
    await first.start("reporter", {"notes": 10}, run_id="a")
    reading = in_background(notes(await client.handler("a")))
    await until_info(first, "a", lambda info: info.idle_since)
    await deployment.crash(first)
    second = await deployment.open({"reporter": Reporter()})
    await second.send_event("a", More())
    assert await soon(reading) == list(range(20))


async def test_a_long_stream_is_read_in_pieces(deployment: Deployment) -> None:
    runtime = await deployment.open({"counter": Counter()})
    handler = await runtime.start("counter", {"notes": 300}, run_id="a")
    assert await soon(notes(handler)) == list(range(300))
    assert await soon(notes(await runtime.handler("a"))) == list(range(300))


class Counter(Watched):
    """Writes each note with a commit of its own, since a recorded result waits for one."""

    @step
    async def report(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for number in range(ev.notes):
            ctx.write_event_to_stream(Note(n=number))
            if number % 3 == 0:
                await ctx.once(f"commit {number}", lambda: None)
        return StopEvent()
