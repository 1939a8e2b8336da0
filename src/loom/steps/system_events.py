"""The events that the engine itself makes: failures, ends of runs, and reports on what goes on inside.

May import `event_base` and `event_types`.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - pydantic reads the annotations below
from enum import Enum
from typing import Any

from pydantic import Field

from loom.steps.event_base import Event, StopEvent
from loom.steps.event_types import SerializableEvent, SerializableException  # noqa: TC001 - as above
from loom.steps.registry import framework_name


class StepFailedEvent(Event, defer_build=True):
    """Goes to a `@catch_error` handler when a step has failed and its retries are used up."""

    step_name: str
    input_event: SerializableEvent
    exception: SerializableException
    attempts: int
    elapsed_seconds: float
    failed_at: datetime


class CollectionReleaseEvent(Event, defer_build=True):
    """The batch that a collect step was called with; seen as `StepFailedEvent.input_event`."""

    events: list[SerializableEvent] = Field(default_factory=list)
    stream_id: str = ""
    binding_id: str = ""


class AnswerRefusedEvent(Event, defer_build=True):
    """An event that was sent was refused: it does not fit its class, or the schema that an action asks for.

    What waited for it waits on.
    """

    action: str = Field(default="", description="The action of a flow that waits on.")
    reason: str = Field(description="What does not fit, without values.")
    event_type: str = Field(default="", description="Class name of the event.")
    step: str = Field(default="", description="The step that the event was for.")
    waiter_id: str | None = Field(default=None, description="The wait that goes on, if it was one.")


class WorkflowTimedOutEvent(StopEvent, defer_build=True):
    """The last event of a run that took too long."""

    timeout: float
    active_steps: list[str]


class WorkflowCancelledEvent(StopEvent, defer_build=True):
    """The last event of a run that was cancelled."""


class WorkflowFailedEvent(StopEvent, defer_build=True):
    """The last event of a run that failed; attempts and seconds are None where no step's attempts were used up."""

    step_name: str
    exception: SerializableException
    attempts: int | None = None
    elapsed_seconds: float | None = None


class IdleReleasedEvent(StopEvent, defer_build=True):
    """Says that an idle run was released from memory; it is not over."""


class StreamSupersededEvent(Event, defer_build=True):
    """A step's body ran again, after a crash or a release, and wrote something else to the stream.

    What the same execution had written at these cursors does not count any more: what it writes now follows.
    """

    step_name: str = Field(description="Name of the step.")
    execution: int = Field(description="Which of the run's executions: the same number in all its repetitions.")
    cursors: list[tuple[int, int]] = Field(
        description="The first and the last cursor of each unbroken row of superseded events, in order."
    )


class InternalDispatchEvent(Event, defer_build=True):
    """A report from inside the engine, streamed only to those who ask for internal events."""


class WorkflowIdleEvent(InternalDispatchEvent):
    """The run has become idle: only input from outside can move it."""

    waiters: list[dict[str, Any]] = Field(default_factory=list, description="What the run waits for.")
    idle_since: float | None = Field(default=None, description="When the run became idle, in seconds since the epoch.")


class UnhandledEvent(InternalDispatchEvent):
    """An event has come in that no step and no waiter takes."""

    event_type: str = Field(description="Class name of the event.")
    qualified_name: str = Field(description="Wire name of the event's class.")
    step_name: str | None = Field(default=None, description="The step it was addressed to, if any.")
    idle: bool = Field(description="Whether the run is idle after it.")


class StepState(Enum):
    """Where an execution of a step stands."""

    PREPARING = "preparing"
    """Queued: the step has no free worker."""
    RUNNING = "running"
    NOT_RUNNING = "not_running"


class StepStateChanged(InternalDispatchEvent):
    """An execution of a step was queued, started or ended."""

    name: str = Field(description="Name of the step.")
    step_state: StepState = Field(description="Its new state.")
    worker_id: str = Field(description="The worker it runs on.")
    input_event_name: str = Field(description="Class of the event it takes.")
    output_event_name: str | None = Field(default=None, description="Class of the event it returned.")


for _event in (
    StepFailedEvent,
    CollectionReleaseEvent,
    WorkflowTimedOutEvent,
    WorkflowCancelledEvent,
    WorkflowFailedEvent,
    IdleReleasedEvent,
    InternalDispatchEvent,
    WorkflowIdleEvent,
    UnhandledEvent,
    StepStateChanged,
):
    framework_name(_event, f"workflows.events.{_event.__name__}")
    # Only these put off building their validators, for the sake of import time. Subclasses of theirs in user code
    # are built when they are defined, where a mistake in them belongs.
    _event.model_config.pop("defer_build", None)
framework_name(StreamSupersededEvent, "loom.StreamSupersededEvent")
StreamSupersededEvent.model_config.pop("defer_build", None)

# Flows had it first, and under this name it is stored.
framework_name(AnswerRefusedEvent, "loom.flows.AnswerRefusedEvent")
AnswerRefusedEvent.model_config.pop("defer_build", None)
