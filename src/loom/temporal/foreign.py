"""Signals that were not sent by Loom: any Temporal client can send a run an event by the name of its type.

What a signal means is decided by the run's state and the signal alone, never by the code at hand: a replay may have
other code. May import loom.core, loom.effects and temporalio's messages.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from loom.core.records import EVENT, EventKind, EventRecord
from loom.core.ticks import TickAddEvent
from loom.effects.flow_convert import AnyBodies
from loom.effects.flow_events import FlowEvent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from temporalio.api.common.v1 import Payload

    from loom.core.config import BrokerConfig
    from loom.core.state import RunFields


def foreign_tick(
    name: str, payloads: Sequence[Payload], now: RunFields, config: BrokerConfig, at: float
) -> TickAddEvent:
    """A signal of some name as an event: of the type of this full name, or of one that the run waits for or takes and
    that has this short name.

    Its fields are taken as they are given; what fits no type is kept under its name, never dropped.
    """
    data = _data(payloads)
    known = next((full for full in asked_for(now, config) if name in (full, full.rpartition(".")[2])), name)
    if "." not in known or not isinstance(data, dict | None):
        record = AnyBodies().record(FlowEvent(name=name, data=data))
    else:
        record = EventRecord(_kind(known), _body(known, data or {}))
    return TickAddEvent(at=at, event=record, accepted=True)


def asked_for(now: RunFields, config: BrokerConfig) -> Iterator[str]:
    """The types that a run waits for, the oldest waiter's first, and those that its steps take."""
    waiters = [waiter for worker in now.workers.values() for waiter in worker.collected_waiters.values()]
    for waiter in sorted(waiters, key=lambda each: each.number):
        yield waiter.event_type
    for spec in config.steps:
        yield from spec.accepts


def _kind(name: str) -> EventKind:
    return EventKind(name, (EVENT,), name.rpartition(".")[2], f"<class '{name}'>")


def _body(name: str, fields: dict[str, Any]) -> str:
    """An event as Loom's serializer writes it."""
    return json.dumps({"__is_pydantic": True, "value": fields, "qualified_name": name}, separators=(",", ":"))


def _data(payloads: Sequence[Payload]) -> Any:
    """The argument of a signal, or the list of them. What is no JSON is shown as text."""
    values = [_value(payload) for payload in payloads]
    return values[0] if len(values) == 1 else (values or None)


def _value(payload: Payload) -> Any:
    if payload.metadata.get("encoding", b"") == b"binary/null":
        return None
    try:
        return json.loads(payload.data)
    except ValueError:
        return payload.data.decode(errors="replace")
