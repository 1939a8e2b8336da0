"""Waiting, answering and ending. Pure."""

from __future__ import annotations

from loom.flows.lowering.context import Action, Lowered, is_expression
from loom.flows.lowering.quantities import checked, interval, timestamp
from loom.flows.nodes.ends import Response, Terminate
from loom.flows.nodes.waits import Wait

RUN_STATUSES = ("Succeeded", "Failed", "Cancelled")


def wait(action: Action) -> Lowered:
    """`interval` or `until`."""
    length, moment = action.source.input("interval"), action.source.input("until")
    if length is None and moment is None:
        action.required("interval' or 'until", found=None)
    if moment is not None:
        stamp = moment.child("timestamp") if isinstance(moment.value, dict) else moment
        if action.required("timestamp", found=stamp) is not None and stamp is not None:
            return Lowered(Wait(delay_s=None, until=checked(action, stamp, timestamp)))
    return Lowered(Wait(delay_s=interval(action, length) if length is not None else None, until=None))


def terminate(action: Action) -> Lowered:
    """`runStatus` and, for a failure, `runError`."""
    status = action.required("runStatus", found=action.source.input("runStatus"))
    error = action.source.input("runError")
    if status is not None and not is_expression(status.value):
        known = {name.lower() for name in RUN_STATUSES}
        if not isinstance(status.value, str) or status.value.lower() not in known:
            message = f"{status.value!r} is no status that a run can end with: {', '.join(RUN_STATUSES)}"
            action.low.problems.warn(status.path, message, action.low.problems.near(str(status.value), RUN_STATUSES))
    return Lowered(
        Terminate(
            status=action.value(status),
            code=action.value(error.child("code") if error is not None else None),
            message=action.value(error.child("message") if error is not None else None),
        )
    )


def response(action: Action) -> Lowered:
    """What the caller of the flow gets."""
    source = action.source
    return Lowered(
        Response(
            status_code=action.value(source.input("statusCode"), default=200),
            headers=action.value(source.input("headers"), default={}),
            body=action.value(source.input("body")),
        )
    )
