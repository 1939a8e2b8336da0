"""What an action asks of the world and what comes back: the contract between flows and the effects. Pure.

Both are bodies of event records, so they are plain data and are stored as they are: `inputs` and `outputs` hold nothing
but null, booleans, numbers, text, lists and dicts with text as keys.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from loom.core.records import EventKind

ActionStatus = Literal["Succeeded", "Failed", "TimedOut", "Cancelled"]

ACTOR_STEP = "actor"
"""The one step of a run in which actors without an id work, one message at a time."""

MASK = "*** secure ***"
"""What people see in the place of secure data."""


class ActionCall(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One attempt at an action, with its inputs evaluated."""

    action: str
    """The action's name."""
    type: str = msgspec.field(name="action_type")
    """In lower case."""
    inputs: Any = None
    options: tuple[str, ...] = ()
    """`operationOptions`, in lower case."""
    kind: str = ""
    """The action's `kind`, in lower case."""
    timeout_s: float | None = None
    """`limit.timeout`, from the first attempt on."""
    first_at: float = 0.0
    """When the first attempt began."""
    attempt: int = 0
    """From 0."""
    key: str = ""
    """Names the action within the run, repetition included: the same for all attempts, and for no other action."""
    secure: bool = False
    """Neither inputs nor outputs may be shown or logged."""


class ActionOutcome(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """How an attempt ended. A failure is an outcome, never an exception: its outputs can be read."""

    status: ActionStatus = "Succeeded"
    outputs: Any = None
    code: str = ""
    """Such as `OK`, `NotFound`, `ActionTimedOut`."""
    message: str = ""
    """What went wrong, for `error.message`."""
    error_type: str = ""
    """What the retry policy's `on` may name: `timeout`, `connection`, or the name of the handler's exception."""
    retry_after_s: float | None = None
    """The server asks for so much patience before another attempt."""
    traceback: str = ""
    """Where the author's handler raised, as text for people; the flow keeps the newest only."""
    attempt: int = 0
    """Of a failure: which attempt it was, from 1, for people; the flow counts by itself."""


class FlowStart(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What a flow begins with."""

    body: Any = None
    headers: dict[str, Any] = {}
    trigger: str = ""
    """The trigger's name; empty: the first one."""
    outputs: dict[str, Any] = {}
    """More outputs of the trigger, such as `queries`."""
    parameters: dict[str, Any] = {}
    variables: dict[str, Any] = {}


class FlowEnd(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """How a flow ended: what `FlowResult` is made from."""

    status: str
    outputs: dict[str, Any] = {}
    response: dict[str, Any] | None = None
    """What the flow answered its caller: statusCode, headers, body."""
    actions: dict[str, dict[str, Any]] = {}
    """Their records, of the last repetition, in the order of the document; secure data is masked."""
    variables: dict[str, Any] = {}
    error: dict[str, Any] | None = None
    traceback: str = ""
    """Where the handler raised that made the flow fail, if one did."""


class FlowResponse(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """What the flow answers its caller, as the stream tells it."""

    status_code: Any = 200
    headers: Any = {}
    body: Any = None


class LoopIteration(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One iteration of a loop has ended, as the stream tells it: the fields of `LoopIterationEvent`."""

    workflow_id: str
    action_name: str
    loop_type: str
    iteration: int
    """From 0."""
    condition_result: bool | None
    result: Any
    duration: float
    """Seconds."""
    timestamp: float
    max_iterations: int = 0
    status: str = "Succeeded"
    path: str = ""
    """The loop and its iteration within those around it, such as `outer[2]/inner[5]`."""


class ActionReport(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """An action has begun something that takes time, or has ended, as the stream tells it."""

    name: str
    type: str = msgspec.field(name="action_type")
    status: str
    """Running, Waiting, or how it ended."""
    at: float
    duration: float = 0.0
    code: str = ""
    message: str = ""
    attempt: int = 0
    repetition: tuple[int, ...] = ()
    """The iterations of the loops around it, outermost first."""


CALLBACK = "https://callback.invalid/loom"
"""The mark that `listCallbackUrl()` gives. The host puts the address in its place, which only the host knows."""

EVENT = "workflows.events.Event"
STOP_EVENT = "workflows.events.StopEvent"
START_KIND = EventKind("loom.flows.FlowStart", ("workflows.events.StartEvent", EVENT), "FlowStart")
CALL_KIND = EventKind("loom.flows.ActionCall", (EVENT,), "ActionCall")
OUTCOME_KIND = EventKind("loom.flows.ActionOutcome", (EVENT,), "ActionOutcome")
END_KIND = EventKind("loom.flows.FlowEnd", (STOP_EVENT, EVENT), "FlowEnd")
LOOP_KIND = EventKind("loom.flows.LoopIterationEvent", (EVENT,), "LoopIterationEvent")
ACTION_KIND = EventKind("loom.flows.ActionEvent", ("workflows.events.InternalDispatchEvent", EVENT), "ActionEvent")
RESPONSE_KIND = EventKind("loom.flows.ResponseEvent", (EVENT,), "ResponseEvent")
