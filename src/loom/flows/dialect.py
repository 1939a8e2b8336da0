"""Which of the two dialects a container speaks. Pure; may import nothing of Loom.

Logic Apps and Loom write their containers alike, so each one is asked by itself: by a field or type that only Loom has,
or because it stands in one of Loom's.
"""

from __future__ import annotations

from typing import Any

LOOM_TRIGGERS = frozenset({"manual", "schedule", "event"})
"""Types of triggers, in lower case, that only Loom has."""

_LOOM_CONTAINERS = frozenset({"while", "dountil", "retry", "parallel"})
_LOOM_FIELDS = frozenset({"condition", "items", "on", "delay"})
_CONTAINERS = {
    "until": frozenset({"expression", "actions", "limit"}),
    "if": frozenset({"expression", "actions", "else"}),
    "switch": frozenset({"expression", "cases", "default"}),
    "foreach": frozenset({"foreach", "actions"}),
    "scope": frozenset({"actions"}),
}
"""Containers that both dialects have, with the fields that they have in both."""


def top_level_is_loom(definition: dict[str, Any]) -> bool:
    """Whether the top level is Loom's: without a trigger, or with none but Loom's own."""
    triggers = definition.get("triggers")
    if not isinstance(triggers, dict):
        return True
    return all(
        isinstance(trigger, dict) and str(trigger.get("type", "")).lower() in LOOM_TRIGGERS
        for trigger in triggers.values()
    )


def container_is_loom(kind: str, action: dict[str, Any], *, around: bool) -> bool:
    """Whether an action that has actions in it is Loom's. `around`: whether what it stands in is."""
    if around or kind in _LOOM_CONTAINERS:
        return True
    fields = _CONTAINERS.get(kind)
    if fields is None:
        return False
    inputs = action.get("inputs")
    inner = inputs.keys() if isinstance(inputs, dict) else ()
    return not _LOOM_FIELDS.isdisjoint(action) or not (_LOOM_FIELDS | fields).isdisjoint(inner)
