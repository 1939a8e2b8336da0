"""All events and what belongs to them, under one name. Re-exports only."""

from __future__ import annotations

from loom.steps.dict_like import DictLikeModel
from loom.steps.event_base import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from loom.steps.event_types import (
    SerializableEvent,
    SerializableEventType,
    SerializableException,
    SerializableOptionalEvent,
    SerializableOptionalException,
    UnreconstructedException,
)
from loom.steps.system_events import (
    CollectionReleaseEvent,
    IdleReleasedEvent,
    InternalDispatchEvent,
    StepFailedEvent,
    StepState,
    StepStateChanged,
    UnhandledEvent,
    WorkflowCancelledEvent,
    WorkflowFailedEvent,
    WorkflowIdleEvent,
    WorkflowTimedOutEvent,
)

EventType = type[Event]

__all__ = [
    "CollectionReleaseEvent",
    "DictLikeModel",
    "Event",
    "EventType",
    "HumanResponseEvent",
    "IdleReleasedEvent",
    "InputRequiredEvent",
    "InternalDispatchEvent",
    "SerializableEvent",
    "SerializableEventType",
    "SerializableException",
    "SerializableOptionalEvent",
    "SerializableOptionalException",
    "StartEvent",
    "StepFailedEvent",
    "StepState",
    "StepStateChanged",
    "StopEvent",
    "UnhandledEvent",
    "UnreconstructedException",
    "WorkflowCancelledEvent",
    "WorkflowFailedEvent",
    "WorkflowIdleEvent",
    "WorkflowTimedOutEvent",
]
