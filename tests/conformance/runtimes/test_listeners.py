"""Triggers that poll and subscribe: no item is lost, and none starts two runs, wherever a process dies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from runtime_deployments import Deployment
from runtime_watching import Witness, until

import loom
from loom.effects.actions.handlers import ActionHandlers
from loom.runtime.durable.listener_starts import ItemStarts, StartedItems
from loom.runtime.durable.listeners_run import TriggerCalled
from loom.runtime.durable.runtime import DurableRuntime

QUICK: dict[str, Any] = {"poll_interval": 0.05}
ITEMS = [f"item {number}" for number in range(7)]


class Queue:
    """A service that gives out what it has once: what is lost on the way is lost for good."""

    def __init__(self, *batches: list[str]) -> None:
        self.batches = list(batches)
        self.asked: list[Any] = []
        self.handlers = ActionHandlers()
        self.handlers.connector("queue")(self.answer)

    async def answer(self, inputs: dict[str, Any]) -> Any:
        self.asked.append(inputs)
        if inputs.get("path") != "/messages":
            return {"statusCode": 201, "headers": {"Location": "/subscriptions/1"}}
        return {"body": {"items": self.batches.pop(0)}} if self.batches else None


def flow(kind: str = "ApiConnection") -> loom.Flow:
    path = "/messages" if kind == "ApiConnection" else "/subscribe"
    trigger = {
        "type": kind,
        "inputs": {"host": {"connection": {"referenceName": "queue"}}, "path": path},
        "recurrence": {"frequency": "Minute", "interval": 1},
        "splitOn": "@triggerBody()?['items']",
    }
    echo = {"type": "Compose", "inputs": "@triggerBody()", "runAfter": {}}
    return loom.load({"triggers": {"new": trigger}, "actions": {"Echo": echo}}, name="orders")


async def opened(deployment: Deployment, queue: Queue, kind: str = "ApiConnection") -> DurableRuntime:
    options = {"handlers": queue.handlers, "callback_url": "https://loom.example", **QUICK}
    return await deployment.open({"orders": flow(kind)}, **options)


async def until_all_came(runtime: DurableRuntime, items: list[str]) -> list[str]:
    """Wait until there is a run for each item. Return what each run was started with."""

    async def all_came() -> list[str] | None:
        infos = [info async for info in runtime.list(workflow="orders")]
        if len(infos) < len(items) or any(info.status == "running" for info in infos):
            return None
        results = [await (await runtime.handler(info.run_id)) for info in infos]
        return [result.actions["Echo"].outputs for result in results]

    found = await until(all_came, f"{len(items)} runs") if items else []
    assert found is not None
    return found


async def until_told(runtime: DurableRuntime, code: str) -> None:
    """Wait until the history has a firing with a code."""

    async def told() -> bool:
        return code in [each.code for each in (await runtime.trigger_history("orders")).firings]

    await until(told, f"the firing {code}")


async def test_what_a_poll_brings_starts_runs(deployment: Deployment) -> None:
    queue = Queue(ITEMS)
    runtime = await opened(deployment, queue)
    assert sorted(await until_all_came(runtime, ITEMS)) == ITEMS
    await until_told(runtime, "OK")
    queue.batches.append(["another"])
    await runtime.fire_trigger("orders")
    assert sorted(await until_all_came(runtime, [*ITEMS, "another"])) == ["another", *ITEMS]


@pytest.mark.parametrize("started", [0, 3, 7], ids=["before the first", "in the middle", "after the last"])
async def test_a_death_between_poll_and_starts_loses_nothing_and_starts_nothing_twice(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch, started: int
) -> None:
    whole = ItemStarts.start

    async def held(self: ItemStarts, items: list[Any], outputs: dict[str, Any]) -> StartedItems:
        await whole(self, items[:started], outputs)
        witness.saw("started")
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(ItemStarts, "start", held)
    queue = Queue(ITEMS)
    first = await opened(deployment, queue)
    await witness.came("started")
    await until_all_came(first, ITEMS[:started])
    await deployment.crash(first)
    monkeypatch.setattr(ItemStarts, "start", whole)
    second = await opened(deployment, queue)
    assert sorted(await until_all_came(second, ITEMS)) == ITEMS
    await until_told(second, "OK")
    assert sorted(await until_all_came(second, ITEMS)) == ITEMS
    told = await second.trigger_history("orders")
    assert [(each.status, each.runs) for each in told.firings if each.code == "OK"] == [("succeeded", len(ITEMS))]


async def test_a_call_that_was_stored_starts_its_runs_wherever_the_process_dies(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ItemStarts.start

    async def held(self: ItemStarts, items: list[Any], outputs: dict[str, Any]) -> StartedItems:
        await whole(self, items[:3], outputs)
        witness.saw("started")
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(ItemStarts, "start", held)
    queue = Queue()
    first = await opened(deployment, queue, "ApiConnectionWebhook")
    await until_told(first, "Subscribed")
    event = TriggerCalled(call_id="c1", body={"items": ITEMS})
    await first.send_event("trigger:orders:new", event, event_id="called:c1")
    await witness.came("started")
    await until_all_came(first, ITEMS[:3])
    await deployment.crash(first)
    monkeypatch.setattr(ItemStarts, "start", whole)
    second = await opened(deployment, queue, "ApiConnectionWebhook")
    assert not await second.send_event("trigger:orders:new", event, event_id="called:c1")
    assert sorted(await until_all_came(second, ITEMS)) == ITEMS
    await until_told(second, "OK")
    assert sorted(await until_all_came(second, ITEMS)) == ITEMS
    assert len(queue.asked) == 1
