"""Which code an activity runs, and what it says where it has none; and the link to the run."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from activity_world import World
from hand_made import code_of
from temporalio import activity
from temporalio.client import WorkflowQueryFailedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

import loom
from loom import Event, StartEvent, StopEvent, Workflow, step
from loom.effects.actions.handlers import ActionHandlers
from loom.effects.actions.outcomes import Services
from loom.runtime.durable.registration import Registration, registration_of
from loom.store import codec
from loom.temporal import rpc
from loom.temporal.activity.step_activity import make_activity
from loom.temporal.names import ACTIVITY_CODE, QUERY_EXECUTION, QUERY_ORIGIN, SIGNAL_LOCK
from loom.temporal.payloads import CodeRequest, CodeView, ExecutionView, LockRequest, payload_of, value_of
from loom.temporal.rpc import ClientLink, RunGone, RunUnreachable


class Plain(Workflow):
    @step
    async def only(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=1)


class Renamed(Workflow):
    @step
    async def other(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=2)


HANDLERS = ActionHandlers()


@HANDLERS.activity("shout")
def shout(text: str) -> str:
    return text.upper()


def flow_code(text: str) -> Registration:
    """A flow whose versions differ in a text, with two actions that run as activities."""
    first = {"type": "Activity", "inputs": {"activityType": "shout", "input": text}, "runAfter": {}}
    second = {"type": "Activity", "inputs": {"activityType": "shout", "input": text}, "runAfter": {"First": []}}
    flow = loom.load({"definition": {"actions": {"First": first, "Second": second}}}, name="made")
    return registration_of("made", flow, Services(handlers=HANDLERS))


async def test_a_workflow_that_this_worker_does_not_know_is_left_to_another() -> None:
    world = World(Plain())
    world.start()
    world.codes.clear()
    world.codes["others"] = code_of(Plain(), "others")
    with pytest.raises(ApplicationError, match="does not know the workflow 'made'; it knows others") as unknown:
        await world.settle()
    assert not unknown.value.non_retryable


async def test_a_step_that_this_worker_does_not_know_is_left_to_another_for_a_while() -> None:
    world = World(Plain())
    world.start()
    world.codes["made"] = code_of(Renamed())
    (command,) = world.scheduled
    for attempt in (1, 2):
        with pytest.raises(ApplicationError, match="has no step 'only'") as unknown:
            await world.perform(command, attempt=attempt)
        assert not unknown.value.non_retryable
    await world.perform(command, attempt=3)
    assert world.outcome.status == "parked"
    assert "has no step 'only'" in world.outcome.message


async def test_a_run_whose_workflow_has_become_a_flow_is_parked() -> None:
    world = World(Plain())
    world.start()
    world.codes["made"] = flow_code("x")
    await world.settle()
    assert world.outcome.status == "parked"
    assert "is a flow here" in world.outcome.message


async def test_a_flow_goes_on_with_the_version_that_it_began_with() -> None:
    world = World(flow_code("old"))
    asked, answer = [], world.query

    async def query(name: str, value: Any, expected: Any) -> Any:
        asked.append(name)
        return await answer(name, value, expected)

    world.query = query  # type: ignore[method-assign]
    world.start()
    world.codes["made"] = flow_code("new")
    await world.settle()
    assert world.outcome.status == "completed"
    assert len(world.reports) == 2
    assert asked == [QUERY_ORIGIN]
    assert [key for key, _ in world.activity._versions.items()] == [("made", flow_code("old").document[0])]


async def test_the_code_of_a_workflow_is_told_to_a_run_that_began_without_it() -> None:
    world, env = World(Plain()), ActivityEnvironment()
    env.info = dataclasses.replace(env.info, activity_type=ACTIVITY_CODE)
    answer = await env.run(world.activity.perform, [RawValue(payload_of(CodeRequest("made")))])
    assert value_of(answer.payload, CodeView) == CodeView(world.made.code.config)


class Order(StartEvent):
    colour: str


class Ordered(Workflow):
    @step
    async def only(self, ev: Order) -> StopEvent:
        return StopEvent(result=ev.colour)


async def test_with_the_code_comes_the_event_that_it_makes_of_the_inputs() -> None:
    world, env, code = World(Plain()), ActivityEnvironment(), code_of(Ordered())
    world.codes["made"] = code
    env.info = dataclasses.replace(env.info, activity_type=ACTIVITY_CODE)
    inputs = codec.StartSpec(inputs=code.codec.value({"colour": "red"}))
    request = CodeRequest("made", codec.encode_start(inputs).decode())
    view = value_of((await env.run(world.activity.perform, [RawValue(payload_of(request))])).payload, CodeView)
    assert view.start is not None
    event = codec.decode_start("made", view.start.encode()).event
    assert event is not None
    assert code.codec.event(event) == Order(colour="red")
    bad = codec.encode_start(codec.StartSpec(inputs=code.codec.value({}))).decode()
    with pytest.raises(ApplicationError, match="'Order'") as caught:
        await env.run(world.activity.perform, [RawValue(payload_of(CodeRequest("made", bad)))])
    assert caught.value.non_retryable
    with pytest.raises(ApplicationError, match="CorruptRecord") as caught:
        await env.run(world.activity.perform, [RawValue(payload_of(CodeRequest("made", "nonsense")))])
    assert caught.value.non_retryable


def test_the_activity_is_dynamic_and_serves_every_step() -> None:
    made = make_activity({}, None)  # type: ignore[arg-type]
    definition = activity._Definition.must_from_callable(made)
    assert (definition.name, definition.is_async) == (None, True)


# -- the link -------------------------------------------------------------------------------------------------------


class Handle:
    """The handle of a workflow on a server that has trouble."""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles = list(troubles)
        self.calls: list[Any] = []

    def get_workflow_handle(self, workflow_id: str, *, run_id: str | None) -> Handle:
        self.calls.append((workflow_id, run_id))
        return self

    async def signal(self, name: str, content: RawValue) -> None:
        self.calls.append(name)
        if self.troubles:
            raise self.troubles.pop(0)

    async def query(self, name: str, args: list[RawValue], result_type: Any, **_limits: Any) -> RawValue:
        self.calls.append((name, args, result_type))
        if self.troubles:
            raise self.troubles.pop(0)
        return RawValue(payload_of(ExecutionView()))


def trouble(status: RPCStatusCode) -> RPCError:
    return RPCError(f"it is {status.name}", status, b"")


async def test_a_link_speaks_to_one_execution_of_the_run() -> None:
    handle = Handle()
    made = ClientLink(handle, "order-1", "execution-1")  # type: ignore[arg-type]
    assert handle.calls == [("order-1", "execution-1")]
    assert await made.query(QUERY_EXECUTION, None, ExecutionView) == ExecutionView()


async def test_a_server_that_has_trouble_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_FIRST_DELAY_S", 0)
    handle = Handle(trouble(RPCStatusCode.UNAVAILABLE), trouble(RPCStatusCode.DEADLINE_EXCEEDED))
    await ClientLink(handle, "order-1").signal(SIGNAL_LOCK, LockRequest(1))  # type: ignore[arg-type]
    assert handle.calls[1:] == [SIGNAL_LOCK] * 3


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (trouble(RPCStatusCode.NOT_FOUND), RunGone),
        (trouble(RPCStatusCode.INVALID_ARGUMENT), RunUnreachable),
        (WorkflowQueryFailedError("it has not begun"), RunUnreachable),
    ],
)
async def test_what_will_not_pass_is_said_at_once(error: Exception, raised: type[Exception]) -> None:
    handle = Handle(error)
    with pytest.raises(raised, match="order-1"):
        await ClientLink(handle, "order-1").query(QUERY_EXECUTION, None, ExecutionView)  # type: ignore[arg-type]
    assert len(handle.calls) == 2


async def test_trouble_that_does_not_pass_fails_the_activity_for_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "_FIRST_DELAY_S", 0)
    go_on = asyncio.Event()

    class Talking(Workflow):
        @step
        async def only(self, ev: StartEvent, ctx: loom.Context) -> StopEvent:
            ctx.write_event_to_stream(Event())
            await go_on.wait()
            return StopEvent()

    world = World(Talking())
    world.start()
    handle = Handle(*[trouble(RPCStatusCode.UNAVAILABLE)] * 4)
    world.activity._link_to = lambda info: ClientLink(handle, "order-1")  # type: ignore[arg-type]
    with pytest.raises(RunUnreachable, match="order-1"):
        await world.settle()
