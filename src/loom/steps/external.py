"""Which events may come from outside a run, and which are the engine's alone.

A caller with a key for events may send what a run waits for, the answers of people that a step takes, and the types
that a step declares by `@step(external_events=[...])`. What passes between steps, the beginning and the end of a run
are for administrators, and the engine's own events for nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.records import START_EVENT, STOP_EVENT
from loom.steps.event_base import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from loom.steps.graph import accepts, event_types, is_kind
from loom.steps.registry import framework_type, kind_of, wire_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.core.records import EventKind
    from loom.steps.step_config import StepConfig

FLOW_EVENT, CALLBACK_EVENT = "loom.flows.FlowEvent", "loom.flows.CallbackEvent"
"""Events of flows that are made outside: one by a name, and the call of a service."""

_RESERVED = "loom."
"""Wire names that begin so are the engine's."""
_AUTHORS = (Event, StartEvent, StopEvent, InputRequiredEvent, HumanResponseEvent)
_OPEN = frozenset({*map(wire_name, _AUTHORS), FLOW_EVENT, CALLBACK_EVENT})
"""Wire names of the engine that others may use all the same."""


def is_own(kind: EventKind) -> bool:
    """Whether only the engine makes events of this kind: messages to actors and replies, failures, reports, notices."""
    return any(_is_reserved(name) for name in (kind.name, *kind.bases))


def _is_reserved(name: str) -> bool:
    return name not in _OPEN and (name.startswith(_RESERVED) or framework_type(name) is not None)


def is_bound(kind: EventKind) -> bool:
    """Whether events of this kind begin or end a run: whatever waits for them, a key for events may not send them."""
    return kind.is_a(START_EVENT) or kind.is_a(STOP_EVENT)


def is_answer(kind: EventKind) -> bool:
    """Whether a kind is that of a person's answer."""
    return kind.is_a(wire_name(HumanResponseEvent))


def is_declared(steps: Mapping[str, StepConfig], kind: EventKind, step: str | None = None) -> bool:
    """Whether some step, or the given one, declares a type: this one, or a base of it if the step takes subclasses."""
    for name, config in steps.items():
        if step not in (None, name):
            continue
        declared = {kind_of(cls).name for cls in config.external_events}
        if kind.name in declared or (config.accept_event_subclasses and not declared.isdisjoint(kind.bases)):
            return True
    return False


def external_types(steps: Mapping[str, StepConfig]) -> list[type[Event]]:
    """The types that callers from outside may send at any time: answers that a step takes, and what is declared."""
    declared = {cls for config in steps.values() for cls in config.external_events}
    return [
        cls
        for cls in event_types(steps)
        if cls in declared
        or (
            is_kind(cls, HumanResponseEvent)
            and not is_own(kind_of(cls))
            and any(accepts(config, cls) for config in steps.values())
        )
    ]
