"""Forged events: a key for answers cannot make a run skip a step, and nobody speaks for the engine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "server"))

from server_serving import Served

import loom
from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.server.settings import ServerSettings


class Order(StartEvent):
    total: int = 0


class Ask(InputRequiredEvent):
    total: int


class Decision(HumanResponseEvent):
    approved: bool = True


class Pay(Event):
    total: int = 0


class Hint(Event):
    text: str = ""


class Receipt(Event):
    number: int = 0


class Address(Event):
    street: str = ""


class Paying(Workflow):
    """Pays when the manager has said so, and asks for an address and a receipt."""

    @step
    async def ask(self, ev: Order) -> Ask:
        return Ask(total=ev.total)

    @step
    async def decide(self, ev: Decision) -> Pay | StopEvent:
        return Pay(total=7) if ev.approved else StopEvent(result="no")

    @step(external_events=[Address])
    async def pay(self, ctx: Context, ev: Pay) -> StopEvent:
        if ev.total < 0:
            raise ValueError("negative")
        address = await ctx.wait_for_event(Address)
        receipt = await ctx.wait_for_event(Receipt, requirements={"number": 5})
        return StopEvent(result=f"paid {ev.total} to {address.street}, {receipt.number}")

    @step(external_events=[Hint])
    async def hinted(self, ev: Hint) -> None:
        """A note for the record."""


WAITS: dict[str, Any] = {
    "definition": {
        "actions": {
            "First": {"type": "waitForEvent", "inputs": {"event": "Go", "schema": {"type": "object"}}, "runAfter": {}},
            "Then": {"type": "waitForEvent", "inputs": {"event": "Stop"}, "runAfter": {"First": ["Succeeded"]}},
            "Last": {
                "type": "waitForEvent",
                "inputs": {"event": "@concat('Ma', 'de')"},
                "runAfter": {"Then": ["Succeeded"]},
            },
        }
    }
}
ACTOR: dict[str, Any] = {
    "definition": {
        "actions": {
            "Tell": {
                "type": "actor",
                "inputs": {"actorType": "forged-bank", "actorId": "7", "input": 1},
                "runAfter": {},
            }
        }
    }
}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with loom.connect("memory://") as runtime:
        runtime.register(Paying(timeout=None), name="paying")
        runtime.register(loom.load(WAITS), name="waits")
        runtime.register(loom.load(ACTOR), name="actor")
        yield Served(runtime, ServerSettings())


@pytest.fixture
async def admin(served: Served) -> AsyncIterator[httpx2.AsyncClient]:
    async with served.client(await served.key("admin")) as found:
        yield found


@pytest.fixture
async def clerk(served: Served) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody who may answer, start and look."""
    async with served.client(await served.key("event", "start", "read")) as found:
        yield found


async def started(served: Served, workflow: str = "paying", run_id: str = "r") -> None:
    await served.runtime.start(workflow, {"total": 7} if workflow == "paying" else None, run_id=run_id)
    await served.until_waiting(run_id)


def own(type_: str, value: Any = None, **more: Any) -> dict[str, Any]:
    return {"path": "/v1/runs/r/events", "json": {"type": type_, "value": value or {}, **more}}


def compatible(type_: str, value: Any = None, **more: Any) -> dict[str, Any]:
    return {"path": "/events/r", "json": {"event": {"type": type_, "value": value or {}}, **more}}


async def sent(client: httpx2.AsyncClient, how: dict[str, Any], **more: Any) -> httpx2.Response:
    return await client.post(how["path"], json=how["json"], **more)


async def acts(client: httpx2.AsyncClient) -> list[tuple[str, str, str | None, int]]:
    items = (await client.get("/v1/audit")).json()["items"]
    return [(act["action"], act["target"], act["made"], act["outcome"]) for act in items]


async def ticks(client: httpx2.AsyncClient) -> int:
    return int((await client.get("/v1/runs/r")).json()["tick"])


# -- steps ------------------------------------------------------------------------------------------------------------


FORGED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("Pay", {"total": 1_000_000}, {}),
    ("Pay", {"total": 1_000_000}, {"step": "pay"}),
    ("Order", {"total": 0}, {}),
    ("StartEvent", {}, {}),
    ("StopEvent", {"result": "paid"}, {}),
    ("Ask", {"total": 1}, {}),
    ("Receipt", {"number": 5}, {}),
]


@pytest.mark.parametrize("form", [own, compatible])
async def test_a_key_for_answers_skips_no_step(
    served: Served, clerk: httpx2.AsyncClient, admin: httpx2.AsyncClient, form: Any
) -> None:
    await started(served)
    before = await ticks(clerk)
    for type_, value, more in FORGED:
        answer = await sent(clerk, form(type_, value, **more))
        assert answer.status_code == 403, answer.text
        advice = "'admin'" if type_ in ("Order", "StartEvent", "StopEvent") else f"@step(external_events=[{type_}])"
        assert advice in answer.json()["detail"]
        [(action, target, made, outcome), *_] = await acts(admin)
        assert (action, target, outcome) == ("run.event", "r", 403)
        assert (made or "").rpartition(".")[2] == type_
    assert await ticks(clerk) == before


@pytest.mark.parametrize("form", [own, compatible])
async def test_a_key_for_answers_sends_what_is_asked_for_taken_or_declared(
    served: Served, clerk: httpx2.AsyncClient, form: Any
) -> None:
    await started(served)
    for type_, value in (("Hint", {"text": "x"}), ("Address", {"street": "early"}), ("Decision", {"approved": True})):
        answer = await sent(clerk, form(type_, value))
        assert answer.status_code == 200, answer.text
    await until(served, "Receipt")
    assert (await sent(clerk, form("Receipt", {"number": 5}))).status_code == 200
    result = await (await served.runtime.handler("r"))
    assert result == "paid 7 to early, 5"


async def until(served: Served, type_: str) -> None:
    """Return once the run waits for a type."""
    async with asyncio.timeout(60):
        while type_ not in (await served.runtime.row("r")).head.waiting_for:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_step_that_is_named_must_be_the_one_that_takes_or_declares_it(
    served: Served, clerk: httpx2.AsyncClient
) -> None:
    await started(served)
    for name in ("pay", "ask", "decide"):
        answer = await sent(clerk, own("Hint", step=name))
        assert answer.status_code == 403, (name, answer.text)
    assert (await sent(clerk, own("Hint", step="hinted"))).status_code == 200
    assert (await sent(clerk, own("Decision", {"approved": False}, step="decide"))).status_code == 200
    assert await (await served.runtime.handler("r")) == "no"


class Both(Workflow):
    """Waits for a payment of its own, and takes payments from another step."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Pay | None:
        await ctx.wait_for_event(Pay, requirements={"total": 1})
        await ctx.wait_for_event(Decision)
        return Pay(total=2)

    @step
    async def pay(self, ev: Pay) -> StopEvent:
        return StopEvent(result=ev.total)


async def test_a_type_that_is_awaited_and_taken_must_be_just_what_is_awaited(
    served: Served, clerk: httpx2.AsyncClient
) -> None:
    served.runtime.register(Both(timeout=None), name="both")
    await served.runtime.start("both", run_id="r")
    await served.until_waiting("r")
    assert (await sent(clerk, own("Pay", {"total": 99}))).status_code == 403
    assert (await sent(clerk, own("Pay", {"total": 1}, step="pay"))).status_code == 403
    assert (await sent(clerk, own("Pay", {"total": 1}, waiter_id="another"))).status_code == 403
    # Several at once: when the first has its waiter, none of the others may reach the step.
    found = await asyncio.gather(*(sent(clerk, own("Pay", {"total": 1})) for _ in range(5)))
    assert {answer.status_code for answer in found} <= {200, 403}
    await until(served, "Decision")
    assert (await clerk.get("/v1/runs/r")).json()["status"] == "running"
    assert (await sent(clerk, own("Decision"))).status_code == 200
    assert await (await served.runtime.handler("r")) == 2


async def test_an_administrator_reaches_waiters_and_steps(served: Served, admin: httpx2.AsyncClient) -> None:
    served.runtime.register(Both(timeout=None), name="both")
    await served.runtime.start("both", run_id="r")
    await served.until_waiting("r")
    assert (await sent(admin, own("Pay", {"total": 1}))).status_code == 200
    assert await (await served.runtime.handler("r")) == 1
    assert await acts(admin) == [("run.event", "r", f"{__name__}.Pay", 200)]


async def test_a_repeated_answer_is_no_forged_one(served: Served, clerk: httpx2.AsyncClient) -> None:
    await started(served)
    assert (await sent(clerk, own("Decision", event_id="d"))).json()["duplicate"] is False
    assert (await sent(clerk, own("Address", {"street": "s"}))).status_code == 200
    await until(served, "Receipt")
    once = {"Idempotency-Key": "k"}
    first = await sent(clerk, own("Receipt", {"number": 5}), headers=once)
    assert first.status_code == 200
    # The run has ended, or will within a turn: it waits for none of this any more.
    await (await served.runtime.handler("r"))
    again = await sent(clerk, own("Receipt", {"number": 5}), headers=once)
    assert (again.json(), again.headers["idempotent-replay"]) == (first.json(), "true")
    assert (await sent(clerk, own("Decision", event_id="d"))).json()["duplicate"] is True
    assert (await sent(clerk, own("Pay", event_id="d"))).json()["duplicate"] is True
    assert (await sent(clerk, own("Receipt", event_id="new"))).json()["code"] == "run-finished"
    assert (await sent(clerk, own("Pay"))).json()["code"] == "run-finished"


class Twice(Workflow):
    """Asks for one thing after the other."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        first = await ctx.wait_for_event(Receipt)
        second = await ctx.wait_for_event(Address)
        return StopEvent(result=(first.number, second.street))


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_an_answer_that_is_taken_can_be_repeated_while_the_run_goes_on(store: str, tmp_path: Path) -> None:
    url = "memory://" if store == "memory" else f"sqlite:///{tmp_path}/runs.db"
    async with loom.connect(url) as runtime:
        runtime.register(Twice(timeout=None), name="twice")
        served = Served(runtime, ServerSettings())
        await runtime.start("twice", run_id="r")
        await until(served, "Receipt")
        async with served.client(await served.key("event")) as clerk:
            first = own("Receipt", {"number": 1}, event_id="a")
            assert (await sent(clerk, first)).json()["duplicate"] is False
            await until(served, "Address")
            assert (await sent(clerk, first)).json()["duplicate"] is True
            assert (await sent(clerk, own("Receipt", {"number": 1}, event_id="b"))).status_code == 403
            assert (await runtime.get("r")).kept_events == 0
            assert (await sent(clerk, own("Address", {"street": "s"}))).status_code == 200
        assert await (await runtime.handler("r")) == (1, "s")


@pytest.mark.parametrize("form", [own, compatible])
async def test_an_administrator_may_send_any_type_and_that_is_recorded(
    served: Served, admin: httpx2.AsyncClient, form: Any
) -> None:
    await started(served)
    assert (await sent(admin, form("Decision", {"approved": True}))).status_code == 200
    assert await acts(admin) == []
    answer = await sent(admin, form("Pay", {"total": 3}))
    assert answer.status_code == 200
    assert await acts(admin) == [("run.event", "r", f"{__name__}.Pay", 200)]


async def test_without_keys_a_caller_on_this_machine_is_an_administrator(served: Served) -> None:
    await started(served)
    async with served.client() as local:
        assert (await sent(local, own("Pay", {"total": 3}))).status_code == 200
        assert await acts(local) == [("run.event", "r", f"{__name__}.Pay", 200)]
        assert (await local.get("/v1/audit")).json()["items"][0]["actor"] == "local"


# -- the engine's own -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [own, compatible])
async def test_nobody_speaks_for_the_engine(
    served: Served, admin: httpx2.AsyncClient, clerk: httpx2.AsyncClient, form: Any
) -> None:
    """Also as an event of a flow, which may have any name."""
    await started(served, "waits")
    engines = ["loom.flows.ActorMessage", "loom.flows.ActorReply", "workflows.events.StepFailedEvent", "loom.Anything"]
    for type_ in engines:
        for client in (admin, clerk):
            answer = await sent(client, form("loom.flows.FlowEvent", {"name": type_, "data": {"key": "k"}}))
            assert answer.status_code == 403, answer.text
            assert "engine" in answer.json()["detail"]
        assert ("run.event", "r", type_, 403) in await acts(admin)


async def test_a_reply_that_a_run_waits_for_comes_from_its_actor_alone(
    served: Served, admin: httpx2.AsyncClient
) -> None:
    release = asyncio.Event()

    @loom.actor("forged-bank")
    async def bank(amount: int) -> str:
        await release.wait()
        return f"paid {amount}"

    await served.runtime.start("actor", run_id="r")
    await served.until_waiting("r")
    [waiter] = (await admin.get("/v1/runs/r")).json()["active_waiters"]
    assert waiter["event_type"] == "loom.flows.ActorReply"
    forged = {"key": waiter["requirements"]["key"], "status": "Succeeded", "outputs": "forged"}
    for type_, value in (
        ("loom.flows.ActorReply", forged),
        ("loom.flows.FlowEvent", {"name": "loom.flows.ActorReply", "data": forged}),
    ):
        answer = await sent(admin, own(type_, value))
        assert answer.status_code == 403, answer.text
    # By its short name it is some event of that name, which nobody waits for.
    assert (await sent(admin, own("ActorReply", forged))).json()["delivered"] == "kept"
    message = {"key": "x", "actor_type": "forged-bank", "reply_to": "r", "input": 9}
    for type_ in ("ActorMessage", "loom.flows.ActorMessage"):
        answer = await admin.post("/v1/runs/actor:forged-bank:7/events", json={"type": type_, "value": message})
        assert answer.status_code == 403, answer.text
    release.set()
    result = await (await served.runtime.handler("r"))
    assert result.actions["Tell"].outputs == "paid 1"


# -- flows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [own, compatible])
async def test_a_flow_takes_what_its_actions_wait_for(
    served: Served, clerk: httpx2.AsyncClient, admin: httpx2.AsyncClient, form: Any
) -> None:
    await started(served, "waits")
    # Early: the second event is named in the document, the third is made up by the run.
    assert (await sent(clerk, form("Stop", {"a": 1}))).status_code == 200
    early = await sent(clerk, form("Made", {"a": 1}))
    assert early.status_code == 403
    assert "waitForEvent" in early.json()["detail"]
    assert (await sent(clerk, form("Nothing", {}))).status_code == 403
    assert (await sent(clerk, form("StartEvent", {}))).status_code == 403
    assert (await sent(clerk, form("child run", {}))).status_code == 403
    assert (await sent(clerk, form("Go", {"a": 1}))).status_code == 200
    await until(served, "Made")
    assert (await sent(clerk, form("Made", {"a": 2}))).status_code == 200
    assert (await (await served.runtime.handler("r"))).status == "Succeeded"


# -- healing ----------------------------------------------------------------------------------------------------------


async def failed_at(served: Served, *events: Event) -> None:
    """A run that has failed in `pay`, for the order that was forged by an administrator."""
    await started(served)
    for event in events:
        await served.runtime.send_event("r", event)
    with pytest.raises(ValueError, match="negative"):
        await (await served.runtime.handler("r"))


async def test_a_retry_with_an_internal_event_needs_an_administrator(
    served: Served, clerk: httpx2.AsyncClient, admin: httpx2.AsyncClient
) -> None:
    await failed_at(served, Pay(total=-1))
    better = {"event": {"type": "Pay", "value": {"total": 5}}}
    refused = await clerk.post("/v1/runs/r/retry", json=better)
    assert refused.status_code == 403
    assert "@step(external_events=[Pay])" in refused.json()["detail"]
    assert (await clerk.get("/v1/runs/r")).json()["status"] == "failed"
    assert (await admin.post("/v1/runs/r/retry", json=better)).status_code == 202
    assert (await acts(admin))[:2] == [
        ("run.retry", "r", f"{__name__}.Pay", 202),
        ("run.retry", "r", f"{__name__}.Pay", 403),
    ]


class Picky(Workflow):
    """Fails on what it begins with, or on the answer it gets."""

    @step
    async def begin(self, ctx: Context, ev: Order) -> StopEvent:
        if ev.total < 0:
            raise ValueError("negative")
        receipt = await ctx.wait_for_event(Receipt)
        if receipt.number < 0:
            raise ValueError("negative")
        return StopEvent(result=receipt.number)


async def test_a_retry_may_replace_what_a_run_began_with_and_what_it_had_asked_for(
    served: Served, clerk: httpx2.AsyncClient
) -> None:
    served.runtime.register(Picky(timeout=None), name="picky")
    handler = await served.runtime.start("picky", {"total": -1}, run_id="r")
    with pytest.raises(ValueError, match="negative"):
        await handler
    better = {"event": {"type": "Order", "value": {"total": 5}}}
    assert (await clerk.post("/v1/runs/r/retry", json=better)).status_code == 202
    await until(served, "Receipt")
    assert (await sent(clerk, own("Receipt", {"number": -1}))).status_code == 200
    with pytest.raises(ValueError, match="negative"):
        await (await served.runtime.handler("r"))
    better = {"event": {"type": "Receipt", "value": {"number": 6}}}
    assert (await clerk.post("/v1/runs/r/retry", json=better)).status_code == 202
    assert await (await served.runtime.handler("r")) == 6


# -- what is shown ----------------------------------------------------------------------------------------------------


async def test_the_schema_lists_what_may_come_from_outside(served: Served, clerk: httpx2.AsyncClient) -> None:
    steps = (await clerk.get("/v1/definitions/paying/schema")).json()
    assert sorted(schema["title"] for schema in steps["events"]) == ["Address", "Decision", "Hint", "Receipt"]
    flow = (await clerk.get("/v1/definitions/waits/schema")).json()
    assert [schema["title"] for schema in flow["events"]] == ["Go", "Stop", "FlowEvent"]
    assert flow["events"][0]["type"] == "object"
    assert (await clerk.get("/v1/definitions/actor/schema")).json()["events"] == []


async def test_a_run_without_code_takes_only_what_it_waits_for_now(served: Served, clerk: httpx2.AsyncClient) -> None:
    """Another process works on the run: nobody here can tell an answer from what its steps pass between them."""
    await started(served)
    del served.runtime.codes["paying"]
    assert (await sent(clerk, own(f"{__name__}.Address"))).status_code == 403
    assert (await sent(clerk, own(f"{__name__}.Pay"))).status_code == 403
    assert (await sent(clerk, own(f"{__name__}.Decision"))).status_code == 200
