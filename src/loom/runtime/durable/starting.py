"""What runs begin with, from what callers give.

May import loom.core, loom.effects, loom.flows, loom.store and loom.runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.core.ticks import TickAddEvent
from loom.effects.flow_convert import FlowStartEvent
from loom.flows.plain import plain_value
from loom.runtime.durable.registered import RegisteredFlow
from loom.runtime.flow import Flow
from loom.steps.events import StartEvent
from loom.store import codec
from loom.store.errors import RunExists
from loom.store.operations import PostMail

if TYPE_CHECKING:
    from loom.effects.stored import StoredBodies
    from loom.runtime.durable.registered import Registered
    from loom.steps.events import Event
    from loom.store.operations import Started


def start_spec(code: Registered | None, convert: StoredBodies, inputs: Any) -> codec.StartSpec:
    """What a run begins with: checked if its code is at hand, else as it was given."""
    event = inputs if isinstance(inputs, StartEvent) else None
    if isinstance(code, RegisteredFlow):
        return code.start_spec(None if event is not None else inputs, event)
    if inputs is not None and event is None and not isinstance(inputs, dict):
        raise TypeError(f"The input of a run is a dict or a StartEvent, not {type(inputs).__name__}.")
    values = inputs if isinstance(inputs, dict) else {}
    if code is not None:
        return code.start_spec(values, event)
    if event is not None:
        return codec.StartSpec(event=convert.record(event))
    return codec.StartSpec(inputs=convert.value(values))


def flow_start(
    workflow: str, code: Registered | None, body: Any, parameters: dict[str, Any], variables: dict[str, Any]
) -> FlowStartEvent:
    """The whole start of a flow, checked if the flow is at hand."""
    given = {"body": body, "parameters": parameters, "variables": variables}
    if code is None:
        return FlowStartEvent(**{key: plain_value(value, key) for key, value in given.items()})
    if not isinstance(code.workflow, Flow):
        raise TypeError(f"{workflow!r} is no flow: it has no parameters and no variables.")
    return code.workflow._start_event(None, given)


def first_mail(
    run_id: str, event: Event, event_id: str, code: Registered | None, convert: StoredBodies, at: float
) -> PostMail:
    """The event that a run has from its first moment: checked if the run's code is at hand."""
    if code is not None:
        code.workflow._check_target(event, None)
    record = convert.sent(event, is_known=code is not None)
    tick = TickAddEvent(at=at, event=record, accepted=True)
    return PostMail(run_id, codec.encode_tick(tick), at, event_id=event_id)


def check_same(run_id: str, found: Started, name: str, start: bytes) -> None:
    """A start that is repeated is fine; another one under the same id is not."""
    if found.workflow != name:
        raise RunExists(run_id, f"as a run of {found.workflow!r}")
    if found.start != start:
        before, now = codec.decode_start(run_id, found.start), codec.decode_start(run_id, start)
        if before.inputs is None or before.inputs != now.inputs:
            raise RunExists(run_id, "with another input")
