"""Events for runs that go on, and for failed ones in place of what failed them. Answers come after the commit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from loom.api.requests import BetterEvent, EventRequest, RetryRequest
from loom.api.runs import Delivery
from loom.core.records import INPUT_REQUIRED_EVENT, STOP_EVENT
from loom.flows.calls import MASK
from loom.runtime.durable.healing import replaceable
from loom.server.answers import JsonAnswer
from loom.server.call import pointer
from loom.server.caller_events import BadEvent, BadValue, check_better, check_sent, event_from, event_names
from loom.server.caller_limits import check_open
from loom.server.problems import invalid
from loom.server.routes import Body, Reply, RouteList
from loom.server.v1.runs import TOLD, active, refused, run_answer
from loom.steps.errors import WorkflowRuntimeError

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.api.runs import Delivered
    from loom.server.call import Call
    from loom.steps.events import Event
    from loom.store.records import RunRow

route = RouteList("runs")


@route(
    "POST",
    "/v1/runs/{run_id}/events",
    "sendEvent",
    scope="event",
    summary="Send an event into a run",
    description="The scope `event` is for what the run waits for, answers that a step takes, and types that the "
    "workflow declares. Any other type needs `admin`, and is recorded; the engine's own are refused.",
    body=EventRequest,
    replies={200: Reply("The event is stored.", Delivery)},
    problems=("run-finished",),
)
async def send(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/events`."""
    call.check_query()
    await call.check_event_size()
    body = await call.body(EventRequest)
    event_id = body.event_id if body.event_id is not None else call.nonce
    row = await call.row()
    event = event_of(call, row, body.type, body.value)
    step, waiter_id = body.step, body.waiter_id
    delivered = _delivered(call, row, event, step, waiter_id)
    try:
        to = await check_sent(call, row, event, step=step, waiter_id=waiter_id, event_id=event_id)
        is_new = await call.runtime.send_event(row.run_id, event, step=step, waiter_id=to, event_id=event_id)
    except WorkflowRuntimeError as error:
        raise invalid(str(error), "/step") from error
    except ValueError as error:
        raise invalid(str(error), "/value") from error
    if not is_new:
        return JsonAnswer(Delivery(duplicate=True))
    return JsonAnswer(Delivery(tick=row.head.ticks, delivered=delivered))


@route(
    "POST",
    "/v1/runs/{run_id}/retry",
    "retryRun",
    scope="start",
    summary="Let a failed run go on from its failed step",
    description="With an event it goes on with that one in place of the last of its type that the failed step got. "
    "A type that is neither a start event nor one that the scope `event` may send needs `admin`.",
    body=Body(RetryRequest, required=False),
    replies={202: TOLD},
    problems=("run-finished", "run-active"),
)
async def retry(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/retry`."""
    call.check_query()
    body = await call.body(RetryRequest)
    row = await call.row()
    if row.head.status == "running":
        if call.is_repeated:
            return await run_answer(call, row, 202)
        raise active(row.run_id, "only a failed run can be retried")
    check_open(call)
    await call.server.starts.reserve(call)
    try:
        event = await _better_event(call, row, body.event) if body.event is not None else None
        await call.runtime.retry(row.run_id, event=event)
    except ValueError as error:
        raise invalid(str(error), "/event") from error
    call.has_begun(row.run_id)
    return await run_answer(call, await call.row(), 202)


async def _better_event(call: Call, row: RunRow, data: BetterEvent) -> Event | None:
    """The event that shall take the place of the one that failed a run; a run that has not failed needs none."""
    await call.check_event_size()
    if row.head.status != "failed":
        return None
    state = await call.runtime.state_at(row.run_id)
    event = event_of(call, row, data.type, data.value, tuple(replaceable(row.run_id, state)), ("event",))
    check_better(call, row, event, state)
    return event


def event_of(
    call: Call, row: RunRow, name: str, value: Any, others: tuple[str, ...] = (), at: tuple[str, ...] = ()
) -> Event:
    """Make an event of a type that the run knows, or that is among `others` by its full name.

    `at` is the place of the event in the body, for refusals.
    """
    code = call.runtime.codes.get(row.workflow)
    envelope = {"type": name, "value": value if value is not None or row.document is not None else {}}
    workflow = code.workflow if code is not None else None
    try:
        names = (*event_names(workflow, row, name), *others)
        return event_from(envelope, workflow, names, flow=row.document is not None)
    except BadEvent as error:
        if isinstance(error.__cause__, ValidationError):
            raise refused("The value is not what the event takes.", error.__cause__, *at, "value") from error
        raise invalid(str(error), pointer(*at, "value" if isinstance(error, BadValue) else "type")) from error


def _delivered(call: Call, row: RunRow, event: Event, step: str | None, waiter_id: str | None) -> Delivered | None:
    """Tell who takes the event, by what was stored when it came; None if no step does, and it cannot be an early event.

    A run that another process owns may be further already: nothing but its inbox is sure. So for runs whose
    code this process has not, and for secure waiters: what they require is not to be found out by trying.
    """
    runtime = call.runtime
    code = runtime.codes.get(row.workflow)
    if code is None or (row.owner is not None and runtime.active_run(row.run_id) is None):
        return "inbox"
    if row.head.paused:
        return "kept"
    codec = runtime.codec_of(row)
    record = codec.record(event)
    for waiter in json.loads(row.head.waiters):
        if waiter["waiter_id"] is None or not record.kind.is_a(waiter["event_type"]):
            continue
        if waiter_id not in (None, waiter["waiter_id"]) or step not in (None, waiter["step"]):
            continue
        if MASK in waiter["requirements"].values():
            return "inbox"
        if all(codec.field(record, name) == wanted for name, wanted in waiter["requirements"].items()):
            return "waiter"
    if code.accepts(record.kind, step):
        return "step"
    return None if record.kind.is_a(STOP_EVENT) or record.kind.is_a(INPUT_REQUIRED_EVENT) else "kept"
