"""Events that are acknowledged while their run fails: a retry takes them, as the run would have."""

from __future__ import annotations

import asyncio
from typing import Any

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.commands import TerminalCommand
from loom.core.run import Run
from loom.core.ticks import TickAddEvent, TickCancelRun, TickRetryRun, TickStepResult
from loom.steps.events import Event
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.store.operations import CommitRun


class Answer(HumanResponseEvent):
    text: str


class Other(Event):
    pass


class Fails(Workflow):
    """Waits for an answer in one step. Another one fails, the first time."""

    is_mended = False

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Other:
        return Other()

    @step
    async def fail(self, ev: Other) -> StopEvent | None:
        if not self.is_mended:
            raise RuntimeError("not yet")
        return None

    @step
    async def listen(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(Answer, timeout=None)
        return StopEvent(result=answer.text)


class SlowToFail(MemoryStore):
    """Takes its time to write that a run has failed."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self.fails, self.goes_on = asyncio.Event(), asyncio.Event()

    async def apply(self, group: Any) -> Any:
        if any(isinstance(operation, CommitRun) and operation.head.status == "failed" for operation in group):
            self.fails.set()
            await self.goes_on.wait()
        return await super().apply(group)


async def test_an_event_that_comes_while_a_run_fails_is_there_when_it_is_retried() -> None:
    database = MemoryDatabase()
    store, workflow = SlowToFail(database), Fails(timeout=None)
    async with loom.connect(store) as runtime, loom.connect(MemoryStore(database)) as client:
        runtime.register(workflow, name="fails")
        handler = await runtime.start("fails", {}, run_id="r")
        await store.fails.wait()
        assert await client.send_event("r", Answer(text="yes"), event_id="1")
        await client.cancel("r")  # it means the run that fails just now
        store.goes_on.set()
        assert "not yet" in str((await asyncio.gather(handler, return_exceptions=True))[0])
        workflow.is_mended = True
        await client.retry("r")
        assert await asyncio.wait_for(await runtime.handler("r"), 60) == "yes"
        assert [entry.tick.mail async for entry in runtime.history("r") if isinstance(entry.tick, TickRetryRun)] == [3]
        assert not database.tables.runs["r"].inbox


async def test_an_event_after_the_tick_that_fails_a_run_is_no_part_of_its_journal(monkeypatch: Any) -> None:
    """It is still in the inbox, and comes again with the retry."""
    journals: list[list[str]] = []
    flush = Run.flush

    def flushed(self: Run, *limits: Any, **more: Any) -> Any:
        batch = flush(self, *limits, **more)
        if any(isinstance(command, TerminalCommand) for command in batch.commands):
            journals.append([type(tick).__name__ for tick in batch.ticks])
        return batch

    drain = Run.drain

    def drained(self: Run, units: int | None = None) -> bool:
        if any(isinstance(tick, TickStepResult) and tick.failure is not None for tick in self.pending):
            self.feed(
                TickAddEvent(at=self.fields.at, event=sent[0], mail=99), TickCancelRun(at=self.fields.at, mail=100)
            )
        return drain(self, units)

    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as runtime:
        runtime.register(Fails(timeout=None), name="fails")
        sent = [runtime.codes["fails"].codec.sent(Answer(text="no"), is_known=True)]
        monkeypatch.setattr(Run, "flush", flushed)
        monkeypatch.setattr(Run, "drain", drained)
        await asyncio.gather(await runtime.start("fails", {}, run_id="r"), return_exceptions=True)
    assert journals == [["TickStepResult", "TickCancelRun"]]
