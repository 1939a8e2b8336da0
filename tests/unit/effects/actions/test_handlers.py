"""Activities and connectors: how handlers are found and called, and what becomes of what they return or raise."""

from __future__ import annotations

import dataclasses
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from action_host import ActionHost, call_of
from pydantic import BaseModel

from loom.effects.actions.binding import BUILT_IN_ACTIONS, ActionBinding
from loom.effects.actions.handlers import HANDLERS, ActionContext, ActionHandlers, activity
from loom.effects.actions.outcomes import ActionFailed, NotPlainData, plain
from loom.effects.event_codec import MissingTypeError


@pytest.fixture
def host() -> ActionHost:
    return ActionHost()


def activity_call(name: str = "a", **inputs: Any) -> Any:
    return call_of("activity", {"activityType": name, **inputs})


@pytest.mark.parametrize(
    ("inputs", "argument"),
    [
        ({"input": 5}, 5),
        ({"input": None}, None),
        ({"input": [1], "other": 2}, [1]),
        ({"x": 1, "y": 2}, {"x": 1, "y": 2}),
        ({}, {}),
    ],
)
async def test_activities_get_one_argument(host: ActionHost, inputs: dict[str, Any], argument: Any) -> None:
    @host.handlers.activity("a")
    async def echo(given: Any) -> Any:
        return {"got": given}

    outcome = await host.run(activity_call(**inputs))
    assert (outcome.status, outcome.outputs) == ("Succeeded", {"got": argument})


async def test_sync_handlers_run_in_a_thread(host: ActionHost) -> None:
    @host.handlers.activity("a")
    def where(_: Any) -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await host.run(activity_call())).outputs is False


async def test_the_context_comes_to_whoever_asks_for_it(host: ActionHost) -> None:
    @host.handlers.activity("a")
    def first(context: ActionContext, given: Any, more: int = 3) -> Any:
        return [dataclasses.asdict(context), given, more]

    @host.handlers.activity("b")
    async def last(given: Any, more: int = 3, *, context: ActionContext | None = None) -> Any:
        assert context is not None
        return [context.action, given, more]

    @host.handlers.activity("none")
    def without() -> str:
        return "called"

    known = {"run_id": "run-1", "idempotency_key": "run-1:A:0", "attempt": 2, "action": "A"}
    call = call_of("activity", {"activityType": "a", "input": 1}, attempt=2)
    assert (await host.run(call)).outputs == [known, 1, 3]
    assert (await host.run(activity_call("b", input=1))).outputs == ["A", 1, 3]
    assert (await host.run(activity_call("none", input=1))).outputs == "called"


async def test_callable_objects_are_handlers_too(host: ActionHost) -> None:
    class Doubling:
        async def __call__(self, given: int, ctx: ActionContext) -> list[Any]:
            return [given * 2, ctx.run_id]

    host.handlers.activity("a")(Doubling())
    assert (await host.run(activity_call(input=4))).outputs == [8, "run-1"]


async def test_registering_again_replaces(host: ActionHost) -> None:
    host.handlers.activity("a")(lambda _: 1)
    host.handlers.activity("a")(lambda _: 2)
    assert (await host.run(activity_call())).outputs == 2


async def test_unknown_activity_is_a_failure_that_helps(host: ActionHost) -> None:
    outcome = await host.run(activity_call("missing"))
    assert (outcome.status, outcome.code) == ("Failed", "ActivityNotFound")
    assert "@loom.activity('missing')" in outcome.message
    assert (await host.run(call_of("activity", {}))).code == "InvalidInputs"
    assert (await host.run(call_of("activity", [1]))).code == "InvalidInputs"


@pytest.mark.parametrize(
    ("error", "code", "error_type", "message"),
    [
        (ValueError("bad"), "ValueError", "valueerror", "bad"),
        (TimeoutError("late"), "TimeoutError", "timeout", "late"),
        (StopIteration(), "RuntimeError", "runtimeerror", "The handler raised StopIteration."),
        (KeyError(), "KeyError", "keyerror", "KeyError"),
        (ActionFailed("own", "Own"), "Own", "actionfailed", "own"),
    ],
)
async def test_exceptions_become_outcomes(
    host: ActionHost, error: Exception, code: str, error_type: str, message: str
) -> None:
    @host.handlers.activity("a")
    def fail(_: Any) -> None:
        raise error

    outcome = await host.run(activity_call())
    assert (outcome.status, outcome.code, outcome.error_type) == ("Failed", code, error_type)
    assert outcome.message == message


async def test_secure_failures_hide_their_message(host: ActionHost) -> None:
    @host.handlers.activity("a")
    def fail(given: Any) -> None:
        raise ValueError(f"cannot use {given}")

    outcome = await host.run(call_of("activity", {"activityType": "a", "input": "s3cret"}, secure=True))
    assert outcome.code == "ValueError"
    assert "s3cret" not in repr(outcome)


async def test_missing_types_park_the_run(host: ActionHost) -> None:
    @host.handlers.activity("a")
    async def fail(_: Any) -> None:
        raise MissingTypeError("some.Class")

    with pytest.raises(AssertionError, match=r"some\.Class"):
        await host.run(activity_call())
    assert host.parked is not None


async def test_the_time_limit_covers_all_attempts(host: ActionHost) -> None:
    import asyncio

    @host.handlers.activity("slow")
    async def slow(_: Any) -> None:
        await asyncio.Event().wait()

    inputs = {"activityType": "slow"}
    outcome = await host.run(call_of("activity", inputs, timeout_s=0.02))
    assert (outcome.status, outcome.code) == ("TimedOut", "ActionTimedOut")
    host.at += 100
    assert (await host.run(call_of("activity", inputs, timeout_s=99.0))).status == "TimedOut"

    @host.handlers.activity("own")
    async def own(_: Any) -> None:
        raise TimeoutError("mine")

    outcome = await host.run(call_of("activity", {"activityType": "own"}, timeout_s=500.0))
    assert (outcome.status, outcome.error_type) == ("Failed", "timeout")


# -- connectors -------------------------------------------------------------------------------------------------------


async def test_types_are_known_without_case(host: ActionHost) -> None:
    host.handlers.action("ApiConnection")(lambda inputs: {"value": inputs["path"]})
    outcome = await host.run(call_of("apiconnection", {"path": "/x", "method": "get"}))
    assert outcome.outputs == {"statusCode": 200, "headers": {}, "body": {"value": "/x"}}


@pytest.mark.parametrize(
    ("returned", "status", "code", "outputs"),
    [
        ({"statusCode": 201, "body": 1}, "Succeeded", "Created", {"statusCode": 201, "headers": {}, "body": 1}),
        ({"statusCode": 409}, "Failed", "Conflict", {"statusCode": 409, "headers": {}}),
        (None, "Succeeded", "OK", {"statusCode": 200, "headers": {}, "body": None}),
        ([1], "Succeeded", "OK", {"statusCode": 200, "headers": {}, "body": [1]}),
        ({"statusCode": "Accepted"}, "Succeeded", "Accepted", {"statusCode": "Accepted", "headers": {}}),
    ],
)
async def test_connectors_answer_like_servers(
    host: ActionHost, returned: Any, status: str, code: str, outputs: Any
) -> None:
    host.handlers.action("X")(lambda _: returned)
    outcome = await host.run(call_of("x", {}))
    assert (outcome.status, outcome.code, outcome.outputs) == (status, code, outputs)


async def test_connectors_get_their_inputs(host: ActionHost) -> None:
    host.handlers.action("X")(lambda inputs: {"body": inputs})
    for inputs, given in [
        ({"input": 1}, 1),
        ({"input": 1, "b": 2}, {"input": 1, "b": 2}),
        (None, {}),
        ("text", "text"),
    ]:
        assert (await host.run(call_of("x", inputs))).outputs["body"] == given


async def test_a_type_that_nobody_registered(host: ActionHost) -> None:
    outcome = await host.run(call_of("sendtobatch", {}, secure=True))
    assert (outcome.status, outcome.code) == ("Failed", "ActionTypeNotSupported")
    assert '@loom.action("SendToBatch")' in outcome.message


async def test_built_in_types_can_be_stubbed(host: ActionHost) -> None:
    host.handlers.action("Http")(lambda inputs: {"statusCode": 200, "body": inputs["uri"]})
    assert (await host.run(call_of("http", {"uri": "https://never"}))).outputs["body"] == "https://never"
    host.handlers.action("waitForEvent")(lambda _: {"approved": True})
    assert (await host.run(call_of("waitforevent", {}))).outputs == {"approved": True}


def test_the_registry_of_the_process() -> None:
    @activity("test_handlers.only")
    def only(given: Any) -> Any:
        return given

    assert HANDLERS.activities.pop("test_handlers.only") is only
    with pytest.raises(TypeError, match=r"loom\.activity\(\) takes a name"):
        activity(only)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a function"):
        ActionHandlers().action("x")(5)  # type: ignore[type-var]


def test_bindings_fit_what_executions_need() -> None:
    binding = ActionBinding("A")
    assert (binding.event_name, binding.context_name, binding.retry_policy) == ("call", None, None)
    assert binding.function.__qualname__ == "ActionBinding.perform"
    assert set(BUILT_IN_ACTIONS) == {"activity", "actor", "ai", "http", "httpwebhook", "waitforevent", "workflow"}


# -- results ----------------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"


class Model(BaseModel):
    when: datetime
    colour: Colour = Colour.RED


@dataclasses.dataclass
class Point:
    x: int
    inner: Model


class Item(msgspec.Struct):
    name: str
    point: tuple[int, ...] = (1, 2)


MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_results_become_plain_data() -> None:
    found = plain(
        {
            "model": Model(when=MOMENT),
            "point": Point(1, Model(when=MOMENT)),
            "item": Item("n"),
            "day": date(2026, 1, 2),
            "id": UUID(int=1),
            "bytes": b"\0",
            "money": Decimal("1.5"),
            7: (None, True, "\ud800"),
        }
    )
    model = {"when": "2026-01-02T03:04:05Z", "colour": "red"}
    assert found == {
        "model": model,
        "point": {"x": 1, "inner": model},
        "item": {"name": "n", "point": [1, 2]},
        "day": "2026-01-02",
        "id": "00000000-0000-0000-0000-000000000001",
        "bytes": {"$content-type": "application/octet-stream", "$content": "AA=="},
        "money": 1.5,
        "7": [None, True, "\ufffd"],
    }


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), "a object, which is no JSON data"),
        ({"a": [1, {2}]}, r"at a\[1\] a set"),
        (float("nan"), "nan, which is no number"),
        ({"a": {None: 1}}, "at a a key of type NoneType"),
        (lambda: 1, "a function"),
    ],
)
def test_other_results_are_refused_by_name(value: Any, says: str) -> None:
    with pytest.raises(NotPlainData, match=says):
        plain(value)


def test_results_that_contain_themselves_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotPlainData, match="nested"):
        plain(endless)


async def test_a_result_that_is_no_data_fails_the_action(host: ActionHost) -> None:
    host.handlers.activity("a")(lambda _: {"connection": object()})
    outcome = await host.run(activity_call())
    assert (outcome.status, outcome.code) == ("Failed", "NotPlainData")
    assert "at connection a object" in outcome.message
