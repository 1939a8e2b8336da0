"""Lowering of actions that reach beyond the walk: calls, waits, the answer to the caller, the end of the run."""

from __future__ import annotations

from typing import Any

from loom.expressions import templates_in
from loom.flows.connections import CONNECTION_TYPES, ConnectionUse, connection_key, connection_names
from loom.flows.lowering.context import ActionDraft, ActionSource, Located, Lowered, is_expression
from loom.flows.lowering.fields import checked, interval, timestamp
from loom.flows.nodes.external import Awaited, ExternalCall, Response, Terminate, Wait


def call(action: ActionDraft) -> Lowered:
    """Lower a call with all its inputs, except for its retry policy."""
    part = action.source.inputs()
    if isinstance(part.value, dict) and "retryPolicy" in part.value:
        rest = {key: value for key, value in part.value.items() if key != "retryPolicy"}
        part = Located(rest, part.path)
    _check(action, part)
    kind = action.source.data.get("kind")
    return Lowered(
        ExternalCall(
            inputs=action.value(part),
            options=action.source.options,
            kind=kind.lower() if isinstance(kind, str) else "",
            awaits=_awaited(part.value) if action.source.type == _WAIT_FOR_EVENT else None,
        )
    )


_WAIT_FOR_EVENT = "waitforevent"
ANY_ANSWER = "HumanResponseEvent"
"""Event that a waitForEvent waits for if it names none."""


def _awaited(inputs: Any) -> Awaited:
    """Find the event that callers may send early: only one that the document names."""
    if not isinstance(inputs, dict):
        return Awaited(None if inputs else ANY_ANSWER)
    name, schema = inputs.get("event") or ANY_ANSWER, inputs.get("schema")
    is_plain = isinstance(name, str) and "@" not in name
    return Awaited(name if is_plain else None, schema if not any(templates_in(schema)) else None)


def connection_use(source: ActionSource) -> ConnectionUse | None:
    """Note what an action or a trigger calls, if its type names a connection."""
    if source.type not in CONNECTION_TYPES:
        return None
    part = source.inputs()
    least = source.setting("paginationPolicy", "minimumItemCount")
    items = least.value if least is not None else 0
    return ConnectionUse(
        type=source.type,
        path=source.path,
        inputs=part.value,
        inputs_path=part.path,
        names=connection_names(source.type, part.value),
        key=connection_key(part.value),
        page_items=items if isinstance(items, int) and not isinstance(items, bool) and items > 0 else 0,
    )


_NEEDS = {
    "http": ("uri", "url"),
    "activity": ("activityType",),
    "actor": ("actorType",),
    "ai": ("prompt", "messages"),
    "workflow": ("workflow", "host", "name"),
    "httpwebhook": ("subscribe",),
}
"""Inputs of which an action needs one, or it fails."""


def _check(action: ActionDraft, part: Located) -> None:
    """Warn of an action that lacks inputs. It is no error: a handler, or a static result, may need none."""
    names = _NEEDS.get(action.source.type)
    if names is None or is_expression(part.value):
        return
    if not isinstance(part.value, dict) or not any(name in part.value for name in names):
        kind = action.source.data["type"]
        action.low.problems.warn(action.source.path, f"{kind} needs '{names[0]}' in its inputs")


_RUN_STATUSES = ("Succeeded", "Failed", "Cancelled")


def wait(action: ActionDraft) -> Lowered:
    """Lower a wait for an `interval`, or `until` a timestamp."""
    length, moment = action.source.input("interval"), action.source.input("until")
    if length is None and moment is None:
        action.required("interval' or 'until", found=None)
    if moment is not None:
        stamp = moment.child("timestamp") if isinstance(moment.value, dict) else moment
        if action.required("timestamp", found=stamp) is not None and stamp is not None:
            return Lowered(Wait(delay_s=None, until=checked(action, stamp, timestamp)))
    return Lowered(Wait(delay_s=interval(action, length) if length is not None else None, until=None))


def terminate(action: ActionDraft) -> Lowered:
    """Lower the end of the run: `runStatus` and, for a failure, `runError`."""
    status = action.required("runStatus", found=action.source.input("runStatus"))
    error = action.source.input("runError")
    if status is not None and not is_expression(status.value):
        known = {name.lower() for name in _RUN_STATUSES}
        if not isinstance(status.value, str) or status.value.lower() not in known:
            message = f"{status.value!r} is no status that a run can end with: {', '.join(_RUN_STATUSES)}"
            action.low.problems.warn(status.path, message, action.low.problems.near(str(status.value), _RUN_STATUSES))
    return Lowered(
        Terminate(
            status=action.value(status),
            code=action.value(error.child("code") if error is not None else None),
            message=action.value(error.child("message") if error is not None else None),
        )
    )


def response(action: ActionDraft) -> Lowered:
    """Lower the answer to the caller."""
    source = action.source
    return Lowered(
        Response(
            status_code=action.value(source.input("statusCode"), default=200),
            headers=action.value(source.input("headers"), default={}),
            body=action.value(source.input("body")),
            is_asynchronous="asynchronous" in source.options,
        )
    )
