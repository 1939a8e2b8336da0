"""Processes beside the one that works on a file: refused, clients, standbys that take over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import loom
from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.durable.definitions import DEFINITIONS
from loom.runtime.durable.second import TRY_S
from loom.runtime.durable.worker import WorkerRuntime
from loom.runtime.flow import Flow
from loom.store.sqlite import SqliteStore

PATIENCE_S = 60.0


class Approval(HumanResponseEvent):
    by: str


class Noted(Event):
    number: int


class Order(Workflow):
    @step
    async def place(self, ctx: Context, ev: StartEvent) -> StopEvent:
        ctx.write_event_to_stream(Noted(number=1))
        answer = await ctx.wait_for_event(Approval, timeout=None)
        ctx.write_event_to_stream(Noted(number=2))
        return StopEvent(result=answer.by)


class Nap(Workflow):
    @step
    async def sleep(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(ev.seconds)
        return StopEvent(result="slept")


Open = Callable[..., Any]


@pytest.fixture
async def connected(tmp_path: Path) -> AsyncIterator[Open]:
    """Open a runtime with the workflows of this file on one database; it is closed after the test."""
    async with AsyncExitStack() as at_end:

        async def opened(name: str, **options: Any) -> WorkerRuntime:
            runtime = loom.connect(f"sqlite:///{tmp_path / 'runs.db'}", name=name, **options)
            runtime.register(Order(timeout=None), name="order")
            runtime.register(Nap(timeout=None), name="nap")
            return await at_end.enter_async_context(runtime)

        yield opened


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.01)


async def test_a_second_one_is_refused_when_it_opens(connected: Open, tmp_path: Path) -> None:
    first = await connected("first")
    assert first.role == "worker"
    second = loom.connect(f"sqlite:///{tmp_path / 'runs.db'}")
    second.register(Order(timeout=None), name="order")
    with pytest.raises(loom.StoreLocked, match="first, process") as caught:
        await second.__aenter__()
    assert caught.value.holder.startswith("first, process")
    with pytest.raises(loom.StoreError, match="closed"):
        await second.get("order-1")
    await first.close()
    async with second:  # it may be opened later
        assert second.role == "worker"


def test_a_sync_runtime_is_refused_by_register(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with loom.connect_sync(url, name="first") as first, loom.connect_sync(url) as second:
        first.register(Order(timeout=None), name="order")
        assert (first.role, second.role) == ("worker", "client")
        with pytest.raises(loom.StoreLocked, match="first, process"):
            second.register(Order(timeout=None), name="order")


def test_only_the_three_words_are_options() -> None:
    with pytest.raises(ValueError, match="when_locked is refuse, client or standby, got 'wait'"):
        loom.connect("memory://", when_locked="wait")  # type: ignore[arg-type]


async def test_memory_has_room_for_all() -> None:
    async with loom.connect("memory://", when_locked="standby") as runtime:
        runtime.register(Order(timeout=None), name="order")
        await runtime.ready()
        assert runtime.role == "worker"


@pytest.mark.parametrize("role", ["client", "standby"])
async def test_it_starts_and_sends_and_the_first_one_works(
    connected: Open, role: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "loom.durable")
    first, second = await connected("first", when_locked=role), await connected("second", when_locked=role)
    assert (first.role, second.role) == ("worker", role)
    told = [record.message for record in caplog.records if record.name == "loom.durable"]
    assert told[0] == "first works on the runs of the store."
    assert told[1].startswith(f"second is a {role}: first, process ")

    handler = await second.start("order", {}, run_id="order-1")
    await second.send_event("order-1", Approval(by="Ada"))
    assert await asyncio.wait_for(handler, PATIENCE_S) == "Ada"
    assert second.figures["in_memory"] == 0
    assert first.metrics.ticks > second.metrics.ticks == 0
    assert [(each.name, each.role, each.is_this) for each in await second.workers()] == [
        ("first", "worker", False),
        ("second", role, True),
    ]
    assert [(each.name, each.role) for each in await first.workers()] == [("first", "worker")]


async def test_a_client_stays_one(connected: Open) -> None:
    first, second = await connected("first"), await connected("second", when_locked="client")
    await first.close()
    second.register(Order(timeout=None), name="more")
    await second.ready()
    assert second.role == "client"
    await second.start("order", {}, run_id="order-1")
    assert (await second.get("order-1")).ticks == 0
    third = await connected("third")
    await second.send_event("order-1", Approval(by="Ada"))
    assert await asyncio.wait_for(await third.handler("order-1"), PATIENCE_S) == "Ada"


async def test_a_standby_takes_over_what_was_open(connected: Open, caplog: pytest.LogCaptureFixture) -> None:
    """A stream, an awaited result, a timer and a start that nobody had taken yet."""
    caplog.set_level(logging.INFO, "loom.durable")
    first, second = await connected("first"), await connected("second", when_locked="standby")
    handler = await second.start("order", {}, run_id="order-1")
    result = asyncio.create_task(handler.stop_event_result())
    stream = handler.stream_events()
    assert (await asyncio.wait_for(anext(stream), PATIENCE_S)).number == 1
    nap = await second.start("nap", {"seconds": 0.3}, run_id="nap-1")
    await until(lambda: first.figures["in_memory"] == 2)

    await first.close()
    await second.start("order", {}, run_id="order-2")
    await second.send_event("order-2", Approval(by="Cid"))
    await until(lambda: second.role == "worker")
    assert any(record.message.startswith("second takes over: ") for record in caplog.records)
    assert [(each.name, each.role, each.is_this) for each in await second.workers()] == [("second", "worker", True)]
    await second.send_event("order-1", Approval(by="Ben"))
    # The body runs again, and what it had published before is not published twice.
    rest = [event async for event in stream]
    assert [event.number for event in rest if isinstance(event, Noted)] == [2]
    assert (await asyncio.wait_for(result, PATIENCE_S)).result == "Ben"
    assert await asyncio.wait_for(nap, PATIENCE_S) == "slept"
    assert await asyncio.wait_for(await second.handler("order-2"), PATIENCE_S) == "Cid"


async def test_of_several_standbys_one_takes_over(connected: Open) -> None:
    first = await connected("first")
    waiting = [await connected(f"standby {n}", when_locked="standby") for n in range(4)]
    for left in (3, 2, 1):
        await first.close()
        await until(lambda: any(each.role == "worker" for each in waiting))
        await asyncio.sleep(2 * TRY_S)  # others try again
        assert sorted(each.role for each in waiting) == ["standby"] * left + ["worker"]
        first = next(each for each in waiting if each.role == "worker")
        waiting.remove(first)
        handler = await waiting[0].start("order", {}, run_id=f"order-{left}")
        await waiting[0].send_event(handler.run_id, Approval(by="Ada"))
        assert await asyncio.wait_for(handler, PATIENCE_S) == "Ada"


async def test_a_standby_that_is_closed_never_takes_over(connected: Open) -> None:
    first, second = await connected("first"), await connected("second", when_locked="standby")
    await second.close()
    await first.close()
    third = await connected("third")
    assert third.role == "worker"


async def test_a_standby_tells_once_that_the_store_fails_and_goes_on(
    tmp_path: Path, connected: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = await connected("first"), await connected("second", when_locked="standby")
    join, tries = SqliteStore.join, 0

    async def failing(self: SqliteStore, name: str, lease_s: float) -> Any:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise loom.StoreUnavailable("the disk is full") if tries < 3 else RuntimeError("odd")
        return await join(self, name, lease_s)

    await first.close()
    monkeypatch.setattr(SqliteStore, "join", failing)
    await until(lambda: second.role == "worker")
    errors = [record.message for record in caplog.records if "cannot take over" in record.message]
    assert errors == [
        "second cannot take over, and tries again every 0.2 s: the disk is full",
        "second cannot take over, and tries again every 0.2 s.",
    ]


async def test_a_flow_of_a_standby_is_current_when_it_takes_over(tmp_path: Path) -> None:
    def flow(number: int) -> Flow:
        actions = {"One": {"type": "Compose", "inputs": number, "runAfter": {}}}
        outputs = {"n": {"type": "integer", "value": "@outputs('One')"}}
        return loom.load({"definition": {"actions": actions, "outputs": outputs}})

    url = f"sqlite:///{tmp_path / 'runs.db'}"
    async with loom.connect(url, name="first") as first:
        first.register(flow(1), name="flow")
        await first.ready()
        async with loom.connect(url, name="second", when_locked="standby") as second:
            second.register(flow(2), name="flow")
            await second.ready()
            version = (await second.store.entry(DEFINITIONS, "flow")).version  # type: ignore[union-attr]
            assert (await asyncio.wait_for(await first.start("flow"), PATIENCE_S)).outputs == {"n": 1}
            await first.close()
            await until(lambda: second.role == "worker")
            assert (await asyncio.wait_for(await second.start("flow"), PATIENCE_S)).outputs == {"n": 2}
            assert (await second.store.entry(DEFINITIONS, "flow")).version > version  # type: ignore[union-attr]


def test_a_sync_standby_tells_its_role(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with loom.connect_sync(url, name="first") as first:
        first.register(Order(timeout=None), name="order")
        with loom.connect_sync(url, name="second", when_locked="standby") as second:
            second.register(Order(timeout=None), name="order")
            assert second.role == "standby"
            assert [(each.name, each.role) for each in second.workers()] == [("first", "worker"), ("second", "standby")]
