"""Actions that leave the planner: HTTP, activities, connectors and every type that a handler may know. Pure."""

from __future__ import annotations

from loom.flows.lowering.context import Action, Lowered
from loom.flows.lowering.sources import Located
from loom.flows.nodes.calling import Call


def call(action: Action) -> Lowered:
    """All inputs as they are, but without what says how often to try."""
    part = action.source.inputs()
    if isinstance(part.value, dict) and "retryPolicy" in part.value:
        rest = {key: value for key, value in part.value.items() if key != "retryPolicy"}
        part = Located(rest, part.path)
    kind = action.source.data.get("kind")
    return Lowered(
        Call(
            inputs=action.value(part),
            options=action.source.options,
            kind=kind.lower() if isinstance(kind, str) else "",
        )
    )
