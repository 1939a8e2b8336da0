"""Events for runs that go on, and for failed ones in place of what failed them. Answers come after the commit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from loom.core.records import INPUT_REQUIRED_EVENT, STOP_EVENT
from loom.flows.records import MASK
from loom.runtime.durable.healing import replaceable
from loom.server.answers import JsonAnswer
from loom.server.compat_events import BadEvent, BadValue, event_from
from loom.server.event_rights import check_better, check_sent
from loom.server.problems import invalid
from loom.server.routing import Route, check_id, pointer
from loom.server.starts import check_open
from loom.server.v1.runs import active, refused, run_answer
from loom.server.wire import event_names
from loom.steps.errors import WorkflowRuntimeError

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.routing import Call
    from loom.server.shapes import Delivered, Delivery
    from loom.steps.events import Event
    from loom.store.records import RunRow


async def send(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/events`."""
    call.check_query()
    await call.check_event_size()
    body = await call.fields("type", "value", "step", "waiter_id", "event_id", required=("type",))
    for name in ("type", "step", "waiter_id"):
        if not isinstance(body.get(name), str | None):
            raise invalid(f"The field {name!r} must be a string.", pointer(name))
    event_id = check_id("event_id", body["event_id"]) if body.get("event_id") is not None else call.nonce
    row = await call.row()
    event = _event(call, row, body)
    step, waiter_id = body.get("step"), body.get("waiter_id")
    delivered = _delivered(call, row, event, step, waiter_id)
    try:
        to = await check_sent(call, row, event, step=step, waiter_id=waiter_id, event_id=event_id)
        is_new = await call.runtime.send_event(row.run_id, event, step=step, waiter_id=to, event_id=event_id)
    except WorkflowRuntimeError as error:
        raise invalid(str(error), "/step") from error
    except ValueError as error:
        raise invalid(str(error), "/value") from error
    answer: Delivery = {
        "tick": row.head.ticks if is_new else None,
        "delivered": delivered if is_new else None,
        "duplicate": not is_new,
    }
    return JsonAnswer(answer)


async def retry(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/retry`."""
    call.check_query()
    body = await call.fields("event")
    row = await call.row()
    if row.head.status == "running":
        if call.is_repeated:
            return await run_answer(call, row, 202)
        raise active(row.run_id, "only a failed run can be retried")
    check_open(call)
    await call.server.starts.reserve(call)
    try:
        event = await _better_event(call, row, body["event"]) if body.get("event") is not None else None
        await call.runtime.retry(row.run_id, event=event)
    except ValueError as error:
        raise invalid(str(error), "/event") from error
    call.has_begun(row.run_id)
    return await run_answer(call, await call.row(), 202)


async def _better_event(call: Call, row: RunRow, data: Any) -> Event | None:
    """The event that shall take the place of the one that failed a run; a run that has not failed needs none."""
    if not isinstance(data, dict) or not isinstance(data.get("type"), str) or not data.keys() <= {"type", "value"}:
        raise invalid('An event is an object {"type": "…", "value": {…}}.', "/event")
    await call.check_event_size()
    if row.head.status != "failed":
        return None
    state = await call.runtime.state_at(row.run_id)
    event = _event(call, row, data, tuple(replaceable(row.run_id, state)), ("event",))
    check_better(call, row, event, state)
    return event


def _event(
    call: Call, row: RunRow, body: dict[str, Any], others: tuple[str, ...] = (), at: tuple[str, ...] = ()
) -> Event:
    """The event that a body describes, of a type that the run knows or that is among `others` by its full name."""
    code = call.runtime.codes.get(row.workflow)
    value = body.get("value")
    envelope = {"type": body["type"], "value": value if value is not None or row.document is not None else {}}
    workflow = code.workflow if code is not None else None
    try:
        names = (*event_names(workflow, row, body["type"]), *others)
        return event_from(envelope, workflow, names, flow=row.document is not None)
    except BadEvent as error:
        if isinstance(error.__cause__, ValidationError):
            raise refused("The value is not what the event takes.", error.__cause__, *at, "value") from error
        raise invalid(str(error), pointer(*at, "value" if isinstance(error, BadValue) else "type")) from error


def _delivered(call: Call, row: RunRow, event: Event, step: str | None, waiter_id: str | None) -> Delivered | None:
    """Who takes the event, by what was stored when it came; None if nobody does, and it is not of a kind that is kept.

    A run that another process owns may be further already: nothing but its inbox is sure. So for runs that nobody here
    has code for, and for secure waiters: what they require is not to be found out by trying.
    """
    runtime = call.runtime
    code = runtime.codes.get(row.workflow)
    if code is None or (row.owner is not None and runtime.resident(row.run_id) is None):
        return "inbox"
    if row.head.paused:
        return "kept"
    convert = runtime.convert_of(row)
    record = convert.record(event)
    for waiter in json.loads(row.head.waiters):
        if waiter["waiter_id"] is None or not record.kind.is_a(waiter["event_type"]):
            continue
        if waiter_id not in (None, waiter["waiter_id"]) or step not in (None, waiter["step"]):
            continue
        if MASK in waiter["requirements"].values():
            return "inbox"
        if all(convert.field(record, name) == wanted for name, wanted in waiter["requirements"].items()):
            return "waiter"
    if code.accepts(record.kind, step):
        return "step"
    return None if record.kind.is_a(STOP_EVENT) or record.kind.is_a(INPUT_REQUIRED_EVENT) else "kept"


ROUTES = (
    Route("POST", "/v1/runs/{run_id}/events", send, "event"),
    Route("POST", "/v1/runs/{run_id}/retry", retry, "start"),
)
