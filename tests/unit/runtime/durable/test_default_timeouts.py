"""Which runs time out by themselves: in memory after 45 s, in a store only if a timeout was asked for."""

from __future__ import annotations

import inspect
from typing import Any

import httpx2
import pytest

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, WorkflowTimeoutError, step
from loom.core.state import BrokerConfig
from loom.runtime.durable.runtime import DurableRuntime
from loom.server.app import create_app
from loom.steps.ports import definition_of
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual

HOUR = 3600.0


class Word(HumanResponseEvent):
    pass


class Other(HumanResponseEvent):
    pass


class Asks(Workflow):
    """Sleeps for as long as it is told, then waits."""

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if ev.get("child"):
            return StopEvent(result=await ctx.run_child(Asks(), seconds=ev.seconds))
        await ctx.sleep(ev.seconds)
        return StopEvent(result="rested")


class Fails(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Word, timeout=None)
        raise ValueError("no")


class FailsOtherwise(Fails):
    @step
    async def more(self, ev: Other) -> StopEvent:
        return StopEvent()


def runtime_over(database: MemoryDatabase | None = None, **workflows: Workflow) -> DurableRuntime:
    """A worker that looks at the store once a day: looking takes time even where the clock is virtual."""
    runtime = loom.connect(MemoryStore(database or MemoryDatabase()), poll_interval=86_400, lease=3 * 86_400)
    for name, workflow in workflows.items():
        runtime.register(workflow, name=name)
    return runtime


async def timeout_of(runtime: DurableRuntime, run_id: str) -> tuple[float | None, bool]:
    """The timeout that a run was given, and whether it has a deadline."""
    state = await runtime.state_at(run_id)
    return state.config.timeout_s, state.deadline is not None


# --- who has one


def test_the_default_is_45_s_and_whether_it_was_asked_for_is_kept_apart() -> None:
    assert inspect.signature(Workflow).parameters["timeout"].default == 45.0
    for workflow in (Asks(), Asks(timeout=45.0)):
        assert (type(workflow._timeout), workflow._timeout) == (float, 45.0)
        assert definition_of(workflow).config().timeout_s == 45.0
    assert [definition_of(asks).limits.keeps_timeout for asks in (Asks(), Asks(timeout=45.0))] == [True, False]
    assert definition_of(Asks()).config(stored=True).timeout_s is None
    assert definition_of(Asks(timeout=45.0)).config(stored=True).timeout_s == 45.0
    assert definition_of(Asks(timeout=None)).config(stored=True).timeout_s is None


def test_a_subclass_that_hands_its_default_on_asks_for_it() -> None:
    class Short(Asks):
        def __init__(self, timeout: float | None = 10.0, **options: Any) -> None:
            super().__init__(timeout, **options)

    class Open(Asks):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)

    assert definition_of(Short()).config(stored=True).timeout_s == 10.0
    assert definition_of(Open()).config(stored=True).timeout_s is None


def test_a_plain_run_in_memory_keeps_45_s() -> None:
    async def main() -> None:
        with pytest.raises(WorkflowTimeoutError, match=r"after 45\.0 seconds"):
            await Asks().run(seconds=HOUR)

    run_virtual(main())


@pytest.mark.parametrize("child", [False, True])
def test_runs_in_a_store_have_none(child: bool) -> None:
    async def main() -> None:
        async with runtime_over(asks=Asks()) as runtime:
            assert await (await runtime.start("asks", {"seconds": 0})) == "rested"
            by_name = await runtime.start("asks", {"seconds": HOUR, "child": child}, run_id="a")
            by_run = Asks(runtime=runtime).run(seconds=HOUR, child=child, run_id="b")
            assert (await by_name, await by_run) == ("rested", "rested")
            assert [await timeout_of(runtime, run_id) for run_id in "ab"] == [(None, False)] * 2

    run_virtual(main())


def test_runs_by_the_server_have_none() -> None:
    async def main() -> None:
        async with runtime_over(asks=Asks()) as runtime:
            transport = httpx2.ASGITransport(app=create_app(runtime), client=("127.0.0.1", 1234))
            async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                body = {"workflow": "asks", "input": {"seconds": HOUR}, "run_id": "a"}
                assert (await client.post("/v1/runs", json=body)).status_code == 201
            assert await (await runtime.handler("a")) == "rested"

    run_virtual(main())


def test_one_that_was_asked_for_holds_in_a_store_too() -> None:
    async def main() -> None:
        async with runtime_over(asks=Asks(timeout=45)) as runtime:
            with pytest.raises(WorkflowTimeoutError, match=r"after 45\.0 seconds"):
                await (await runtime.start("asks", {"seconds": HOUR}))

    run_virtual(main())


def test_flows_have_none_anywhere() -> None:
    wait = {"type": "Wait", "inputs": {"interval": {"count": 2, "unit": "Hour"}}}
    flow = loom.load({"definition": {"actions": {"Rest": wait}}})
    assert definition_of(flow).config().timeout_s is None
    assert definition_of(flow).config(stored=True) == definition_of(flow).config()

    async def main() -> None:
        assert (await flow.run()).status == "Succeeded"

    run_virtual(main())


# --- runs that are stored already


def test_a_stored_run_keeps_the_timeout_that_it_began_with() -> None:
    """What a version stored that gave every run 45 s is what `timeout=45.0` stores."""
    old = Fails(timeout=45.0)
    assert definition_of(old).config(stored=True) == BrokerConfig(
        old.workflow_name, definition_of(old).config().steps, 45.0
    ).limited(10_000)

    async def main() -> None:
        database = MemoryDatabase()
        async with runtime_over(database, fails=old) as runtime:
            await runtime.start("fails", run_id="a")
            await runtime.start("fails", run_id="b")
        for code in (Fails(), FailsOtherwise()):  # the same steps, then other ones
            async with runtime_over(database, fails=code) as runtime:
                assert await timeout_of(runtime, "a") == (45.0, True)
                await runtime.send_event("b", Word())
                with pytest.raises(ValueError, match="no"):
                    await (await runtime.handler("b"))
                await runtime.retry("b")
                assert (await timeout_of(runtime, "b"))[0] == 45.0
        async with runtime_over(database, fails=Fails()) as runtime:
            with pytest.raises(WorkflowTimeoutError, match=r"after 45\.0 seconds"):
                await (await runtime.handler("a"))
            await runtime.retry("a")
            with pytest.raises(WorkflowTimeoutError, match=r"after 45\.0 seconds"):
                await (await runtime.handler("a"))

    run_virtual(main())


def test_a_stored_run_without_one_gets_none() -> None:
    async def main() -> None:
        database = MemoryDatabase()
        async with runtime_over(database, fails=Fails()) as runtime:
            await runtime.start("fails", run_id="a")
        async with runtime_over(database, fails=FailsOtherwise()) as runtime:
            await runtime.send_event("a", Word())
            with pytest.raises(ValueError, match="no"):
                await (await runtime.handler("a"))
            await runtime.retry("a")
            assert await timeout_of(runtime, "a") == (None, False)

    run_virtual(main())


def test_a_recovery_by_the_same_code_brings_no_config() -> None:
    async def main() -> None:
        database = MemoryDatabase()
        for number, code in enumerate((Fails(timeout=45.0), Fails(), Fails())):
            async with runtime_over(database, fails=code) as runtime:
                if number == 0:
                    await runtime.start("fails", run_id="a")
                await runtime.send_event("a", Word(), event_id=str(number)) if number == 2 else None
        async with runtime_over(database) as runtime:
            ticks = [tick async for _, _, tick in runtime.history("a")]
        resumed = [tick for tick in ticks if type(tick).__name__ == "TickResume"]
        assert resumed
        assert [tick.config for tick in resumed] == [None] * len(resumed)

    run_virtual(main())
