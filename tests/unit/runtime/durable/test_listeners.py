"""Triggers that poll and subscribe, over hours, under a virtual clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

import loom
from loom.api.definitions import TriggerHistory
from loom.effects.actions.handlers import ActionHandlers
from loom.runtime.durable.listeners_run import TriggerCalled
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.durable.stored_definitions import DefinitionNotFound
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual

HOUR = 3600.0
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()


def queue_flow(**fields: Any) -> loom.Flow:
    """A flow that a connection's queue fires once an hour."""
    trigger = {
        "type": "ApiConnection",
        "inputs": {"host": {"connection": {"referenceName": "queue"}}, "method": "get", "path": "/messages"},
        "recurrence": {"frequency": "Hour", "interval": 1},
        **fields,
    }
    echo = {"type": "Compose", "inputs": "@triggerBody()", "runAfter": {}}
    return loom.load({"triggers": {"new": trigger}, "actions": {"Echo": echo}}, name="orders")


class Service:
    """A service that a function serves, and what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answers = list(answers)
        self.handlers = ActionHandlers()
        self.handlers.connector("queue")(self.answer)

    async def answer(self, inputs: dict[str, Any]) -> Any:
        self.asked.append(inputs)
        found = self.answers.pop(0) if self.answers else None
        if isinstance(found, Exception):
            raise found
        return found


def virtually(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(main(), start=NOON)


def open_runtime(service: Service, database: MemoryDatabase | None = None, **options: Any) -> DurableRuntime:
    store = MemoryStore(database or MemoryDatabase())
    return loom.connect(store, poll_interval=HOUR, lease=3 * HOUR, handlers=service.handlers, **options)


async def bodies(runtime: DurableRuntime) -> list[Any]:
    """What the runs of the flow were started with, oldest first."""
    found = []
    async for info in runtime.list(workflow="orders"):
        result = await (await runtime.handler(info.run_id))
        found.append(result.actions["Echo"].outputs)
    return found[::-1]


def outcomes(history: TriggerHistory) -> list[tuple[str, str, int, int]]:
    return [(each.status, each.code, each.runs, each.repeats) for each in history.firings]


def test_a_connection_is_polled_as_its_recurrence_says() -> None:
    async def main() -> None:
        service = Service({"body": {"n": 1}}, None, None, {"body": {"n": 2}})
        async with open_runtime(service) as runtime:
            runtime.register(queue_flow(), name="orders")
            await asyncio.sleep(3.5 * HOUR)
            assert len(service.asked) == 4
            assert service.asked[0]["path"] == "/messages"
            assert await bodies(runtime) == [{"n": 1}, {"n": 2}]
            history = await runtime.trigger_history("orders")
            assert outcomes(history) == [
                ("succeeded", "OK", 1, 0),
                ("skipped", "Accepted", 0, 1),
                ("succeeded", "OK", 1, 0),
            ]
            assert history.next_at == datetime.fromtimestamp(NOON + 4 * HOUR, tz=UTC)
            run = [info async for info in runtime.list(workflow="orders")][-1]
            assert (run.run_id, run.tags) == ("orders:new:1:1:0", {"loom.trigger": "new"})

    virtually(main)


def test_an_item_of_split_on_is_a_run_and_conditions_hold_first() -> None:
    async def main() -> None:
        flow = queue_flow(
            splitOn="@triggerBody()?['items']",
            conditions=[{"expression": "@not(equals(length(triggerBody()?['items']), 1))"}],
        )
        service = Service({"body": {"items": [1]}}, {"body": {"items": [1, 2, 3]}}, {"body": {"items": []}})
        async with open_runtime(service) as runtime:
            runtime.register(flow, name="orders")
            await asyncio.sleep(2.5 * HOUR)
            assert sorted(await bodies(runtime)) == [1, 2, 3]
            history = await runtime.trigger_history("orders", "new")
            assert outcomes(history) == [
                ("skipped", "SplitOnEmpty", 0, 0),
                ("succeeded", "OK", 3, 0),
                ("skipped", "TriggerConditionNotMet", 0, 0),
            ]
            assert history.firings[1].run_id == "orders:new:1:2:0"

    virtually(main)


def test_a_disabled_flow_polls_nothing_until_it_is_enabled() -> None:
    async def main() -> None:
        service = Service(*({"body": n} for n in range(9)))
        async with open_runtime(service) as runtime:
            runtime.register(queue_flow(), name="orders")
            await asyncio.sleep(0.5 * HOUR)
            await runtime.disable_flow("orders")
            with pytest.raises(ValueError, match="is disabled"):
                await runtime.fire_trigger("orders")
            await asyncio.sleep(3 * HOUR)
            assert len(service.asked) == 1
            await runtime.enable_flow("orders")
            await asyncio.sleep(1 * HOUR)
            assert await bodies(runtime) == [0, 1]

    virtually(main)


def test_a_poll_by_hand_is_one_more_poll() -> None:
    async def main() -> None:
        service = Service(None, {"body": "now"})
        async with open_runtime(service) as runtime:
            runtime.register(queue_flow(), name="orders")
            await asyncio.sleep(60)
            fired = await runtime.fire_trigger("orders")
            assert (fired.name, fired.run_id) == ("new", "trigger:orders:new")
            await asyncio.sleep(60)
            assert await bodies(runtime) == ["now"]
            history = await runtime.trigger_history("orders")
            assert [each.by_hand for each in history.firings] == [True, False]
            assert history.next_at == datetime.fromtimestamp(NOON + HOUR, tz=UTC)

    virtually(main)


def test_failures_are_told_and_make_polls_rarer_and_lose_no_place() -> None:
    async def main() -> None:
        service = Service(
            {"statusCode": 202, "headers": {"Location": "/messages?after=7"}},
            *({"statusCode": 503} for _ in range(9)),
            ValueError("no network"),
            {"body": 8},
        )
        flow = queue_flow(recurrence={"frequency": "Minute", "interval": 1})
        async with open_runtime(service) as runtime:
            runtime.register(flow, name="orders")
            await asyncio.sleep(HOUR)
            count = len(service.asked)
            assert count < 12  # and not sixty
            told = await runtime.trigger_history("orders")
            assert told.last_error == "The handler answered 503."
            assert outcomes(told) == [("failed", "ServiceUnavailable", 0, count - 2), ("skipped", "Accepted", 0, 0)]
            await asyncio.sleep(6 * HOUR)
            assert {asked.get("nextLink") for asked in service.asked[1:12]} == {"/messages?after=7"}
            told = await runtime.trigger_history("orders")
            assert ("failed", "ValueError", 0, 0) in outcomes(told)
            assert told.last_error is None
            assert await bodies(runtime) == [8]

    virtually(main)


def test_what_cannot_be_split_is_asked_for_again() -> None:
    async def main() -> None:
        service = Service({"body": {"items": "none"}}, {"body": {"items": ["a"]}})
        async with open_runtime(service) as runtime:
            runtime.register(queue_flow(splitOn="@triggerBody()?['items']"), name="orders")
            await asyncio.sleep(60)
            told = await runtime.trigger_history("orders")
            assert outcomes(told) == [("failed", "FiringRefused", 0, 0)]
            assert told.last_error is not None
            assert "not an array" in told.last_error
            await asyncio.sleep(HOUR)
            assert await bodies(runtime) == ["a"]

    virtually(main)


def test_the_same_trigger_keeps_its_listener_and_another_one_replaces_it() -> None:
    async def main() -> None:
        service = Service()
        async with open_runtime(service) as runtime:
            runtime.register(queue_flow(), name="orders")
            await asyncio.sleep(60)
            await runtime.definitions.put("orders", with_action("Other"))
            await asyncio.sleep(60)
            assert (await runtime.trigger_history("orders")).run_id == "trigger:orders:new"
            await runtime.definitions.put("orders", queue_flow(splitOn="@triggerBody()"))
            await asyncio.sleep(60)
            assert (await runtime.trigger_history("orders")).run_id == "trigger:orders:new:2"
            assert (await runtime.get("trigger:orders:new")).status == "cancelled"
            await runtime.definitions.delete("orders")
            await asyncio.sleep(60)
            assert (await runtime.get("trigger:orders:new:2")).status == "cancelled"
            with pytest.raises(DefinitionNotFound):
                await runtime.trigger_history("orders")
            asked = len(service.asked)
            await asyncio.sleep(5 * HOUR)
            assert len(service.asked) == asked
            await runtime.definitions.put("orders", queue_flow())
            await asyncio.sleep(60)
            assert (await runtime.trigger_history("orders")).run_id == "trigger:orders:new:3"

    virtually(main)


def with_action(name: str) -> loom.Flow:
    """The flow with another name for its action."""
    definition: dict[str, Any] = json.loads(queue_flow().document)["definition"]
    definition["actions"] = {name: definition["actions"]["Echo"]}
    return loom.load(definition, name="orders")


# -- webhooks ----------------------------------------------------------------------------------------------------------


def hook_flow(**fields: Any) -> loom.Flow:
    """A flow that a connection's service fires by a call."""
    trigger = {
        "type": "ApiConnectionWebhook",
        "inputs": {
            "host": {"connection": {"name": "@parameters('$connections')['queue']['connectionId']"}},
            "body": {"callback_url": "@{listCallbackUrl()}"},
            "path": "/subscribe",
        },
        **fields,
    }
    definition = {
        "parameters": {"$connections": {"type": "Object", "defaultValue": {}}},
        "triggers": {"alert": trigger},
        "actions": {"Echo": {"type": "Compose", "inputs": "@triggerBody()", "runAfter": {}}},
    }
    return loom.load(definition, name="orders")


SUBSCRIBED = {"statusCode": 201, "headers": {"Location": "/subscriptions/1"}}
HERE = {"callback_url": "https://loom.example"}


async def call(runtime: DurableRuntime, body: Any) -> None:
    """The service calls, as the server passes it on."""
    run_id = (await runtime.trigger_history("orders")).run_id
    assert run_id is not None
    await runtime.send_event(run_id, TriggerCalled(call_id=f"c{body}", body=body))


def test_a_webhook_subscribes_is_called_and_unsubscribes_with_its_definition() -> None:
    async def main() -> None:
        service = Service(SUBSCRIBED)
        async with open_runtime(service, **HERE) as runtime:
            runtime.register(hook_flow(), name="orders")
            await asyncio.sleep(60)
            [asked] = service.asked
            address = asked["body"]["callback_url"]
            assert address.startswith("https://loom.example/v1/callbacks/")
            assert (await runtime.trigger_history("orders")).subscribed is True
            for number in (1, 2):
                await call(runtime, number)
            await asyncio.sleep(60)
            assert await bodies(runtime) == [1, 2]
            await asyncio.sleep(5 * HOUR)
            assert len(service.asked) == 1
            ticks = [entry.tick async for entry in runtime.history("trigger:orders:alert")]
            assert ticks
            assert "sig=" not in repr(ticks)
            await runtime.definitions.delete("orders")
            await asyncio.sleep(60)
            assert service.asked[1]["method"] == "delete"
            assert service.asked[1]["path"] == "/subscriptions/1"
            assert (await runtime.get("trigger:orders:alert")).status == "cancelled"

    virtually(main)


def test_a_webhook_is_subscribed_while_its_flow_is_enabled() -> None:
    async def main() -> None:
        service = Service(SUBSCRIBED, None, SUBSCRIBED)
        async with open_runtime(service, **HERE) as runtime:
            runtime.register(hook_flow(), name="orders")
            await asyncio.sleep(60)
            await runtime.disable_flow("orders")
            await call(runtime, 1)
            await asyncio.sleep(60)
            told = await runtime.trigger_history("orders")
            assert told.subscribed is False
            assert {code for _, code, _, _ in outcomes(told)} == {"Subscribed", "Unsubscribed", "FlowDisabled"}
            assert await bodies(runtime) == []
            await runtime.enable_flow("orders")
            await asyncio.sleep(60)
            assert [asked.get("method") for asked in service.asked] == [None, "delete", None]
            await call(runtime, 2)
            await asyncio.sleep(60)
            assert await bodies(runtime) == [2]

    virtually(main)


def test_a_subscription_that_fails_is_told_and_tried_again() -> None:
    async def main() -> None:
        service = Service({"statusCode": 500}, SUBSCRIBED, {"statusCode": 500}, None)
        async with open_runtime(service, **HERE) as runtime:
            runtime.register(hook_flow(), name="orders")
            await asyncio.sleep(5)
            told = await runtime.trigger_history("orders")
            assert (told.subscribed, told.last_error) == (False, "Subscribing has failed: The handler answered 500.")
            await asyncio.sleep(60)
            assert (await runtime.trigger_history("orders")).subscribed is True
            await runtime.definitions.delete("orders")
            await asyncio.sleep(600)
            assert len(service.asked) == 4
            assert (await runtime.get("trigger:orders:alert")).status == "cancelled"

    virtually(main)


def test_a_process_that_does_not_know_its_server_says_so() -> None:
    async def main() -> None:
        service = Service()
        async with open_runtime(service) as runtime:
            runtime.register(hook_flow(), name="orders")
            await asyncio.sleep(5)
            told = await runtime.trigger_history("orders")
            assert told.last_error is not None
            assert "set callback_url" in told.last_error
            with pytest.raises(ValueError, match="fired by a call"):
                await runtime.fire_trigger("orders")

    virtually(main)


def test_who_has_no_connector_listens_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        service = Service()
        service.handlers.connectors.clear()
        async with open_runtime(service, **HERE) as runtime:
            runtime.register(hook_flow(), name="orders")
            await asyncio.sleep(5)
            assert (await runtime.trigger_history("orders")).run_id is None

    virtually(main)
    assert "register a connector for its connection, as loom.connector('queue', ...)" in caplog.text
