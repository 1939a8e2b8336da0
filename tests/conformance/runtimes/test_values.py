"""Values that are hard to store: in start events, events, waits, the store, records, results, tags and ids."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, failure, result, soon, stored, until_idle

from loom import (
    Context,
    Event,
    HumanResponseEvent,
    RunNotFound,
    StartEvent,
    StopEvent,
    WorkflowRuntimeError,
    retry_policy,
    step,
    stop_after_attempt,
)
from loom.core.ticks import TickEditStore
from loom.steps.retry import wait_none
from loom.steps.state_store import set_by_path

VALUES: dict[str, Any] = {
    "none": None,
    "text": "ä \u0000 \U0001f9f5 \u2028",
    "huge": 10**400,
    "negative": -(2**63) - 1,
    "float": 0.1 + 0.2,
    "infinite": math.inf,
    "minus zero": -0.0,
    "tuple": (1, ("a", None), []),
    "set": {1, 2, 3},
    "frozen": frozenset({"x"}),
    "bytes": b"\x00\xff\x80",
    "moment": datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=UTC),
    "date": date(1, 1, 1),
    "duration": timedelta(days=-1, microseconds=1),
    "decimal": Decimal("1.10"),
    "numbers as keys": {1: "a", (2, 3): "b", None: "c"},
    "tag alike": {"__loom__": 1, "": "empty"},
    "deep": [[[[[{"a": [()]}]]]]],
}


class Carrier(Event):
    value: Any


class Answer(HumanResponseEvent):
    value: Any


class Point(BaseModel):
    x: int
    tags: tuple[str, ...] = ()


class Echo(Watched):
    """Sends a value through everything that is stored."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Carrier:
        await ctx.store.set("value", ev.value)
        return Carrier(value=ev.value)

    @step
    async def carry(self, ctx: Context, ev: Carrier) -> StopEvent:
        ctx.write_event_to_stream(ev)
        recorded = await ctx.once("value", lambda: ev.value)
        await self.witness.at("held")
        answer = await ctx.wait_for_event(Answer, timeout=None)
        return StopEvent(result=[ev.value, await ctx.store.get("value"), recorded, answer.value])


@pytest.mark.parametrize("idle_timeout", [None, 0], ids=["in memory", "released"])
async def test_values_come_back_as_they_were(
    deployment: Deployment, witness: Witness, idle_timeout: float | None
) -> None:
    first = await deployment.open({"echo": Echo(witness)}, idle_timeout=idle_timeout)
    for name, value in VALUES.items():
        await first.start("echo", {"value": value}, run_id=name)
    for name in VALUES:
        await until_idle(first, name)
    await deployment.crash(first)
    second = await deployment.open({"echo": Echo(witness)}, idle_timeout=idle_timeout)
    for name, value in VALUES.items():
        await second.send_event(name, Answer(value=value))
    for name, value in VALUES.items():
        handler = await second.handler(name)
        for found in await result(handler):
            assert (found, type(found)) == (value, type(value)), name
            assert repr(found) == repr(value) or isinstance(value, set | frozenset), name
        assert await stored(second, name) == {"value": value}
        events = [event async for event in handler.stream_events() if isinstance(event, Carrier)]
        assert [event.value for event in events] == [value], name


async def test_what_is_not_a_number(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"echo": Echo(witness)})
    handler = await runtime.start("echo", {"value": [math.nan]}, run_id="a")
    await runtime.send_event("a", Answer(value=math.nan))
    *found, answer = await result(handler)
    assert all(math.isnan(value) for [value] in found)
    assert math.isnan(answer)


async def test_lone_surrogates(deployment: Deployment, witness: Witness) -> None:
    """Text that no encoding can write comes back as it was; two halves that belong together become one character."""
    first = await deployment.open({"echo": Echo(witness)})
    await first.start("echo", {"value": "a\ud800b"}, run_id="a")
    await until_idle(first, "a")
    await deployment.crash(first)
    second = await deployment.open({"echo": Echo(witness)})
    await second.send_event("a", Answer(value={"\udfff": "\ud83e" + "\udde0"}))
    assert await result(await second.handler("a")) == ["a\ud800b"] * 3 + [{"\udfff": "\U0001f9e0"}]
    assert await stored(second, "a") == {"value": "a\ud800b"}


async def test_a_failure_with_a_message_that_is_hard_to_store(deployment: Deployment) -> None:
    runtime = await deployment.open({"fails": Fails()})
    client = await deployment.open()
    await runtime.start("fails", run_id="a")
    for each in (runtime, client):
        error = await failure(await each.handler("a"))
        assert type(error) is LookupError
        assert str(error).startswith("a\0b")
    info = await client.get("a")
    assert info.error is not None
    assert info.error.startswith("work: LookupError: a\0b")


class Fails(Watched):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        raise LookupError("a\0b\ud800")


async def test_models_in_a_store(deployment: Deployment, witness: Witness) -> None:
    first = await deployment.open({"models": Models(witness)})
    await first.start("models", run_id="a")
    await until_idle(first, "a")
    await deployment.crash(first)
    second = await deployment.open({"models": Models(witness)})
    await second.send_event("a", Answer(value=Point(x=3)))
    assert await result(await second.handler("a")) == [Point(x=1, tags=("a", "b")), Point(x=3)]


class Models(Watched):
    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.store.set("point", Point(x=1, tags=("a", "b")))
        answer = await ctx.wait_for_event(Answer, timeout=None)
        return StopEvent(result=[await ctx.store.get("point"), answer.value])


class State(BaseModel):
    count: int = 0
    points: list[Point] = []
    seen: dict[str, datetime] = {}


class Typed(Watched):
    @step
    async def begin(self, ctx: Context[State], ev: StartEvent) -> StopEvent:
        async with ctx.store.edit_state() as state:
            state.count += 1
            state.points.append(Point(x=state.count))
            state.seen["now"] = datetime(2024, 1, 1, tzinfo=UTC)
        await ctx.wait_for_event(Answer, timeout=None)
        async with ctx.store.edit_state() as state:
            state.count += 10
        return StopEvent(result=await ctx.store.get_state())


async def test_a_store_with_a_type_of_its_own(deployment: Deployment) -> None:
    first = await deployment.open({"typed": Typed()})
    await first.start("typed", run_id="a")
    await until_idle(first, "a")
    await deployment.crash(first)
    second = await deployment.open({"typed": Typed()})
    await second.send_event("a", Answer(value=None))
    expected = State(count=11, points=[Point(x=1)], seen={"now": datetime(2024, 1, 1, tzinfo=UTC)})
    assert await result(await second.handler("a")) == expected
    assert await second.read_store("a") == expected


class Opaque:
    pass


async def test_what_cannot_be_stored_is_an_error_where_it_is_given(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"echo": Echo(witness), "gives": Gives(witness)})
    with pytest.raises(ValueError, match="Opaque"):
        await runtime.start("echo", {"value": Opaque()}, run_id="a")
    handler = await runtime.start("echo", {"value": 1}, run_id="b")
    with pytest.raises(ValueError, match="Opaque"):
        await runtime.send_event("b", Answer(value=Opaque()))
    await runtime.send_event("b", Answer(value=2))
    assert (await result(handler))[-1] == 2
    assert [info.run_id async for info in runtime.list()] == ["b"]
    error = await failure(await runtime.start("gives"))
    assert "Opaque" in str(error)


class Gives(Watched):
    @step
    async def begin(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=Opaque())


async def test_names_of_any_kind(deployment: Deployment, witness: Witness) -> None:
    names = ["ä/ö?x=1&y", "../../etc", "a'; DROP TABLE runs; --", "x" * 400, "\U0001f9f5", "%s{0}", " "]
    runtime = await deployment.open({"echo": Echo(witness)})
    for name in names:
        await runtime.start("echo", {"value": name}, run_id=name, tags={name: name})
        await runtime.send_event(name, Answer(value=1), event_id=name)
        await runtime.send_event(name, Answer(value=2), event_id=name)
    for name in names:
        assert await result(await runtime.handler(name)) == [name, name, name, 1]
        assert [info.run_id async for info in runtime.list(tags={name: name})] == [name]


BAD_NAMES = ["", "a\0b", "\ud800", "x" * 501]


async def test_names_that_no_store_could_keep_are_refused(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"echo": Echo(witness)})
    await runtime.start("echo", {"value": 1}, run_id="a")
    for name in BAD_NAMES:
        with pytest.raises(ValueError, match="A run_id"):
            await runtime.start("echo", {"value": 1}, run_id=name)
        with pytest.raises(ValueError, match="The key of a tag"):
            await runtime.start("echo", {"value": 1}, tags={name: "x"})
        with pytest.raises(ValueError, match="An event_id"):
            await runtime.send_event("a", Answer(value=1), event_id=name)
        with pytest.raises(ValueError, match="The name of a workflow"):
            await runtime.start(name, {"value": 1})
    assert [info.run_id async for info in runtime.list()] == ["a"]


async def test_nobody_has_a_name_that_no_store_could_keep(deployment: Deployment) -> None:
    runtime = await deployment.open({"fails": Fails()})
    await failure(await runtime.start("fails", run_id="a"))
    for name in BAD_NAMES:
        with pytest.raises(RunNotFound):
            await runtime.get(name)
        with pytest.raises(RunNotFound):
            await runtime.send_event(name, Answer(value=1))
        with pytest.raises(RunNotFound):
            await runtime.cancel(name)
        assert [info async for info in runtime.list(workflow=name)] == []
        assert [info async for info in runtime.list(waiting_for=name)] == []
        assert [info async for info in runtime.list(parent_id=name)] == []
        assert [info async for info in runtime.list(tags={name: name})] == []
    assert [info.run_id async for info in runtime.list()] == ["a"]


async def test_a_large_event(deployment: Deployment, witness: Witness) -> None:
    text = "loom " * 400_000
    runtime = await deployment.open({"echo": Echo(witness)})
    handler = await runtime.start("echo", {"value": text}, run_id="a")
    await runtime.send_event("a", Answer(value=text))
    assert await result(handler) == [text] * 4
    assert [event.value async for event in handler.stream_events() if isinstance(event, Carrier)] == [text]
    assert (await soon(runtime.get("a"))).status == "completed"


class Basket(StartEvent):
    items: list[str]
    keys: int
    values: dict[str, int]


class Chosen(HumanResponseEvent):
    items: list[str]
    get: str


class Bill(StopEvent):
    to_dict: int


class Shop(Watched):
    """Its events have fields that are named as methods of a mapping."""

    @step
    async def sell(self, ctx: Context, ev: Basket) -> Bill:
        ctx.write_event_to_stream(ev)
        answer = await ctx.wait_for_event(Chosen, requirements={"get": "now"}, timeout=None)
        return Bill(to_dict=len(ev.items) + ev.keys + ev.values["tea"] + len(answer.items), note="paid")


async def test_fields_named_as_methods_of_a_mapping(deployment: Deployment, witness: Witness) -> None:
    basket = {"items": ["tea", "milk"], "keys": 10, "values": {"tea": 100}}
    first = await deployment.open({"shop": Shop(witness)}, idle_timeout=0)
    await first.start("shop", basket, run_id="a")
    with pytest.raises(WorkflowRuntimeError, match="Field required"):
        await first.start("shop", {"keys": 1, "values": {}}, run_id="b")
    await until_idle(first, "a")
    await deployment.crash(first)
    second = await deployment.open({"shop": Shop(witness)})
    await second.send_event("a", Chosen(items=["tea"], get="later"))
    await second.send_event("a", Chosen(items=["tea"], get="now"))
    handler = await second.handler("a")
    bill = await result(handler)
    assert (type(bill), bill.to_dict, bill.note) == (Bill, 113, "paid")
    shown = [event async for event in handler.stream_events() if isinstance(event, Basket)]
    assert shown == [Basket(**basket)]


class Slips(Watched):
    """Edits its state wrongly at the first attempt of each step, halfway through."""

    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def begin(self, ctx: Context, ev: StartEvent) -> StopEvent:
        attempt = ctx.retry_info().retry_number + 1
        async with ctx.store.edit_state() as state:
            set_by_path(state, "made.on.the.way", attempt)
            if attempt == 1:
                set_by_path(state, ev.slip, 0)
        return StopEvent(result=str(ctx.retry_info().last_exception))


@pytest.mark.parametrize(
    ("slip", "error"),
    [("made.on.the.way.further", "'int' object has no attribute 'further'"), ("", "Path cannot be empty")],
)
async def test_an_error_of_a_path_inside_an_edit_fails_the_attempt_and_applies_nothing(
    deployment: Deployment, witness: Witness, slip: str, error: str
) -> None:
    runtime = await deployment.open({"slips": Slips(witness)})
    handler = await runtime.start("slips", {"slip": slip}, run_id="a")
    assert await result(handler) == error
    assert await stored(runtime, "a") == {"made": {"on": {"the": {"way": 2}}}}
    edits = [entry.tick async for entry in runtime.history("a") if isinstance(entry.tick, TickEditStore)]
    assert [sorted(edit.changed) for edit in edits] == [["made"]]
