"""What runs keep, for those who only look at it: no class of an event is needed, so looking starts fast.

May import loom.core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loom.core.reports import WaiterReport


def kept_text(kept: str) -> str:
    """What the serializer has written of a value in the store, without the sign that says how to read it."""
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
