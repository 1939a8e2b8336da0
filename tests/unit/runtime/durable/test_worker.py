"""A process that works on runs: how it begins, what callers see if it cannot, and how it ends."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from durable_looking import until

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.stored_definitions import DefinitionNotFound
from loom.steps.errors import WorkflowRuntimeError
from loom.store.errors import StoreError, StoreLocked, StoreUnavailable
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual

if TYPE_CHECKING:
    from pathlib import Path

    from loom.store.records import Member


class Word(HumanResponseEvent):
    text: str


class Ask(Workflow):
    @step
    async def ask(self, ctx: Context, _ev: StartEvent) -> StopEvent:
        return StopEvent(result=(await ctx.wait_for_event(Word, timeout=None)).text)


class Quick(Workflow):
    @step
    async def work(self, _ev: StartEvent) -> StopEvent:
        return StopEvent(result="done")


class Gate(MemoryStore):
    """A store that nobody can join for a while, and whose lease can be lost."""

    def __init__(self, database: MemoryDatabase | None = None) -> None:
        super().__init__(database)
        self.refusals = 0
        self.lost = False
        self.odd: Exception | None = None

    async def join(self, name: str, lease_s: float) -> Member:
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable("The database is starting up.")
        return await super().join(name, lease_s)

    async def beat(self, fence: int, lease_s: float) -> bool:
        if self.odd is not None:
            odd, self.odd = self.odd, None
            raise odd
        if self.lost:
            self.lost = False
            self.database.leases.pop(fence)
        return await super().beat(fence, lease_s)


async def _later_call_tries_again() -> object:
    store = Gate()
    store.refusals = 1
    async with loom.connect(store) as runtime:
        runtime.register(Quick(), name="quick")
        with pytest.raises(StoreUnavailable, match="starting up"):
            await runtime.start("quick")
        return await (await runtime.start("quick"))


def test_call_after_the_store_is_back_works() -> None:
    assert run_virtual(_later_call_tries_again()) == "done"


async def _lease_lost_while_the_store_is_down() -> object:
    store = Gate()
    async with loom.connect(store) as runtime:
        runtime.register(Ask(timeout=None), name="ask")
        handler = await runtime.start("ask", run_id="a")
        await asyncio.sleep(5)
        store.refusals, store.lost = 3, True
        await asyncio.sleep(20)
        await runtime.send_event("a", Word(text="back"))
        async with asyncio.timeout(10):
            return await handler


def test_lost_lease_is_followed_by_joining_until_it_works(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "loom.durable"):
        assert run_virtual(_lease_lost_while_the_store_is_down()) == "back"
    assert [record.message for record in caplog.records if "lease" in record.message]


async def _scanner_survives(store: Gate) -> object:
    async with loom.connect(store) as runtime:
        runtime.register(Quick(), name="quick")
        await runtime.ready()
        await asyncio.sleep(3)
        store.odd = RuntimeError("something odd")
        await asyncio.sleep(3)
        async with loom.connect(MemoryStore(store.database)) as client:
            store.on_notification = lambda _ids: None  # only the scanner can find it
            async with asyncio.timeout(60):
                return await (await client.start("quick"))


def test_scanner_outlives_an_error_that_nobody_thought_of(caplog: pytest.LogCaptureFixture) -> None:
    assert run_virtual(_scanner_survives(Gate())) == "done"
    assert "something odd" in caplog.text


async def test_whoever_awaits_a_run_hears_that_the_runtime_was_closed(tmp_path: Path) -> None:
    for url in ("memory://", f"sqlite:///{tmp_path}/runs.db"):
        async with loom.connect(url) as runtime:
            runtime.register(Ask(timeout=None), name="ask")
            handler = await runtime.start("ask")
            result = asyncio.ensure_future(_result(handler))
            stream = asyncio.ensure_future(_read(handler))
            await until(runtime, handler.run_id, lambda info: info.idle_since)
            await asyncio.sleep(0.01)
        for waiting in (result, stream):
            with pytest.raises(StoreError, match=r"closed|not open"):
                await asyncio.wait_for(waiting, 60)


async def _result(handler: loom.WorkflowHandler) -> object:
    return await handler


async def _read(handler: loom.WorkflowHandler) -> list[Event]:
    return [event async for event in handler.stream_events()]


async def test_second_engine_on_a_file_is_told_who_has_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url) as first:
        first.register(Quick(), name="quick")
        await first.ready()
        async with loom.connect(url) as second:
            second.register(Quick(), name="quick")
            with pytest.raises(StoreLocked, match=r"runs\.db"):
                await second.start("quick")
            await first.close()
            assert await (await second.start("quick")) == "done"


async def test_runtime_that_was_closed_can_be_opened_again() -> None:
    database = MemoryDatabase()
    runtime = loom.connect(MemoryStore(database))
    runtime.register(Quick(), name="quick")
    for _ in range(2):
        async with runtime:
            assert await (await runtime.start("quick")) == "done"


def test_event_loop_that_ends_without_close_leaves_the_run_for_the_next() -> None:
    database = MemoryDatabase()

    async def leave() -> None:
        runtime = await loom.connect(MemoryStore(database), lease=0.2).__aenter__()
        runtime.register(Ask(timeout=None), name="ask")
        await runtime.start("ask", run_id="a")
        await runtime.send_event("a", Word(text="kept"))
        database.stores.clear()  # it dies with the loop

    async def come_back() -> object:
        async with loom.connect(MemoryStore(database), poll_interval=0.05) as runtime:
            runtime.register(Ask(timeout=None), name="ask")
            return await (await runtime.handler("a"))

    asyncio.run(leave())
    assert asyncio.run(come_back()) == "kept"


async def test_second_workflow_may_come_later() -> None:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as client, loom.connect(MemoryStore(database)) as worker:
        worker.register(Ask(timeout=None), name="ask")
        await worker.ready()
        handler = await client.start("quick")
        worker.register(Quick(), name="quick")
        assert await handler == "done"


def test_register_takes_workflows_only() -> None:
    with pytest.raises(TypeError, match="takes a workflow, not str"):
        loom.connect("memory://").register("shop.py:Order")  # type: ignore[arg-type]


async def test_a_class_is_registered_as_an_instance_of_it() -> None:
    async with loom.connect("memory://") as runtime:
        runtime.register(Quick, name="quick")
        assert await (await runtime.start("quick")) == "done"


def test_a_class_that_needs_arguments_says_how_to_register_it() -> None:
    class Needy(Quick):
        def __init__(self, address: str) -> None:
            super().__init__()
            self.address = address

    with pytest.raises(TypeError, match=r"Needy cannot be made without arguments: register an instance, as Needy\("):
        loom.connect("memory://").register(Needy)


async def test_a_typo_in_a_name_is_answered_with_the_name_that_is_known() -> None:
    database = MemoryDatabase()
    async with loom.connect(MemoryStore(database)) as worker, loom.connect(MemoryStore(database)) as client:
        worker.register(Quick, name="quick")
        await worker.ready()
        with pytest.raises(DefinitionNotFound, match=r"'qiuck' is not known here\. Did you mean 'quick'\?"):
            await worker.start("qiuck")
        elsewhere = await client.start("qiuck-later", run_id="r")  # a client leaves the work to others
        assert (await worker.get(elsewhere.run_id)).status == "running"
        assert (await worker.start("qiuck-later", run_id="r")).run_id == "r"  # it has runs, so it is known
        assert (await worker.start("something-else", run_id="s")).run_id == "s"


async def test_the_name_of_a_class_is_answered_with_the_whole_name() -> None:
    async with loom.connect("memory://") as runtime:
        runtime.register(Quick)
        whole = f"{__name__}.Quick"
        assert whole in runtime.codes
        for name in ("Quick", "quick"):
            with pytest.raises(DefinitionNotFound, match=rf"'{name}' is not known here\. Did you mean '{whole}'\?"):
                await runtime.start(name)


async def test_a_typo_in_an_input_is_answered_with_the_field() -> None:
    class Topic(loom.StartEvent):
        topic: str

    class About(loom.Workflow):
        @loom.step
        async def tell(self, ev: Topic) -> loom.StopEvent:
            return loom.StopEvent(result=ev.topic)

    async with loom.connect("memory://") as runtime:
        runtime.register(About, name="about")
        with pytest.raises(WorkflowRuntimeError, match=r"There is no field 'topc': did you mean 'topic'\?"):
            await runtime.start("about", {"topc": "x"})


async def test_an_engine_that_lost_its_lease_joins_again_on_sqlite(tmp_path: Path) -> None:
    """Its lock is its own: the process is not in its own way."""
    async with loom.connect(f"sqlite:///{tmp_path / 'runs.db'}") as runtime:
        runtime.register(Ask(timeout=None), name="ask")
        await runtime.start("ask", run_id="w")
        runtime._lease_lost()
        async with asyncio.timeout(60):
            await runtime.ready()
            await runtime.send_event("w", Word(text="back"))
            assert await (await runtime.handler("w")) == "back"


async def _call_while_joining_again() -> object:
    store = Gate()
    async with loom.connect(store) as runtime:
        runtime.register(Ask(timeout=None), name="ask")
        handler = await runtime.start("ask", run_id="a")
        await asyncio.sleep(5)
        store.refusals, store.lost = 60, True
        await asyncio.sleep(10)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="starting up"):
                async with asyncio.timeout(5):
                    await runtime.send_event("a", Word(text="lost"))
        await asyncio.sleep(100)
        await runtime.send_event("a", Word(text="back"))
        return await handler


def test_who_calls_while_the_store_is_down_is_told_so() -> None:
    """And does not wait for as long as that takes."""
    assert run_virtual(_call_while_joining_again()) == "back"


async def test_nothing_is_left_of_a_runtime_that_was_closed_while_it_began(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with loom.connect(f"sqlite:///{tmp_path}/runs.db") as runtime:
        for name in ("one", "two", "three"):
            runtime.register(Quick(), name=name)
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
