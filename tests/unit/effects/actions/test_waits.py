"""Actions that wait: for people, for callbacks, for child runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from action_host import ActionHost, Crash, call_of
from action_server import ActionServer, Reply, serving

from loom import Event, HumanResponseEvent, InputRequiredEvent, StopEvent
from loom.core.records import Failure
from loom.core.state import ChildEnd
from loom.effects.actions.events import CallbackEvent
from loom.effects.flow_events import FlowEvent
from loom.effects.flow_result import flow_result
from loom.flows.calls import FlowEnd
from loom.steps.events import AnswerRefusedEvent

SCHEMA = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}


class Approval(Event):
    approved: bool
    by: str = ""


@pytest.fixture
def host() -> ActionHost:
    return ActionHost()


async def test_an_answer_becomes_the_outputs(host: ActionHost) -> None:
    host.inbox.append(HumanResponseEvent(approved=True, note="fine"))
    outcome = await host.run(call_of("waitforevent", {"prompt": "Ship it?"}))
    assert (outcome.status, outcome.outputs) == ("Succeeded", {"approved": True, "note": "fine"})
    (asked,) = host.published
    assert isinstance(asked, InputRequiredEvent)
    assert (asked.prompt, asked.action, asked.event) == ("Ship it?", "A", "HumanResponseEvent")
    assert host.waits[0].timeout_s is None


async def test_events_are_named_by_their_class(host: ActionHost) -> None:
    host.inbox.append(Approval(approved=True, by="me"))
    outcome = await host.run(call_of("waitforevent", {"event": "Approval", "requirements": {"by": "me"}}))
    assert outcome.outputs == {"approved": True, "by": "me"}
    assert host.waits[0].event_type == "Approval"
    assert host.waits[0].requirements == (("by", "me"),)


async def test_events_without_a_class_go_by_their_name(host: ActionHost) -> None:
    host.inbox.append(FlowEvent(name="payment_received", data={"amount": 5}))
    outcome = await host.run(call_of("waitforevent", {"event": "payment_received"}))
    assert outcome.outputs == {"amount": 5}
    assert host.waits[0].event_type == "payment_received"


async def test_refused_answers_are_told_and_the_wait_goes_on(host: ActionHost) -> None:
    host.inbox.extend([HumanResponseEvent(approved="maybe"), HumanResponseEvent(), HumanResponseEvent(approved=False)])
    call = call_of("waitforevent", {"schema": SCHEMA, "timeout": "PT1H"})
    assert (await host.run(call)).outputs == {"approved": False}
    asked, *refused = host.published
    assert isinstance(asked, InputRequiredEvent)
    assert asked["schema"] == SCHEMA
    assert all(isinstance(note, AnswerRefusedEvent) for note in refused)
    assert "maybe" in refused[0].reason
    assert "approved" in refused[1].reason
    assert [(wait.waiter_id, wait.occurrence) for wait in host.waits] == [("action:run-1:A:0", n) for n in range(3)]


async def test_a_crash_asks_and_complains_once(host: ActionHost) -> None:
    host.inbox.extend([HumanResponseEvent(approved=1), HumanResponseEvent(approved=True)])
    host.crash_after = 3
    with pytest.raises(Crash):
        await host.run(call_of("waitforevent", {"schema": SCHEMA, "timeout": 50}))
    assert (await host.resume()).outputs == {"approved": True}
    assert len(host.published) == 2
    assert len(host.waits) == 2


@pytest.mark.parametrize(
    ("own", "limit", "waited"), [("PT10S", None, 10), (30, 20.0, 20), (None, 5.0, 5), ("PT5S", 60.0, 5)]
)
async def test_waits_end_at_the_earliest_limit(host: ActionHost, own: Any, limit: float | None, waited: float) -> None:
    outcome = await host.run(call_of("waitforevent", {"timeout": own}, timeout_s=limit))
    assert (outcome.status, outcome.code) == ("TimedOut", "ActionTimedOut")
    assert host.waits[0].timeout_s == waited


async def test_refused_answers_do_not_move_the_deadline(host: ActionHost) -> None:
    host.inbox.append(HumanResponseEvent())
    host.at += 4
    outcome = await host.run(call_of("waitforevent", {"schema": SCHEMA, "timeout": 10}))
    assert outcome.status == "TimedOut"
    assert [wait.timeout_s for wait in host.waits] == [6, 6]


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"timeout": "soon"}, "inputs.timeout"),
        ({"timeout": -1}, "inputs.timeout"),
        ({"schema": {"type": 5}}, "no usable JSON Schema"),
        ({"event": 5}, "inputs.event"),
        ({"requirements": [1]}, "inputs.requirements"),
    ],
)
async def test_waits_that_cannot_be(host: ActionHost, inputs: dict[str, Any], says: str) -> None:
    outcome = await host.run(call_of("waitforevent", inputs))
    assert (outcome.status, outcome.code) == ("Failed", "InvalidInputs")
    assert says in outcome.message


async def test_secure_waits_show_nothing(host: ActionHost) -> None:
    host.inbox.extend([HumanResponseEvent(approved="s3cret"), HumanResponseEvent(approved=True)])
    await host.run(call_of("waitforevent", {"prompt": "s3cret?", "schema": SCHEMA}, secure=True))
    assert len(host.published) == 2
    assert "s3cret" not in str([(event.model_dump(), event._data) for event in host.published])


# -- webhooks ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[ActionServer]:
    with serving() as running:
        running.replies |= {"/subscribe": Reply(200), "/unsubscribe": Reply(200)}
        yield running


def hook(server: ActionServer, **more: Any) -> Any:
    requests = {name: {"method": "POST", "uri": f"{server.url}/{name}"} for name in ("subscribe", "unsubscribe")}
    return call_of("httpwebhook", requests, **more)


async def test_a_webhook_subscribes_once_and_waits_for_the_call(host: ActionHost, server: ActionServer) -> None:
    host.inbox.append(CallbackEvent(key="run-1:A:0", body={"done": 1}, headers={"X": "y"}))
    host.crash_after = 2
    with pytest.raises(Crash):
        await host.run(hook(server))
    outcome = await host.resume()
    assert outcome.outputs == {"statusCode": 200, "headers": {"X": "y"}, "queries": {}, "body": {"done": 1}}
    assert [asked.path for asked in server.asked] == ["/subscribe"]
    assert host.waits[0].requirements == (("key", "run-1:A:0"),)


async def test_a_webhook_that_is_not_called_unsubscribes(host: ActionHost, server: ActionServer) -> None:
    outcome = await host.run(hook(server, timeout_s=60.0))
    assert outcome.status == "TimedOut"
    assert [asked.path for asked in server.asked] == ["/subscribe", "/unsubscribe"]


async def test_a_webhook_that_cannot_subscribe_fails(host: ActionHost, server: ActionServer) -> None:
    server.replies["/subscribe"] = Reply(403)
    outcome = await host.run(hook(server))
    assert (outcome.status, outcome.code) == ("Failed", "Forbidden")
    assert host.waits == []
    assert (await host.run(call_of("httpwebhook", {}))).code == "InvalidInputs"


# -- children ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inputs",
    [
        {"host": {"workflow": {"id": "/subscriptions/s/providers/Microsoft.Logic/workflows/child"}}, "body": {"x": 1}},
        {"workflow": "child", "body": {"x": 1}},
        {"name": "child", "input": {"x": 1}},
        {"workflow": {"id": "child"}, "body": {"x": 1}},
    ],
)
async def test_children_are_started_by_name(host: ActionHost, inputs: dict[str, Any]) -> None:
    host.child_result = StopEvent(result={"answer": 42})
    outcome = await host.run(call_of("workflow", inputs))
    assert (outcome.status, outcome.outputs) == ("Succeeded", {"answer": 42})
    assert [(child.workflow, child.start) for child in host.children] == [("child", ({"x": 1}, None))]


@pytest.mark.parametrize(
    ("end", "status", "code", "outputs"),
    [
        (FlowEnd("Succeeded", {"o": 1}), "Succeeded", "OK", {"o": 1}),
        (
            FlowEnd("Succeeded", {}, {"statusCode": 201, "body": 1}),
            "Succeeded",
            "Created",
            {"statusCode": 201, "body": 1},
        ),
        (FlowEnd("Succeeded", {}, {"statusCode": 404}), "Failed", "NotFound", {"statusCode": 404}),
        (FlowEnd("Failed", {}, error={"code": "Bad", "message": "m"}), "Failed", "Bad", {}),
        (FlowEnd("TimedOut"), "TimedOut", "ChildRunFailed", {}),
    ],
)
async def test_the_end_of_a_flow_decides(host: ActionHost, end: FlowEnd, status: str, code: str, outputs: Any) -> None:
    host.child_result = StopEvent(result=flow_result(end))
    outcome = await host.run(call_of("workflow", {"workflow": "child"}))
    assert (outcome.status, outcome.code, outcome.outputs) == (status, code, outputs)


async def test_children_may_be_given_more_than_a_body(host: ActionHost) -> None:
    host.child_result = StopEvent(result=None)
    await host.run(call_of("workflow", {"workflow": "child", "body": [1], "headers": {"X": "y"}}))
    _, event = host.children[0].start
    assert (event.body, event.headers, event.parameters) == ([1], {"X": "y"}, {})


async def test_children_that_fail(host: ActionHost) -> None:
    host.child_end = ChildEnd("run-1:child", "failed", Failure("builtins.ValueError", "broken"))
    outcome = await host.run(call_of("workflow", {"workflow": "child"}))
    assert (outcome.status, outcome.code, outcome.message) == ("Failed", "ChildRunFailed", "broken")
    assert (await host.run(call_of("workflow", {}))).code == "InvalidInputs"
