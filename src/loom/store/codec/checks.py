"""What a tick may hold if it is to be stored, and which event records are in it. May import loom.core."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import msgspec

from loom.core.ticks import (
    TickAddEvent,
    TickAwaitEvent,
    TickChildEnded,
    TickPublishEvent,
    TickRetryRun,
    TickStartRun,
    TickStepResult,
)

if TYPE_CHECKING:
    from loom.core.records import EventRecord
    from loom.core.ticks import WorkflowTick

_float_fields: dict[type[Any], tuple[str, ...]] = {}


def check_tick(tick: WorkflowTick) -> tuple[EventRecord, ...]:
    """The event records of a tick in their order; `ValueError` if something in it could not be read again."""
    names = _float_fields.get(type(tick))
    if names is None:
        fields = msgspec.structs.fields(type(tick))
        names = tuple(field.encode_name for field in fields if field.type in (float, float | None))
        _float_fields[type(tick)] = names
    for name in names:
        value = getattr(tick, name)
        # JSON has no form for these; msgspec would write null without a word.
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{type(tick).__name__}.{name} is {value}, and only finite numbers can be stored.")
    records = records_of(tick)
    for record in records:
        if type(record.body) is dict:
            # It might be taken for one of the engine's own records.
            raise ValueError(
                f"The body of {record.kind.name} is a dict: bodies must be encoded before they are stored."
            )
    return records


def records_of(tick: WorkflowTick) -> tuple[EventRecord, ...]:
    """The event records of a tick, in the order that references count them by."""
    match tick:
        case TickStepResult():
            if not tick.collects:
                return tick.returned
            return (*tick.returned, *(call.event for call in tick.collects))
        case TickAddEvent() | TickPublishEvent():
            return (tick.event,)
        case TickAwaitEvent():
            return (tick.waiter_event,) if tick.waiter_event is not None else ()
        case TickStartRun() | TickChildEnded() | TickRetryRun():
            return (tick.event,) if tick.event is not None else ()
        case _:
            return ()
