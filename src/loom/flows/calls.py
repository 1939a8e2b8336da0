"""Calls and outcomes: the contract between flows and the effects.

A flow asks for an action with an `ActionCall`, and the effects answer with an `ActionOutcome`. Both are bodies of event
records, and are stored as they are. So `inputs` and `outputs` are plain data: null, booleans, numbers, text, lists, and
dicts with text as keys.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from loom.core.records import EventKind

ActionStatus = Literal["Succeeded", "Failed", "TimedOut", "Cancelled"]

ACTOR_STEP = "actor"
"""The one step of a run in which actors without an id work, one message at a time."""

MASK = "*** secure ***"
"""Text that people see in place of secure data."""


class ActionCall(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One attempt at an action, with its inputs evaluated."""

    action: str
    """The action's name."""
    type: str = msgspec.field(name="action_type")
    """The action's type, in lower case."""
    inputs: Any = None
    options: tuple[str, ...] = ()
    """`operationOptions`, in lower case."""
    kind: str = ""
    """The action's `kind`, in lower case."""
    timeout_s: float | None = None
    """`limit.timeout` in seconds, from the first attempt on; None: no limit."""
    first_at: float = 0.0
    """Start of the first attempt, in seconds since 1970."""
    attempt: int = 0
    """Number of the attempt, from 0."""
    key: str = ""
    """Names the action within the run, repetition included: the same for all attempts, and for no other action."""
    secure: bool = False
    """True if neither inputs nor outputs may be shown or logged."""


class ActionOutcome(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The end of an attempt. A failure is an outcome, never an exception: its outputs can be read."""

    status: ActionStatus = "Succeeded"
    outputs: Any = None
    code: str = ""
    """Such as `OK`, `NotFound`, `ActionTimedOut`."""
    message: str = ""
    """Text of the failure, for `error.message`."""
    error_type: str = ""
    """Name for the retry policy's `on`: `timeout`, `connection`, or that of the handler's exception."""
    retry_after_s: float | None = None
    """Seconds that the server asks to wait before another attempt; None: it did not ask."""
    traceback: str = ""
    """Traceback of the author's handler, as text for people; the flow keeps the newest only."""
    attempt: int = 0
    """Number of the attempt that failed, from 1, for people; the flow counts by itself."""


class FlowStart(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The input of a flow."""

    body: Any = None
    headers: dict[str, Any] = {}
    trigger: str = ""
    """The trigger's name; empty: the first one."""
    outputs: dict[str, Any] = {}
    """Further outputs of the trigger, such as `queries`."""
    parameters: dict[str, Any] = {}
    variables: dict[str, Any] = {}
    settings: dict[str, str] | None = None
    """The app settings that the definition names, as they were when the run began: a replay needs no others. None: the
    project beside the definition has given nothing so far."""


class FlowEnd(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The end of a flow. `FlowResult` is made from it."""

    status: str
    outputs: dict[str, Any] = {}
    response: dict[str, Any] | None = None
    """The answer to the caller: statusCode, headers, body. None: the flow gave none."""
    actions: dict[str, dict[str, Any]] = {}
    """Records of the actions by name, each of its last repetition, in document order; secure data is masked."""
    variables: dict[str, Any] = {}
    error: dict[str, Any] | None = None
    traceback: str = ""
    """Traceback of the handler that made the flow fail; empty if none did."""


class FlowResponse(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The answer to the caller, as the stream shows it."""

    status_code: Any = 200
    headers: Any = {}
    body: Any = None


class LoopIteration(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The end of one iteration of a loop, as the stream shows it: the fields of `LoopIterationEvent`."""

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
    warning: str = ""


class ActionReport(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The begin or the end of an action, as the stream shows it. Only actions that take time report their begin."""

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
"""Placeholder that `listCallbackUrl()` gives. The host replaces it, because only the host knows its address."""

EVENT = "workflows.events.Event"
STOP_EVENT = "workflows.events.StopEvent"
START_KIND = EventKind("loom.flows.FlowStart", ("workflows.events.StartEvent", EVENT), "FlowStart")
CALL_KIND = EventKind("loom.flows.ActionCall", (EVENT,), "ActionCall")
OUTCOME_KIND = EventKind("loom.flows.ActionOutcome", (EVENT,), "ActionOutcome")
END_KIND = EventKind("loom.flows.FlowEnd", (STOP_EVENT, EVENT), "FlowEnd")
LOOP_KIND = EventKind("loom.flows.LoopIterationEvent", (EVENT,), "LoopIterationEvent")
ACTION_KIND = EventKind("loom.flows.ActionEvent", ("workflows.events.InternalDispatchEvent", EVENT), "ActionEvent")
RESPONSE_KIND = EventKind("loom.flows.ResponseEvent", (EVENT,), "ResponseEvent")
