"""Events for runs. Answers come after the commit. May import the server's frame, loom.core and loom.runtime."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from loom.core.records import INPUT_REQUIRED_EVENT, STOP_EVENT
from loom.flows.records import MASK
from loom.server.answers import JsonAnswer
from loom.server.compat_events import BadEvent, BadValue, event_from
from loom.server.problems import invalid
from loom.server.routing import Route, check_id, pointer
from loom.server.v1.runs import refused
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
        is_new = await call.runtime.send_event(row.run_id, event, step=step, waiter_id=waiter_id, event_id=event_id)
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


def _event(call: Call, row: RunRow, body: dict[str, Any]) -> Event:
    code = call.runtime.codes.get(row.workflow)
    value = body.get("value")
    envelope = {"type": body["type"], "value": value if value is not None or row.document is not None else {}}
    workflow = code.workflow if code is not None else None
    try:
        return event_from(envelope, workflow, event_names(workflow, row, body["type"]), flow=row.document is not None)
    except BadEvent as error:
        if isinstance(error.__cause__, ValidationError):
            raise refused("The value is not what the event takes.", error.__cause__, "value") from error
        raise invalid(str(error), "/value" if isinstance(error, BadValue) else "/type") from error


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


ROUTES = (Route("POST", "/v1/runs/{run_id}/events", send, "event"),)
