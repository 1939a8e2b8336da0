"""The events of flows: what readers of a flow's stream see, and what can be sent into one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from loom.effects.flow_result import flow_result
from loom.flows.calls import (
    ACTION_KIND,
    LOOP_KIND,
    RESPONSE_KIND,
    ActionReport,
    FlowEnd,
    FlowResponse,
    FlowStart,
    LoopIteration,
)
from loom.flows.plain import copy_of
from loom.steps.events import Event, InternalDispatchEvent, StartEvent, StopEvent
from loom.steps.registry import built_on_first_use, framework_name


@built_on_first_use
class LoopIterationEvent(Event, defer_build=True):
    """An iteration of a loop has ended."""

    workflow_id: str
    """The run."""
    action_name: str
    """The loop."""
    path: str = ""
    """The loop and its iteration within those around it, such as `outer[2]/inner[5]`."""
    loop_type: str
    """until, while or doUntil."""
    iteration: int
    """From 0."""
    condition_result: bool | None = None
    """What the test gave: the one before the iteration, or after it where the body comes first."""
    result: Any = None
    """The outputs of the iteration's actions by name."""
    duration: float
    """Seconds."""
    timestamp: datetime
    max_iterations: int = 0
    status: str = "Succeeded"
    warning: str = ""
    """What an author should know: the result was cut, because it is nested too deep."""


@built_on_first_use
class ActionEvent(InternalDispatchEvent, defer_build=True):
    """An action of a flow has begun something that takes time, or has ended."""

    name: str
    type: str
    status: str
    """Running, Waiting, or how it ended."""
    timestamp: datetime
    duration: float = 0.0
    code: str = ""
    message: str = ""
    attempt: int = 0
    repetition: list[int] = Field(default_factory=list)
    """The iterations of the loops around it, outermost first."""


@built_on_first_use
class ResponseEvent(Event, defer_build=True):
    """A flow has answered its caller."""

    status_code: Any = 200
    headers: Any = None
    body: Any = None


@built_on_first_use
class FlowEvent(Event, defer_build=True):
    """An event for a flow: a `waitForEvent` action that waits for `name` goes on with `data`.

    Any other event can be sent too; it goes by the name of its class, and its fields are the data.
    """

    name: str
    data: Any = None


framework_name(LoopIterationEvent, LOOP_KIND.name)
framework_name(ActionEvent, ACTION_KIND.name)
framework_name(ResponseEvent, RESPONSE_KIND.name)
framework_name(FlowEvent, "loom.flows.FlowEvent")


def flow_event(body: Any) -> Event:
    """The event that a flow's planner has put on the stream."""
    match body:
        case LoopIteration():
            return LoopIterationEvent(
                workflow_id=body.workflow_id,
                action_name=body.action_name,
                path=body.path,
                loop_type=body.loop_type,
                iteration=body.iteration,
                condition_result=body.condition_result,
                result=copy_of(body.result),
                duration=body.duration,
                timestamp=_moment(body.timestamp),
                max_iterations=body.max_iterations,
                status=body.status,
                warning=body.warning,
            )
        case ActionReport():
            return ActionEvent(
                name=body.name,
                type=body.type,
                status=body.status,
                timestamp=_moment(body.at),
                duration=body.duration,
                code=body.code,
                message=body.message,
                attempt=body.attempt,
                repetition=list(body.repetition),
            )
        case FlowResponse():
            return ResponseEvent(status_code=body.status_code, headers=copy_of(body.headers), body=copy_of(body.body))
        case FlowEnd():
            return StopEvent(result=flow_result(body))
        case FlowStart():
            return StartEvent.model_validate({"body": body.body})
        case _:
            raise ValueError(f"The body of an event is a {type(body).__name__}, which nobody knows.")


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, tz=UTC)
