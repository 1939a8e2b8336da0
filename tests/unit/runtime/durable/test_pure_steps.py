"""Pure steps go on while a commit is on its way, and nobody outside sees anything before it is durable (ADR 63)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from typing_extensions import override

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.core.reducer import replay
from loom.runtime.durable import active_run
from loom.runtime.durable.recovery import restored
from loom.runtime.durable.registration import registration_of
from loom.runtime.durable.worker import WorkerRuntime
from loom.store import codec
from loom.store.errors import StoreUnavailable
from loom.store.memory import MemoryStore
from loom.store.operations import CommitRun, Operation, Result


class Held(MemoryStore):
    """A store whose commits of runs wait until they are let through, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.fails = False
        """Whether commits fail from now on, as if the disk were gone."""
        self.loses = False
        """Whether commits are refused from now on, as if another process owned the run."""
        self.commits: list[CommitRun] = []
        """The commits that have come, written or not."""
        self._passes = asyncio.Semaphore(0)

    @override
    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        commits = [operation for operation in group if isinstance(operation, CommitRun)]
        self.commits += commits
        if commits and self.holds:
            await self._passes.acquire()
        if commits and self.fails:
            raise StoreUnavailable("The disk is gone.")
        if commits and self.loses:
            return [False for _ in group]
        return await super().apply(group)

    def let_pass(self, commits: int = 1) -> None:
        for _ in range(commits):
            self._passes.release()

    def release_all(self) -> None:
        self.holds = False
        self.let_pass(1000)


class One(Event):
    n: int = 0
    text: str = ""


class Two(Event):
    n: int = 0


class Line(Event):
    n: int


class Go(HumanResponseEvent):
    """Lets a run that waits go on."""


class Waits(Workflow):
    """Waits, so that what follows can be looked at commit by commit."""

    def __init__(self, length: int = 3, **options: Any) -> None:
        super().__init__(timeout=None, **options)
        self.length = length
        self.began: list[str] = []

    @step
    async def wait(self, ctx: Context, ev: StartEvent) -> One:
        await ctx.wait_for_event(Go, timeout=None)
        return One()


class Counts(Waits):
    """A chain of pure steps that count and write lines."""

    @step(pure=True)
    async def count(self, ctx: Context, ev: One) -> One | Two:
        self.began.append(f"count {ev.n}")
        ctx.write_event_to_stream(Line(n=ev.n))
        await ctx.store.set("n", ev.n)
        return One(n=ev.n + 1) if ev.n + 1 < self.length else Two(n=ev.n + 1)


class Steps(Counts):
    """The chain, and a last step that is not pure."""

    @step
    async def act(self, ctx: Context, ev: Two) -> StopEvent:
        self.began.append("act")
        return StopEvent(result=ev.n)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not holds():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)


async def settled() -> None:
    """Let everything happen that can happen by itself."""
    for _ in range(200):
        await asyncio.sleep(0)


@asynccontextmanager
async def waiting(store: Held, workflow: Workflow) -> AsyncIterator[tuple[WorkerRuntime, Any]]:
    """A run that waits for `Go`; every commit after that is held."""
    async with loom.connect(store, idle_timeout=None) as runtime:
        runtime.register(workflow, name="w")
        handler = await runtime.start("w", run_id="r")
        await until(lambda: (run := runtime.active_run("r")) is not None and run.is_at_rest)
        store.commits.clear()
        store.holds = True
        await runtime.send_event("r", Go())
        await until(lambda: bool(store.commits))
        try:
            yield runtime, handler
        finally:
            store.release_all()


async def test_pure_bodies_begin_before_their_commit_and_an_impure_one_never() -> None:
    store, workflow = Held(), Steps()
    async with waiting(store, workflow) as (_, handler):
        await settled()
        assert workflow.began == []  # its event is on its way: the body that waited is impure, and waits for it
        store.let_pass()
        await until(lambda: "count 2" in workflow.began)
        await settled()
        assert workflow.began == ["count 0", "count 1", "count 2"]
        assert len(store.commits) == 2  # the answer, and the first pure step: the others are ahead of its commit
        store.let_pass()
        await until(lambda: len(store.commits) == 3)
        await settled()
        assert "act" not in workflow.began  # what it follows from is on its way
        assert store.commits[2].chunk is not None
        assert store.commits[2].chunk.ticks > 3  # what three bodies did shares one commit
        store.let_pass()
        await until(lambda: "act" in workflow.began)
        store.release_all()
        async with asyncio.timeout(5):
            assert await handler == 3


async def test_an_impure_chain_has_one_commit_for_each_step() -> None:
    class Impure(Waits):
        @step
        async def count(self, ev: One) -> One | StopEvent:
            self.began.append(f"count {ev.n}")
            return One(n=ev.n + 1) if ev.n < 2 else StopEvent(result=3)

    store, workflow = Held(), Impure()
    async with waiting(store, workflow) as (_, handler):
        for number in range(3):
            store.let_pass()
            await settled()
            assert len(workflow.began) == number
        store.release_all()
        async with asyncio.timeout(5):
            assert await handler == 3


async def test_nobody_outside_sees_what_is_not_durable(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    class AllPure(Counts):
        @step(pure=True)
        async def act(self, ctx: Context, ev: Two) -> StopEvent:
            self.began.append("act")
            return StopEvent(result=ev.n)

    store, workflow = Held(), AllPure()
    async with waiting(store, workflow) as (runtime, handler):
        seen: list[int] = []

        async def read() -> None:
            async for event in handler.stream_events():
                if isinstance(event, Line):
                    seen.append(event.n)

        reader = asyncio.create_task(read())
        waiter = asyncio.ensure_future(_result(handler))
        store.let_pass()
        await until(lambda: "act" in workflow.began)
        await settled()
        active = runtime.active_run("r")
        assert active is not None
        assert active.is_over  # in memory it has ended, and nothing of that is stored
        info = await runtime.get("r")
        assert (info.status, handler.is_done(), active.status, active.is_idle) == ("running", False, "running", False)
        assert seen == []
        assert not waiter.done()
        lines_stored = [tick async for _, _, tick in runtime.history("r") if type(tick).__name__ == "TickPublishEvent"]
        assert lines_stored == []
        store.let_pass()  # the start of the first pure step; the rest is the next commit
        await until(lambda: len(store.commits) == 3)
        await settled()
        assert (await runtime.get("r")).status == "running"
        assert (seen, waiter.done(), _told_ends(caplog)) == ([], False, [])
        store.let_pass()
        async with asyncio.timeout(5):
            assert await waiter == 3
            await reader
        assert seen == [0, 1, 2]
        assert len(store.commits) == 3
        assert len(_told_ends(caplog)) == 1


def _told_ends(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "ended: completed" in record.getMessage()]


async def _result(handler: Any) -> Any:
    return await handler


@pytest.mark.parametrize("how", ["fails", "loses"])
async def test_what_was_built_on_a_lost_commit_is_thrown_away(how: str) -> None:
    store, workflow = Held(), Steps()
    async with waiting(store, workflow) as (runtime, handler):
        store.let_pass()
        await until(lambda: "count 2" in workflow.began)
        before = [tick async for tick in runtime.history("r")]
        active, built_on = runtime.active_run("r"), store.commits[1].chunk
        setattr(store, how, True)
        store.let_pass()
        await until(lambda: runtime.active_run("r") is not active)
        await settled()
        assert "act" not in workflow.began
        assert [tick async for tick in runtime.history("r")] == before
        # Whoever goes on begins where the lost commit began: nothing that follows from it was even tried.
        assert built_on is not None
        assert all(commit.chunk.first_tick == built_on.first_tick for commit in store.commits[2:] if commit.chunk)
        setattr(store, how, False)
        store.release_all()
        assert runtime.active_runs is not None
        runtime.active_runs.retry_stranded()
        async with asyncio.timeout(5):
            assert await handler == 3
        assert workflow.began[-4:] == ["count 0", "count 1", "count 2", "act"]
        assert workflow.began.count("act") == 1


async def test_a_crash_throws_the_lead_away_and_recovery_equals_replay() -> None:
    """The runtime ends while pure steps are ahead. Another one goes on from what was stored."""
    store, workflow = Held(), Steps(length=6)
    async with waiting(store, workflow) as (runtime, _):
        store.let_pass()
        await until(lambda: "count 5" in workflow.began)
        active = runtime.active_run("r")
        assert active is not None
        active.abort()  # as its event loop would
        assert runtime.active_run("r") is None
        store.release_all()
        await until(lambda: runtime.active_run("r") is None and len(store.commits) == 2)
    again, other = MemoryStore(store.database), Steps(length=6)
    async with loom.connect(again, idle_timeout=None) as runtime:
        runtime.register(other, name="w")
        handler = await runtime.handler("r")
        async with asyncio.timeout(10):
            assert await handler == 6
        await until(lambda: runtime.active_run("r") is None)
        stored = await again.export("r")
        assert stored is not None
        code = registration_of("w", other)
        ticks = [tick for chunk in stored.chunks for tick in codec.decode_ticks("r", chunk)]
        replayed = replay(ticks, code.planner, read_field=code.codec.field)
        loaded = restored("r", stored.snapshot, stored.chunks, code.planner, code.codec.field)
        assert codec.encode_state(loaded) == codec.encode_state(replayed)
        lines = [event.n async for event in handler.stream_events() if isinstance(event, Line)]
        assert lines == list(range(6))
    assert other.began == [f"count {n}" for n in range(6)] + ["act"]


async def test_once_and_child_runs_of_a_pure_step_wait_for_the_barrier() -> None:
    class Child(Workflow):
        @step
        async def run_it(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result="child")

    class Paying(Counts):
        @step(pure=True)
        async def act(self, ctx: Context, ev: Two) -> StopEvent:
            self.began.append("act")
            await ctx.once("pay", self.pay)
            return StopEvent(result=await ctx.run_child("child"))

        def pay(self) -> str:
            self.began.append("paid")
            return "receipt"

    store, workflow = Held(), Paying()
    async with waiting(store, workflow) as (runtime, handler):
        runtime.register(Child(timeout=None), name="child")
        store.let_pass()
        await until(lambda: "act" in workflow.began)
        await settled()
        assert workflow.began[-1] == "act"
        store.let_pass()  # the first pure step has begun
        await until(lambda: len(store.commits) == 3)
        await settled()
        assert workflow.began[-1] == "act"
        store.let_pass()  # the body that pays has begun
        await until(lambda: workflow.began[-1] == "paid")
        await until(lambda: len(store.commits) == 4)
        store.let_pass()  # what was paid is recorded
        await until(lambda: len(store.commits) == 5)
        await settled()
        assert [info.run_id async for info in runtime.list(workflow="child")] == []
        store.release_all()
        async with asyncio.timeout(5):
            assert await handler == "child"
        assert workflow.began.count("paid") == 1


async def test_the_lead_is_bounded_by_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_run, "MAX_AHEAD", 12)
    store, workflow = Held(), Steps(length=100)
    async with waiting(store, workflow) as (_, handler):
        store.let_pass()
        await until(lambda: len(workflow.began) > 2)
        await settled()
        assert len(workflow.began) < 8  # each body makes three ticks
        store.release_all()
        async with asyncio.timeout(5):
            assert await handler == 100


async def test_the_lead_is_bounded_by_bytes() -> None:
    class Large(Waits):
        @step(pure=True)
        async def count(self, ev: One) -> One | StopEvent:
            self.began.append(f"count {ev.n}")
            return One(n=ev.n + 1, text="x" * 60_000) if ev.n < 50 else StopEvent(result=ev.n)

    store, workflow = Held(), Large()
    async with waiting(store, workflow) as (_, handler):
        store.let_pass()
        await until(lambda: len(workflow.began) > 2)
        await settled()
        assert len(workflow.began) <= 256 // 60 + 3
        store.release_all()
        async with asyncio.timeout(5):
            assert await handler == 50


async def test_a_cancel_ends_the_lead() -> None:
    """A tick from outside is not starved by a chain that could go on for ever."""
    store, workflow = Held(), Steps(length=1_000_000)
    async with waiting(store, workflow) as (runtime, handler):
        store.release_all()
        await until(lambda: len(workflow.began) > 300)
        async with asyncio.timeout(5):
            await runtime.cancel("r")
            with pytest.raises(loom.WorkflowCancelledByUser):
                await handler
        assert (await runtime.get("r")).status == "cancelled"


async def test_a_run_in_memory_takes_the_declaration_and_ignores_it() -> None:
    class Plain(Workflow):
        @step(pure=True)
        async def begin(self, ev: StartEvent) -> StopEvent:
            return StopEvent(result="done")

    assert await Plain().run() == "done"


async def test_a_failing_reduction_ahead_is_the_runs_business(monkeypatch: pytest.MonkeyPatch) -> None:
    store, workflow = Held(), Steps()
    async with waiting(store, workflow) as (runtime, _):
        active = runtime.active_run("r")
        assert active is not None

        def broken(_units: int) -> bool:
            raise RuntimeError("a bug")

        store.let_pass()
        await until(lambda: len(store.commits) == 2)
        monkeypatch.setattr(type(active._core), "drain", lambda self, units: broken(units))
        await settled()
        store.release_all()
        await until(lambda: runtime.active_run("r") is None)
        monkeypatch.undo()
        async with asyncio.timeout(5):
            while "An error of the engine" not in ((await runtime.get("r")).parked or ""):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
