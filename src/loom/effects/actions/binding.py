"""An action of a flow, ready to be called by an execution: the counterpart of a step's binding.

An action is done by the handler that is registered for its type, or else by the function that is built in for it.
Whatever that does, the execution's result is an outcome, which the flow decides about. Only what this process cannot do
at all, and a cancellation, stay what they are. Connectors, all other types, answer like servers: what a handler returns
becomes `{statusCode, headers, body}` unless it is that already.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from loom.core.records import EventRecord
from loom.effects.actions import events as _known_events  # noqa: F401 - stored ones must find their classes
from loom.effects.actions.actors import actor_action
from loom.effects.actions.child import workflow_action
from loom.effects.actions.handlers import call_handler
from loom.effects.actions.outcomes import (
    NOT_SUPPORTED,
    ActionFailed,
    ActionFunction,
    Services,
    argument_of,
    code_of,
    context_of,
    failure,
    is_failure,
    masked,
    plain,
    text_input,
    within_limit,
    without,
)
from loom.effects.actions.used_connections import connector_of, names_of
from loom.effects.actions.waits import wait_action
from loom.effects.event_codec import MissingTypeError
from loom.effects.exceptions import has_other_frames, is_from_outside
from loom.effects.off_loop import is_heavier
from loom.flows.action_types import spelt
from loom.flows.beside import connection_name
from loom.flows.calls import OUTCOME_KIND, ActionCall, ActionOutcome
from loom.flows.diagnostics import did_you_mean
from loom.steps.ports import current_body, current_execution

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.state import WorkItem
    from loom.effects.execution import StepExecution


class ActionBinding:
    """The actions that a flow runs under one name."""

    __slots__ = ("name", "services")

    event_name = "call"
    context_name: str | None = None
    retry_policy = None
    """A flow's policies are data: its planner asks them."""

    def __init__(self, name: str, services: Services | None = None) -> None:
        self.name = name
        self.services = services if services is not None else Services()

    @property
    def function(self) -> Callable[..., Any]:
        """The function that people know the work by."""
        return self.perform

    def arguments(self, item: WorkItem) -> dict[str, Any]:
        """The call, as the flow made it."""
        return {"call": item.event.body}

    async def call(self, arguments: dict[str, Any]) -> ActionOutcome:
        """Do what the flow asks for."""
        return await self.perform(**arguments)

    async def perform(self, call: ActionCall) -> ActionOutcome:
        """Do what the flow asks for, in the execution that runs here."""
        if (mark := current_body.get()) is not None:
            mark.step, mark.is_secure = call.action, call.secure
        execution = cast("StepExecution", current_execution())
        function = self._function_for(execution, call)
        task = asyncio.current_task()
        try:
            outcome = masked(call, await function(execution, call, self.services))
            limit = execution.host.max_unsaved
            if limit is not None and is_heavier((outcome.outputs,), limit):
                raise ActionFailed(
                    f"Its outputs have more than {limit} bytes, which max_state allows.", "ResultTooLarge"
                )
        except MissingTypeError:
            raise
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # A failure is an outcome, whatever a handler raises.
            if is_from_outside(error, task):
                raise
            outcome = masked(call, failure(error))
            if has_other_frames(error):  # else it is the engine's own word for what went wrong
                text = execution.traceback_of(error, call.attempt, hide_messages=call.secure)
                outcome = replace(outcome, traceback=text)
        if outcome.status == "Succeeded":
            return outcome
        name = connection_name(call.inputs)
        if name is not None:
            outcome = without(outcome, self.services.secrets(name))
        return replace(outcome, attempt=call.attempt + 1)

    def _function_for(self, execution: StepExecution, call: ActionCall) -> ActionFunction:
        """Choose what does the action: the connector of its connection, a handler of its type, what is built in."""
        handlers = self.services.handlers
        connector = connector_of(execution, call, handlers)
        if connector is not None:
            return _OPERATION if connector.handler is None else partial(_handled, connector.handler)
        # A registered handler wins over what is built in, which is how tests stub it.
        handler = handlers.actions.get(call.type)
        if handler is not None:
            return partial(_handled, handler)
        return BUILT_IN_ACTIONS.get(call.type, _unknown_action)

    def classify(self, result: ActionOutcome) -> tuple[tuple[EventRecord, ...], bool]:
        """The outcome as the record that the flow gets."""
        return (EventRecord(OUTCOME_KIND, result),), False


# --- actions of registered handlers -----------------------------------------------------------------------------------


async def _activity_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Call the activity. What it returns are the outputs."""
    name = text_input(call, "activityType")
    function = services.handlers.activities.get(name)
    if function is None:
        near = did_you_mean(name, services.handlers.activities)
        raise ActionFailed(
            f"No activity is registered as {name!r}.{near} Register one with @loom.activity({name!r}).",
            "ActivityNotFound",
        )

    async def work() -> ActionOutcome:
        argument = argument_of(call.inputs, "activityType")
        return ActionOutcome(outputs=plain(await call_handler(function, argument, context_of(execution, call))))

    return await within_limit(execution, call, work)


_BARE = frozenset({"activity", "actor", "ai", "waitforevent"})
"""Types whose outputs are what their handler returned."""


async def _unknown_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Fail: nothing is registered for the action."""
    del services
    names = names_of(execution, call)
    more = f' Or register a connector with loom.connector("{names[0]}", openapi=...).' if names else ""
    raise ActionFailed(
        f"Nothing here can do the action '{call.action}' of type '{spelt(call.type)}'. Register a handler with "
        f'@loom.action("{spelt(call.type)}").{more}',
        NOT_SUPPORTED,
    )


async def _handled(
    function: Callable[..., Any], execution: StepExecution, call: ActionCall, services: Services
) -> ActionOutcome:
    """Call the author's handler."""

    async def work() -> ActionOutcome:
        inputs = call.inputs
        argument = argument_of(inputs) if isinstance(inputs, dict) and set(inputs) == {"input"} else inputs
        result = plain(await call_handler(function, {} if argument is None else argument, context))
        return ActionOutcome(outputs=result) if call.type in _BARE else _answered(result)

    name = connection_name(call.inputs)
    context = context_of(execution, call)
    if name is not None:
        # Only the handler gets the secrets of a connection: they are no part of the call, which is stored.
        context = context.over(services.connection(name))
    return await within_limit(execution, call, work)


def _answered(result: Any) -> ActionOutcome:
    """Turn what a connector's handler returned into a server's answer."""
    if not isinstance(result, dict) or not ({"body", "statusCode"} & set(result)):
        result = {"body": result}
    outputs = {"statusCode": 200, "headers": {}, **result}
    try:
        status = int(outputs["statusCode"])
    except (TypeError, ValueError):
        return ActionOutcome(outputs=outputs, code=str(outputs["statusCode"]))
    if is_failure(status):
        message = f"The handler answered {status} {code_of(status)}."
        return ActionOutcome("Failed", outputs, code_of(status), message)
    return ActionOutcome(outputs=outputs, code=code_of(status))


# --- built-in actions -------------------------------------------------------------------------------------------------


@cache
def _importer() -> ThreadPoolExecutor:
    """Make the one thread that imports. Threads of bodies may all be busy for hours."""
    return ThreadPoolExecutor(1, "loom-import")


class _Late:
    """An action that needs the http client, which is imported when it is first used.

    That takes 0.2 s, with the authorities that the client trusts, so it is done in a thread.
    """

    def __init__(self, load: Callable[[], ActionFunction]) -> None:
        self._load = load
        self._function: ActionFunction | None = None

    def _loaded(self) -> ActionFunction:
        from loom.effects.actions.http_client import default_tls

        default_tls()
        return self._load()

    async def __call__(self, execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
        if self._function is None:
            self._function = await asyncio.get_running_loop().run_in_executor(_importer(), self._loaded)
        return await self._function(execution, call, services)


def _ai() -> ActionFunction:
    from loom.effects.actions.ai import ai_action

    return ai_action


def _http() -> ActionFunction:
    from loom.effects.actions.http import http_action

    return http_action


def _operation() -> ActionFunction:
    from loom.effects.actions.connectors.operation_action import operation_action

    return operation_action


def _webhook() -> ActionFunction:
    from loom.effects.actions.webhook import webhook_action

    return webhook_action


_OPERATION = _Late(_operation)
"""Does the actions of connections that have a connector with a document."""

BUILT_IN_ACTIONS: dict[str, ActionFunction] = {
    "activity": _activity_action,
    "actor": actor_action,
    "ai": _Late(_ai),
    "http": _Late(_http),
    "httpwebhook": _Late(_webhook),
    "waitforevent": wait_action,
    "workflow": workflow_action,
}
"""The functions that do actions, by type. `_Late` ones load the http client when they are first used."""
