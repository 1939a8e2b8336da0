"""Looking for runs: `get`, and `list` with each of its filters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, result, until, until_idle, until_info, until_status

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, RunNotFound, StartEvent, StopEvent, step
from loom.runtime.durable.runtime import DurableRuntime


class Approval(HumanResponseEvent):
    ok: bool = True


class Signature(HumanResponseEvent):
    name: str = ""


class Question(InputRequiredEvent):
    pass


class Approve(Watched):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        approval = await ctx.wait_for_event(Approval, timeout=None)
        if not approval.ok:
            raise PermissionError("refused")
        return StopEvent(result="approved")


class Sign(Watched):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        signature = await ctx.wait_for_event(Signature, waiter_id="here", requirements={"name": "me"}, timeout=3600)
        return StopEvent(result=signature.name)


class Work(Watched):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await self.witness.at("work")
        return StopEvent()


class Parent(Watched):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        return StopEvent(result=await ctx.run_child("approve"))


class Interview(Watched):
    """Asks by an event and is answered by a step, without a wait."""

    @step
    async def ask(self, ev: StartEvent) -> Question:
        return Question()

    @step
    async def hear(self, ev: Approval) -> StopEvent:
        return StopEvent(result=ev.ok)


async def found(runtime: DurableRuntime, **filters: Any) -> list[str]:
    return [info.run_id async for info in runtime.list(**filters)]


async def test_what_is_not_there_is_not_found(deployment: Deployment) -> None:
    client = await deployment.open()
    with pytest.raises(RunNotFound, match="Run 'nobody' was not found"):
        await client.get("nobody")
    assert await found(client) == []


async def test_runs_are_found_by_what_they_are(deployment: Deployment, witness: Witness) -> None:
    witness.hold("work")
    runtime = await deployment.open({"approve": Approve(), "sign": Sign(), "work": Work(witness)})
    client = await deployment.open()
    for run_id in ("done", "failed", "cancelled", "waiting"):
        await runtime.start("approve", run_id=run_id, tags={"team": "x", "run": run_id})
        await until_idle(runtime, run_id)
    await runtime.send_event("done", Approval())
    await runtime.send_event("failed", Approval(ok=False))
    await runtime.cancel("cancelled")
    await runtime.start("sign", run_id="signing", tags={"team": "y"})
    await runtime.start("work", run_id="working", tags={"team": "x"})
    await until_status(runtime, "done", "completed")
    await until_status(runtime, "failed", "failed")
    await until_status(runtime, "cancelled", "cancelled")
    await until_idle(runtime, "signing")
    await witness.came("work")
    for each in (runtime, client):
        assert await found(each) == ["working", "signing", "waiting", "cancelled", "failed", "done"]
        assert await found(each, limit=2) == ["working", "signing"]
        assert await found(each, limit=0) == []
        assert await found(each, status="running") == ["working", "signing", "waiting"]
        assert await found(each, status="completed") == ["done"]
        assert await found(each, status="failed") == ["failed"]
        assert await found(each, status="cancelled") == ["cancelled"]
        assert await found(each, workflow="approve") == ["waiting", "cancelled", "failed", "done"]
        assert await found(each, workflow="nothing") == []
        assert await found(each, idle=True) == ["signing", "waiting"]
        assert await found(each, idle=False, status="running") == ["working"]
        assert await found(each, tags={"team": "x"}) == ["working", "waiting", "cancelled", "failed", "done"]
        assert await found(each, tags={"team": "x", "run": "done"}) == ["done"]
        assert await found(each, tags={"team": "z"}) == []
        assert await found(each, status="running", tags={"team": "x"}, idle=True) == ["waiting"]


async def test_runs_are_found_by_what_they_wait_for(deployment: Deployment) -> None:
    runtime = await deployment.open({"approve": Approve(), "sign": Sign(), "interview": Interview()})
    for name in ("approve", "sign", "interview"):
        await runtime.start(name, run_id=name)
        await until_idle(runtime, name)
    assert await found(runtime, waiting_for=Signature) == ["sign"]
    assert await found(runtime, waiting_for="Signature") == ["sign"]
    assert await found(runtime, waiting_for=f"{__name__}.Signature") == ["sign"]
    assert await found(runtime, waiting_for=Approval) == ["interview", "approve"]
    assert await found(runtime, waiting_for=Event) == []
    [waiter] = (await runtime.get("sign")).active_waiters
    assert waiter["step"] == "ask"
    assert waiter["event_type"].endswith(".Signature")
    assert waiter["waiter_id"] == "here"
    assert waiter["requirements"] == {"name": "me"}
    assert waiter["deadline"] == pytest.approx(waiter["since"] + 3600)
    [asked] = (await runtime.get("interview")).active_waiters
    assert asked["step"] == "hear"
    await runtime.send_event("sign", Signature(name="me"))
    await until_status(runtime, "sign", "completed")
    assert await found(runtime, waiting_for=Signature) == []
    assert (await runtime.get("sign")).active_waiters == []


async def test_runs_are_found_by_how_long_they_are_idle(deployment: Deployment) -> None:
    # The clock jumps: with a shorter lease the process might find that it has lost it, and take its runs up anew; and
    # runs that have a timeout would reach it.
    runtime = await deployment.open({"approve": Approve(timeout=None)}, lease=100_000)
    await runtime.start("approve", run_id="old")
    info = await until_idle(runtime, "old")
    assert info.idle_since is not None
    assert abs(info.idle_since.timestamp() - deployment.clock()) < 60
    deployment.clock.ahead_s += 1000
    await runtime.start("approve", run_id="new")
    await until_idle(runtime, "new")
    assert await found(runtime, idle_longer_than=500) == ["old"]
    assert await found(runtime, idle_longer_than=5000) == []
    assert await found(runtime, idle_longer_than=0) == ["new", "old"]
    assert await found(runtime, idle_longer_than=500, waiting_for=Approval, workflow="approve") == ["old"]


async def test_idleness_is_kept_across_a_crash(deployment: Deployment) -> None:
    first = await deployment.open({"approve": Approve()})
    await first.start("approve", run_id="a")
    before = await until_idle(first, "a")
    await deployment.crash(first)
    client = await deployment.open_reader({"approve": Approve()})
    after = await client.get("a")
    assert (after.idle_since, after.active_waiters) == (before.idle_since, before.active_waiters)
    assert await found(client, idle=True, waiting_for=Approval) == ["a"]


async def test_paused_runs_and_children_are_found(deployment: Deployment) -> None:
    runtime = await deployment.open({"approve": Approve(), "parent": Parent()})
    handler = await runtime.start("parent", run_id="p")
    await runtime.start("approve", run_id="a")
    await until_info(runtime, "p", lambda info: info.ticks > 1)
    [child] = await until(lambda: found(runtime, parent_id="p"), "the child")
    assert (await runtime.get(child)).parent_id == "p"
    assert await found(runtime, parent_id="a") == []
    await runtime.pause("a")
    await until_info(runtime, "a", lambda info: info.paused)
    assert await found(runtime, paused=True) == ["a"]
    assert set(await found(runtime, paused=False)) == {"p", child}
    assert await found(runtime, parked=True) == []
    assert set(await found(runtime, parked=False)) == {"a", "p", child}
    await until_idle(runtime, child)
    await runtime.send_event(child, Approval())
    assert await result(handler) == "approved"


async def test_a_long_list_comes_in_pieces(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loom.runtime.durable.run_client._PAGE", 40)
    client = await deployment.open_reader({"approve": Approve()})
    many = 90
    for number in range(many):
        await client.start("approve", run_id=f"{number:03}", tags={"odd": str(number % 2)})

    async def all_are_listed() -> bool:
        return (await client.store.counts())["running"] == many

    await until(all_are_listed)
    assert await found(client) == [f"{number:03}" for number in reversed(range(many))]
    assert await found(client, limit=many - 5) == [f"{number:03}" for number in reversed(range(5, many))]
    assert len(await found(client, tags={"odd": "1"})) == many // 2


async def test_times_are_dates(deployment: Deployment) -> None:
    runtime = await deployment.open({"work": Work()})
    await result(await runtime.start("work", run_id="a"))
    info = await runtime.get("a")
    assert info.created_at.tzinfo is UTC
    assert info.ended_at is not None
    assert info.created_at <= info.ended_at
    assert abs((datetime.now(UTC) - info.created_at).total_seconds()) < 60
