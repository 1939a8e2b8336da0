"""Bodies that write much: bounded chunks, a stream without gap or repeat, backpressure, and a limit with a name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.effects.off_loop import is_heavier
from loom.runtime.durable import active_run, adapter
from loom.runtime.durable.readers import KEPT_BYTES, OFF_LOOP_BYTES, DecodedChunks
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.verification import replayed_run
from loom.store import codec
from loom.store.errors import CorruptRecord, StoreUnavailable
from loom.store.memory import MemoryStore
from loom.store.operations import CommitRun
from loom.store.records import Chunk


class Note(Event):
    n: int
    text: str = ""


class Writes(Workflow):
    """Writes at once, without awaiting anything."""

    @step
    async def write(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for number in range(ev.notes):
            ctx.write_event_to_stream(Note(n=number, text="x" * ev.size))
        return StopEvent(result="y" * ev.get("returned", 0))


class Blocks(Workflow):
    """Writes from a thread."""

    @step
    def write(self, ctx: Context, ev: StartEvent) -> StopEvent:
        for number in range(ev.notes):
            ctx.write_event_to_stream(Note(n=number, text="x" * ev.size))
        return StopEvent(result="done")


async def notes(runtime: DurableRuntime, run_id: str) -> list[int]:
    handler = await runtime.handler(run_id)
    return [event.n async for event in handler.stream_events() if isinstance(event, Note)]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"


@pytest.mark.parametrize(("count", "size"), [(2500, 1), (60, 30_000)])
async def test_a_large_write_is_split_into_bounded_chunks(url: str, count: int, size: int) -> None:
    async with loom.connect(url) as runtime:
        runtime.register(Writes(), name="writes")
        await (await runtime.start("writes", {"notes": count, "size": size}, run_id="r"))
        assert await notes(runtime, "r") == list(range(count))
        chunks = await runtime.store.stream("r", 0, 1000)
        assert len(chunks) > 2
        assert max(chunk.ticks for chunk in chunks) <= active_run.MAX_TICKS
        assert max(len(chunk.data) for chunk in chunks) <= 2 * active_run.MAX_WEIGHT
        # No gap and no repeat, and a replay gives what is stored.
        assert [chunk.first_cursor for chunk in chunks[1:]] == [
            chunk.first_cursor + chunk.events for chunk in chunks[:-1]
        ]
        ticks = [tick for chunk in chunks for tick in codec.decode_ticks("r", chunk)]
        assert [tick.more for tick in ticks].count(False) <= 3
        assert (await replayed_run(runtime, "r")).differences == []


class Counts(Workflow):
    """Takes many small steps beside a state of some size."""

    @step
    async def count(self, ctx: Context, ev: StartEvent | Note) -> Note | StopEvent:
        number = ev.n + 1 if isinstance(ev, Note) else 0
        if number == 0:
            await ctx.store.set("much", "x" * 40_000)
        return StopEvent(result=number) if number == 200 else Note(n=number)


class Snapshots(MemoryStore):
    """Counts the snapshots that come."""

    count = 0

    async def apply(self, group: Any) -> Any:
        self.count += sum(isinstance(operation, CommitRun) and operation.snapshot is not None for operation in group)
        return await super().apply(group)


async def test_a_state_is_weighed_only_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weighing costs time by the size of the state, which a step must not."""
    weighed: list[int] = []

    def weigh(values: Any, limit: int) -> bool:
        weighed.append(limit)
        return is_heavier(values, limit)

    monkeypatch.setattr(adapter, "SNAPSHOT_TICKS", 1)
    monkeypatch.setattr(adapter, "is_heavier", weigh)
    store = Snapshots()
    async with loom.connect(store) as runtime:
        runtime.register(Counts(), name="counts")
        assert await (await runtime.start("counts", {}, run_id="r")) == 200
    assert 2 <= store.count <= len(weighed) <= store.count + 20


class FailingOnce(MemoryStore):
    """Refuses one commit that brings more of a large write."""

    commits = 0

    async def apply(self, group: Any) -> Any:
        self.commits += sum(isinstance(operation, CommitRun) and operation.head.ticks > 2000 for operation in group)
        if self.commits == 1:
            self.commits += 1
            raise StoreUnavailable("the disk is gone")
        return await super().apply(group)


async def test_a_write_that_is_interrupted_between_chunks_is_not_repeated() -> None:
    store = FailingOnce()
    async with loom.connect(store, poll_interval=0.01) as runtime:
        runtime.register(Writes(), name="writes")
        await asyncio.wait_for(await runtime.start("writes", {"notes": 3500, "size": 1}, run_id="r"), 60)
        assert store.commits > 1
        assert await notes(runtime, "r") == list(range(3500))


@pytest.mark.parametrize("given", [{"notes": 400, "size": 1000}, {"notes": 0, "size": 0, "returned": 400_000}])
async def test_more_than_a_run_may_store_fails_the_attempt_by_name(url: str, given: dict[str, int]) -> None:
    async with loom.connect(url, max_state=300_000) as runtime:
        runtime.register(Writes(), name="writes")
        handler = await runtime.start("writes", given, run_id="r")
        with pytest.raises(Exception, match="max_state allows 300000") as raised:
            await asyncio.wait_for(handler, 60)
        assert "TooMuchUnsaved" in f"{type(raised.value).__name__} {raised.value!r}"
        info = await runtime.get("r")
        assert (info.status, info.parked) == ("failed", None)
        assert "write: loom.steps.errors.TooMuchUnsaved" in (info.error or "")
        written = await notes(runtime, "r")
        assert written == list(range(len(written)))


async def test_a_body_in_a_thread_waits_until_its_writes_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_run, "BLOCKS_AT", 20_000)
    most = 0
    real = active_run.ActiveRun.report

    def report(self: Any, tick: Any) -> None:
        nonlocal most
        real(self, tick)
        most = max(most, self._unsaved)

    monkeypatch.setattr(active_run.ActiveRun, "report", report)
    async with loom.connect("memory://") as runtime:
        runtime.register(Blocks(), name="blocks")
        await asyncio.wait_for(await runtime.start("blocks", {"notes": 500, "size": 1000}, run_id="r"), 60)
        assert await notes(runtime, "r") == list(range(500))
    assert most < 25_000


async def test_a_thread_that_the_event_loop_waits_for_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop stands still: without an end of its patience the body would wait for ever."""
    monkeypatch.setattr(active_run, "BLOCKS_AT", 20_000)
    monkeypatch.setattr(active_run, "PATIENCE_S", 0.01)

    class Joins(Workflow):
        @step
        async def write(self, ctx: Context, ev: StartEvent) -> StopEvent:
            import contextvars
            import threading

            def body() -> None:
                for number in range(100):
                    ctx.write_event_to_stream(Note(n=number, text="x" * 1000))

            thread = threading.Thread(target=contextvars.copy_context().run, args=(body,))
            thread.start()
            thread.join()
            return StopEvent()

    async with loom.connect("memory://") as runtime:
        runtime.register(Joins(), name="joins")
        await asyncio.wait_for(await runtime.start("joins", run_id="r"), 60)
        assert await notes(runtime, "r") == list(range(100))


# -- decoded chunks ---------------------------------------------------------------------------------------------------


def chunk_of(size: int, first_cursor: int = 0, letter: str = "x") -> Chunk:
    from loom.core.records import EventKind, EventRecord
    from loom.core.ticks import TickPublishEvent

    record = EventRecord(EventKind("a.B"), letter * size)
    return codec.encode_chunk([TickPublishEvent(at=7.0, event=record)], [record], first_cursor, first_cursor)


@pytest.mark.parametrize("size", [10, OFF_LOOP_BYTES])
async def test_readers_share_one_decoding(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    decodings = 0
    real = codec.decode_stream

    def decode(run_id: str, chunk: Chunk) -> Any:
        nonlocal decodings
        decodings += 1
        return real(run_id, chunk)

    monkeypatch.setattr(codec, "decode_stream", decode)
    chunks = DecodedChunks()
    found = await asyncio.gather(*(chunks.decode("r", chunk_of(size)) for _ in range(5)))
    assert (decodings, found[0].at, len(found[0].published)) == (1, 7.0, 1)
    assert all(one.published is found[0].published for one in found)
    # A run of the same id that has come after is another one.
    other = await chunks.decode("r", chunk_of(size, letter="z"))
    assert (decodings, other.published[0].body[0]) == (2, "z")  # type: ignore[union-attr]
    await chunks.decode("s", chunk_of(size))
    assert decodings == 3


@pytest.mark.parametrize("size", [10, OFF_LOOP_BYTES])
async def test_a_damaged_chunk_is_told_to_each_reader(size: int) -> None:
    good = chunk_of(size)
    bad = Chunk(0, 1, 0, 1, good.data[:-9])
    chunks = DecodedChunks()
    for _ in range(2):
        found = await asyncio.gather(*(chunks.decode("r", bad) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [CorruptRecord] * 3
    assert (await chunks.decode("r", good)).at == 7.0


async def test_little_is_kept() -> None:
    chunks = DecodedChunks()
    for cursor in range(10):
        await chunks.decode("r", chunk_of(KEPT_BYTES // 3, cursor))
    assert len(chunks._kept) == 2
    await chunks.decode("r", chunk_of(KEPT_BYTES + 1, 10))
    assert len(chunks._kept) == 1


async def test_a_flow_that_builds_much_is_parked_before_its_journal_is_long(url: str) -> None:
    """Each burst adds a tick of a few bytes, so no snapshot comes that would weigh what the loop keeps."""
    leaf = {"type": "compose", "inputs": "@range(0, 20000)"}
    flow = loom.load({"each": {"type": "foreach", "items": "@range(0, 100)", "actions": {"leaf": leaf}}})
    async with loom.connect(url, max_state=4 << 20) as runtime:
        runtime.register(flow, name="builds")
        await runtime.start("builds", run_id="b")
        async with asyncio.timeout(60):
            while (info := await runtime.get("b")).parked is None and info.status == "running":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert f"more than {4 << 20} bytes to store, which max_state allows" in str(info.parked)
        [loop] = (await runtime.state_at("b")).plan.eaches.values()
        assert len(loop.iterations) < 30
