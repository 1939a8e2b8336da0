"""Stored data shown without decoding it: no class of an event is imported, so commands that only look start fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom.core.records import WaiterReport


def kept_text(kept: str) -> str:
    """Give the serializer's text of a value in the store, without the sign that says how to read it."""
    return kept[1:]


def waiter_dict(waiter: WaiterReport) -> dict[str, Any]:
    """A waiter as plain data for people and programs; `refused` only if an answer was."""
    shown = {
        "step": waiter.step,
        "waiter_id": waiter.waiter_id,
        "event_type": waiter.event_type,
        "requirements": dict(waiter.requirements),
        "since": waiter.since,
        "deadline": waiter.deadline,
    }
    if waiter.refused is not None:
        shown["refused"] = {
            "event_type": waiter.refused.event_type,
            "reason": waiter.refused.reason,
            "at": waiter.refused.at,
        }
    return shown
