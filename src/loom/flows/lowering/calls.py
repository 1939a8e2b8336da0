"""Actions that leave the planner: HTTP, activities, connectors and every type that a handler may know. Pure."""

from __future__ import annotations

from typing import Any

from loom.expressions import templates_in
from loom.flows.lowering.context import Action, Lowered, is_expression
from loom.flows.lowering.sources import Located
from loom.flows.nodes.calling import Awaited, Call


def call(action: Action) -> Lowered:
    """All inputs as they are, but without what says how often to try."""
    part = action.source.inputs()
    if isinstance(part.value, dict) and "retryPolicy" in part.value:
        rest = {key: value for key, value in part.value.items() if key != "retryPolicy"}
        part = Located(rest, part.path)
    _check(action, part)
    kind = action.source.data.get("kind")
    return Lowered(
        Call(
            inputs=action.value(part),
            options=action.source.options,
            kind=kind.lower() if isinstance(kind, str) else "",
            awaits=_awaited(part.value) if action.source.type == WAIT_FOR_EVENT else None,
        )
    )


WAIT_FOR_EVENT = "waitforevent"
ANY_ANSWER = "HumanResponseEvent"
"""What a waitForEvent waits for that names no event."""


def _awaited(inputs: Any) -> Awaited:
    """What callers may send before it is asked for: only an event that the document names."""
    if not isinstance(inputs, dict):
        return Awaited(None if inputs else ANY_ANSWER)
    name, schema = inputs.get("event") or ANY_ANSWER, inputs.get("schema")
    is_plain = isinstance(name, str) and "@" not in name
    return Awaited(name if is_plain else None, schema if not any(templates_in(schema)) else None)


_NEEDS = {
    "http": ("uri", "url"),
    "activity": ("activityType",),
    "actor": ("actorType",),
    "ai": ("prompt", "messages"),
    "workflow": ("workflow", "host", "name"),
    "httpwebhook": ("subscribe",),
}
"""Inputs without which the action fails: one of them."""


def _check(action: Action, part: Located) -> None:
    """Warn of an action that says too little. It is no error: a handler, or a static result, may need no more."""
    names = _NEEDS.get(action.source.type)
    if names is None or is_expression(part.value):
        return
    if not isinstance(part.value, dict) or not any(name in part.value for name in names):
        kind = action.source.data["type"]
        action.low.problems.warn(action.source.path, f"{kind} needs '{names[0]}' in its inputs")
