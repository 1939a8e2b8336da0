"""How attempts at actions end, and what all kinds of actions share.

`Services` is what actions find in their process. A function of an action returns an `ActionOutcome` or raises;
`failure` turns what it raises into an outcome. `plain` turns what handlers return into JSON data, the only kind of
value that a flow has: a value that cannot be stored must not enter a run.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import math
from collections.abc import Awaitable, Callable
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import BaseModel

from loom.effects.actions.events import Actors, Callbacks
from loom.effects.actions.handlers import HANDLERS, ActionContext, ActionHandlers
from loom.effects.actions.ssrf import HttpPolicy
from loom.effects.exceptions import is_signal
from loom.expressions.values import INT_MAX, INT_MIN
from loom.flows.calls import MASK, ActionCall, ActionOutcome
from loom.flows.plain import below
from loom.steps.errors import message_of, well_formed
from loom.steps.registry import framework_name

if TYPE_CHECKING:
    from loom.effects.execution import StepExecution


TIMED_OUT, NOT_SUPPORTED = "ActionTimedOut", "ActionTypeNotSupported"


def no_connection(name: str) -> None:
    """Know no connection: the flow belongs to no project."""
    del name


def no_secrets(name: str) -> tuple[str, ...]:
    """List none: the flow belongs to no project."""
    del name
    return ()


class Services(Struct, frozen=True):
    """The services of a process that its actions use."""

    # The registry of the process itself, not a copy: handlers may be registered after this.
    handlers: ActionHandlers = field(default_factory=lambda: HANDLERS)
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

    connection: Callable[[str], dict[str, Any] | None] = no_connection
    """Finds a connection of the flow's project by its name, with its secrets; None if there is none."""
    secrets: Callable[[str], tuple[str, ...]] = no_secrets
    """Lists the texts in a connection that errors must not repeat."""

    @property
    def policy(self) -> HttpPolicy:
        """The policy of requests, now: what they may reach, and how much they may bring back."""
        policy = self.http if self.http is not None else HttpPolicy.from_environment()
        if self.max_response is not None and self.max_response != policy.max_response_bytes:
            policy = replace(policy, max_response_bytes=self.max_response)
        if self.max_response_values is not None and self.max_response_values != policy.max_response_values:
            policy = replace(policy, max_response_values=self.max_response_values)
        return policy


ActionFunction = Callable[["StepExecution", ActionCall, Services], Awaitable[ActionOutcome]]
"""A function that does the actions of one type."""


class ActionFailed(Exception):
    """Raised by a body or a handler that says itself how the action fails."""

    def __init__(self, message: str, code: str = "ActionFailed", error_type: str = "", outputs: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.error_type = error_type
        self.outputs = outputs


# --- outcomes ---------------------------------------------------------------------------------------------------------


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


def code_of(status: int) -> str:
    """The reason of a status as one word: `OK`, `NotFound`; the number itself where it has none."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        return str(status)
    return "".join(character for character in phrase if character.isalnum())


def is_failure(status: int) -> bool:
    """Say whether a status is no success: everything but 2xx."""
    return not 200 <= status < 300  # noqa: PLR2004 - the range of successes


# --- time limits ------------------------------------------------------------------------------------------------------


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


# --- inputs -----------------------------------------------------------------------------------------------------------


def without(outcome: ActionOutcome, secrets: tuple[str, ...]) -> ActionOutcome:
    """Hide texts wherever the outcome of a failure repeats them: exceptions tell addresses, with the keys in them."""
    message, traceback = outcome.message, outcome.traceback
    for secret in secrets:
        message, traceback = message.replace(secret, MASK), traceback.replace(secret, MASK)
    return replace(outcome, message=message, traceback=traceback)


def context_of(execution: StepExecution, call: ActionCall) -> ActionContext:
    """Make the context that handlers may ask for."""
    key = call.key or execution.idempotency_key
    return ActionContext(execution.host.run_id, key, call.attempt, call.action)


def argument_of(inputs: Any, *own: str) -> Any:
    """Make a handler's argument: `input` if there is one, else the inputs that are not the action's own."""
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


# --- plain data -------------------------------------------------------------------------------------------------------

MAX_DEPTH = 200


class NotPlainData(TypeError):
    """A result that is no JSON data. The message names the type and the place."""


# Stored failures name the class so, whatever its module is called.
framework_name(NotPlainData, "loom.effects.actions.plain.NotPlainData")


def plain(value: Any, path: str = "", depth: int = 0) -> Any:
    """The value as null, booleans, numbers, text, lists and dicts with text as keys."""
    if isinstance(value, Enum):
        return plain(value.value, path, depth)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if INT_MIN <= value <= INT_MAX else _finite(float(value), path)
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, float):
        return _finite(value, path)
    if depth > MAX_DEPTH:
        raise NotPlainData(f"The result is nested more than {MAX_DEPTH} deep at {path[:80]}.")
    if isinstance(value, dict):
        return {_key(key, path): plain(item, below(path, f".{key}"), depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, below(path, f"[{index}]"), depth + 1) for index, item in enumerate(value)]
    return plain(_opened(value, path), path, depth + 1)


def _opened(value: Any, path: str) -> Any:
    """Open one layer of an object that has a form in JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, msgspec.Struct):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes | bytearray):
        content = base64.b64encode(value).decode()
        return {"$content-type": "application/octet-stream", "$content": content}
    raise NotPlainData(f"The result holds {_where(path)}a {type(value).__qualname__}, which is no JSON data.")


def _finite(value: float, path: str) -> float:
    if not math.isfinite(value):
        raise NotPlainData(f"The result holds {_where(path)}{value}, which is no number in JSON.")
    return value


def _key(key: Any, path: str) -> str:
    if isinstance(key, str):
        return well_formed(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    raise NotPlainData(f"The result holds {_where(path)}a key of type {type(key).__qualname__}; keys are text.")


def _where(path: str) -> str:
    return f"at {path.removeprefix('.')} " if path else ""
