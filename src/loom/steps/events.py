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
    AnswerRefusedEvent,
    CollectionReleaseEvent,
    IdleReleasedEvent,
    InternalDispatchEvent,
    StepFailedEvent,
    StepState,
    StepStateChanged,
    StreamSupersededEvent,
    UnhandledEvent,
    WorkflowCancelledEvent,
    WorkflowFailedEvent,
    WorkflowIdleEvent,
    WorkflowTimedOutEvent,
)

EventType = type[Event]

__all__ = [
    "AnswerRefusedEvent",
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
    "StreamSupersededEvent",
    "UnhandledEvent",
    "UnreconstructedException",
    "WorkflowCancelledEvent",
    "WorkflowFailedEvent",
    "WorkflowIdleEvent",
    "WorkflowTimedOutEvent",
]
