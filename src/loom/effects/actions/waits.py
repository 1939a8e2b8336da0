"""The waitForEvent action: a run that waits for a person or another program.

What it waits for is an event by its name: the name of its class, in whatever program that is defined, or the name of a
`FlowEvent`. The action asks by an event on the stream when it begins to wait. An answer that the schema refuses is told
so there, and the wait goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.effects.actions.outcomes import ActionFailed, plain, time_left, timed_out
from loom.effects.context_calls import EventName
from loom.effects.flow_events import FlowEvent
from loom.expressions.dotnet.timestamps import parse_duration
from loom.expressions.errors import FunctionError
from loom.flows.calls import ActionCall, ActionOutcome
from loom.flows.lowering.external import ANY_ANSWER
from loom.flows.schema_checks import schema_check
from loom.steps.events import AnswerRefusedEvent, Event, InputRequiredEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.effects.actions.outcomes import Services
    from loom.effects.execution import StepExecution


async def wait_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Wait for an event that fits. Its data are the outputs."""
    del services
    inputs = call.inputs if isinstance(call.inputs, dict) else {}
    name = _name(inputs)
    check = _check_of(inputs)
    requirements = _requirements(inputs)
    question, is_asked = _question(call, inputs, name), False
    deadline = _deadline(execution, call, inputs)
    while True:
        left = None if deadline is None else deadline - execution.host.now()
        if left is not None and left <= 0 and not execution.repeats:
            return timed_out(call)
        try:
            event = await execution.wait(
                EventName(name),
                question,
                f"action:{call.key or call.action}",
                requirements,
                None if left is None else max(left, 0),
                again=is_asked,
            )
        except TimeoutError:
            return timed_out(call)
        answer = data_of(event)
        objection = check(answer)
        if objection is None:
            return ActionOutcome(outputs=answer)
        reason = "The answer does not fit the schema." if call.secure else objection
        execution.publish(AnswerRefusedEvent(action=call.action, reason=reason))
        is_asked = True


def data_of(event: Event) -> Any:
    """Read the data of an event: its fields, declared and undeclared."""
    if isinstance(event, FlowEvent):
        return plain(event.data)
    dumped = event.model_dump(mode="json")
    extra = dumped.pop("_data", None)
    return plain({**dumped, **(extra if isinstance(extra, dict) else {}), **event._data})


def _name(inputs: dict[str, Any]) -> str:
    name = inputs.get("event")
    if name is None or name == "":
        return ANY_ANSWER
    if not isinstance(name, str):
        raise ActionFailed("inputs.event must be the name of an event.", "InvalidInputs")
    return name


def _check_of(inputs: dict[str, Any]) -> Callable[[Any], str | None]:
    schema = inputs.get("schema")
    if schema is None:
        return lambda _answer: None
    try:
        return schema_check(schema)
    except ValueError as error:
        raise ActionFailed(f"inputs.schema is no usable JSON Schema: {error}", "InvalidInputs") from error


def _requirements(inputs: dict[str, Any]) -> dict[str, Any]:
    given = inputs.get("requirements") or {}
    if not isinstance(given, dict):
        raise ActionFailed("inputs.requirements must be an object: field names and their values.", "InvalidInputs")
    return given


def _question(call: ActionCall, inputs: dict[str, Any], name: str) -> InputRequiredEvent:
    """Make the event that asks for an answer on the stream."""
    shown = {} if call.secure else {name: inputs[name] for name in ("prompt", "schema") if inputs.get(name) is not None}
    shown |= {"action": call.action, "event": name}
    return InputRequiredEvent(**shown)


def _deadline(execution: StepExecution, call: ActionCall, inputs: dict[str, Any]) -> float | None:
    """The time at which the wait ends: by its own timeout, from this attempt on, or earlier by the action's limit."""
    now = execution.host.now()
    left = time_left(execution, call)
    ends = [now + left] if left is not None else []
    timeout = inputs.get("timeout")
    if timeout is not None:
        begun = call.first_at if call.attempt == 0 and call.first_at else execution.command.started_at
        ends.append(begun + seconds_of(timeout))
    return min(ends) if ends else None


def seconds_of(timeout: Any, name: str = "timeout") -> float:
    """A duration in ISO 8601, or a number of seconds."""
    if isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0:
        return float(timeout)
    try:
        return float(parse_duration(timeout))
    except (FunctionError, TypeError, AttributeError) as error:
        raise ActionFailed(
            f"inputs.{name} must be a duration such as PT1H or a number of seconds: {error}", "InvalidInputs"
        ) from error
