"""How the attempts at actions end, and what all kinds of actions share. May import loom.flows and loom.effects."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loom.effects.actions.actor_port import Actors
from loom.effects.actions.callbacks import Callbacks
from loom.effects.actions.handlers import HANDLERS, ActionContext, Handlers
from loom.effects.actions.ssrf import HttpPolicy
from loom.effects.exits import is_signal
from loom.flows.calls import ActionCall, ActionOutcome
from loom.steps.texts import message_of

if TYPE_CHECKING:
    from loom.effects.execution import StepExecution

TIMED_OUT, NOT_SUPPORTED = "ActionTimedOut", "ActionTypeNotSupported"


@dataclass(frozen=True, slots=True)
class Services:
    """What actions find in their process."""

    handlers: Handlers = HANDLERS
    http: HttpPolicy | None = None
    """What requests may reach; None: what the environment allows."""
    actors: Actors | None = None
    """The way to actors that are runs of their own, where runs are kept."""
    callbacks: Callbacks | None = None
    """What gives out addresses for callbacks, where runs are kept."""
    max_response: int | None = None
    """How many bytes a response may have, whatever the policy says; None: as the policy says."""
    max_response_values: int | None = None
    """How many values a response may decode to, likewise."""

    @property
    def policy(self) -> HttpPolicy:
        """What requests may reach, now, and how much they may bring back."""
        policy = self.http if self.http is not None else HttpPolicy.from_environment()
        if self.max_response is not None and self.max_response != policy.max_response_bytes:
            policy = dataclasses.replace(policy, max_response_bytes=self.max_response)
        if self.max_response_values is not None and self.max_response_values != policy.max_response_values:
            policy = dataclasses.replace(policy, max_response_values=self.max_response_values)
        return policy


ActionBody = Callable[["StepExecution", ActionCall, Services], Awaitable[ActionOutcome]]
"""What does the actions of one type."""


class ActionFailed(Exception):
    """Raised by a body or a handler that says itself how the action fails."""

    def __init__(self, message: str, code: str = "ActionFailed", error_type: str = "", outputs: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.error_type = error_type
        self.outputs = outputs


def failure(error: BaseException) -> ActionOutcome:
    """The outcome of an action that has raised an exception, also of one that fails when it is looked at."""
    try:
        return _described(error)
    except BaseException as broken:
        if isinstance(broken, KeyboardInterrupt) and is_signal(broken):
            raise
        message = f"It raised an exception that cannot be looked at: {type(broken).__name__}"
        return ActionOutcome("Failed", code="ActionFailed", message=message, error_type="actionfailed")


def _described(error: BaseException) -> ActionOutcome:
    if isinstance(error, ActionFailed):
        kind = error.error_type or type(error).__name__.lower()
        return ActionOutcome("Failed", error.outputs, error.code, message_of(error), kind)
    name = type(error).__name__
    kind = "timeout" if isinstance(error, TimeoutError) else name.lower()
    return ActionOutcome("Failed", code=name, message=_message(error, name), error_type=kind)


def _message(error: BaseException, name: str) -> str:
    """Tell what went wrong, in words: the text of a KeyError is a key, and of many others a bare value."""
    is_bare = isinstance(error, KeyError) or (len(error.args) == 1 and not isinstance(error.args[0], str))
    text = message_of(error)
    return f"{name}: {text}" if is_bare and text else text or name


def timed_out(call: ActionCall) -> ActionOutcome:
    """The outcome of an action whose time is up."""
    limit = f" of {call.timeout_s:g} s" if call.timeout_s is not None else ""
    message = f"The action '{call.action}' was not done within its time limit{limit}."
    return ActionOutcome("TimedOut", code=TIMED_OUT, message=message, error_type="timeout")


def masked(call: ActionCall, outcome: ActionOutcome) -> ActionOutcome:
    """The outcome without a message or traceback that could tell what a secure action was given."""
    if not call.secure or not outcome.message or outcome.code in (TIMED_OUT, NOT_SUPPORTED):
        return outcome
    return ActionOutcome(
        outcome.status,
        outcome.outputs,
        outcome.code,
        "The message is hidden, because the action's data is secure.",
        outcome.error_type,
        outcome.retry_after_s,
    )


def time_left(execution: StepExecution, call: ActionCall) -> float | None:
    """The seconds that all attempts together have left; None without a limit."""
    if call.timeout_s is None:
        return None
    return (call.first_at or execution.command.started_at) + call.timeout_s - execution.host.now()


async def within_limit(
    execution: StepExecution, call: ActionCall, work: Callable[[], Awaitable[ActionOutcome]]
) -> ActionOutcome:
    """Do something within the action's time limit."""
    left = time_left(execution, call)
    if left is None:
        return await work()
    if left <= 0:
        return timed_out(call)
    scope = asyncio.timeout(left)
    try:
        async with scope:
            return await work()
    except TimeoutError:
        if scope.expired():
            return timed_out(call)
        raise


def context_of(execution: StepExecution, call: ActionCall) -> ActionContext:
    """What handlers may know about the action."""
    key = call.key or execution.idempotency_key
    return ActionContext(execution.host.run_id, key, call.attempt, call.action)


def argument_of(inputs: Any, *own: str) -> Any:
    """What a handler is called with: `input` if there is one, else the inputs that are not the action's own."""
    if inputs is None:
        return {}
    if not isinstance(inputs, dict):
        return inputs
    return inputs["input"] if "input" in inputs else {key: item for key, item in inputs.items() if key not in own}


def object_inputs(call: ActionCall) -> dict[str, Any]:
    """The inputs of an action that must be an object."""
    if isinstance(call.inputs, dict):
        return call.inputs
    raise ActionFailed(f"The inputs of the {call.type} action '{call.action}' must be an object.", "InvalidInputs")


def text_input(call: ActionCall, name: str) -> str:
    """An input that must be a text with something in it."""
    value = object_inputs(call).get(name)
    if isinstance(value, str) and value:
        return value
    raise ActionFailed(f"The {call.type} action '{call.action}' needs a text as inputs.{name}.", "InvalidInputs")
