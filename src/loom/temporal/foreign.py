"""Signals that were not sent by Loom: any Temporal client can send a run an event by the name of its type.

May import loom.core, loom.effects, loom.runtime, loom.steps and temporalio's messages.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from loom.core.ticks import TickAddEvent
from loom.effects.flow_convert import AnyBodies
from loom.effects.flow_events import FlowEvent
from loom.runtime.flow import Flow
from loom.steps.registry import wire_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from temporalio.api.common.v1 import Payload

    from loom.runtime.durable.registered import Registered
    from loom.steps.events import Event


def foreign_tick(name: str, payloads: Sequence[Payload], code: Registered, now: float) -> TickAddEvent:
    """A signal of some name, as an event of that type. What fits no type is kept under its name, never dropped."""
    data = _data(payloads)
    event = _known(name, data, code)
    convert = code.convert if event is not None else AnyBodies()
    record = convert.record(event if event is not None else FlowEvent(name=name, data=data))
    return TickAddEvent(at=now, event=record, accepted=True)


def _known(name: str, data: Any, code: Registered) -> Event | None:
    """The event of the workflow's own that is meant, if its class takes the data."""
    if isinstance(code.workflow, Flow):
        return None
    for cls in code.workflow.events:
        if name in (cls.__name__, wire_name(cls)):
            try:
                return cls(**data) if isinstance(data, dict) else cls()
            except (ValidationError, TypeError):
                return None
    return None


def _data(payloads: Sequence[Payload]) -> Any:
    """The argument of a signal, or the list of them. What is no JSON is shown as text."""
    values = [_value(payload) for payload in payloads]
    return values[0] if len(values) == 1 else (values or None)


def _value(payload: Payload) -> Any:
    encoding = payload.metadata.get("encoding", b"")
    if encoding == b"binary/null":
        return None
    try:
        return json.loads(payload.data)
    except ValueError:
        return payload.data.decode(errors="replace")
