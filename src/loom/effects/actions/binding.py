"""An action of a flow, ready to be called by an execution: the counterpart of a step's binding.

Whatever a body does, the execution's result is an outcome, which the flow decides about. Only what this process cannot
do at all, and a cancellation, stay what they are. May import loom.flows, loom.steps and loom.effects.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from loom.core.records import EventRecord
from loom.effects.actions import events as _known_events  # noqa: F401 - stored ones must find their classes
from loom.effects.actions.activity import activity_action
from loom.effects.actions.actor import actor_action
from loom.effects.actions.child import workflow_action
from loom.effects.actions.connectors import connector_action
from loom.effects.actions.outcomes import ActionBody, ActionFailed, Services, failure, masked
from loom.effects.actions.waiting import wait_action
from loom.effects.convert import MissingTypeError
from loom.effects.exits import is_from_outside
from loom.effects.tracebacks import has_other_frames
from loom.effects.weight import is_heavier
from loom.flows.calls import OUTCOME_KIND, ActionCall, ActionOutcome
from loom.steps.ports import current_execution

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.state import WorkItem
    from loom.effects.execution import StepExecution


def _ai() -> ActionBody:
    from loom.effects.actions.ai import ai_action

    return ai_action


def _http() -> ActionBody:
    from loom.effects.actions.http import http_action

    return http_action


def _webhook() -> ActionBody:
    from loom.effects.actions.webhook import webhook_action

    return webhook_action


@cache
def _importer() -> ThreadPoolExecutor:
    """One thread that imports. Threads of bodies may all be busy for hours."""
    return ThreadPoolExecutor(1, "loom-import")


class _Late:
    """An action that needs the http client, which is imported when it is first used.

    That takes 0.2 s, with the authorities that the client trusts, so it is done in a thread.
    """

    def __init__(self, load: Callable[[], ActionBody]) -> None:
        self._load = load
        self._body: ActionBody | None = None

    def _loaded(self) -> ActionBody:
        from loom.effects.actions.guarded import default_tls

        default_tls()
        return self._load()

    async def __call__(self, execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
        if self._body is None:
            self._body = await asyncio.get_running_loop().run_in_executor(_importer(), self._loaded)
        return await self._body(execution, call, services)


BODIES: dict[str, ActionBody] = {
    "activity": activity_action,
    "actor": actor_action,
    "ai": _Late(_ai),
    "http": _Late(_http),
    "httpwebhook": _Late(_webhook),
    "waitforevent": wait_action,
    "workflow": workflow_action,
}
"""By type. Those that need the http client load it when they are first used: it takes longer than all the rest."""


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
        """What people know the work by."""
        return self.perform

    def arguments(self, item: WorkItem) -> dict[str, Any]:
        """The call, as the flow made it."""
        return {"call": item.event.body}

    async def call(self, arguments: dict[str, Any]) -> ActionOutcome:
        """Do what the flow asks for."""
        return await self.perform(**arguments)

    async def perform(self, call: ActionCall) -> ActionOutcome:
        """Do what the flow asks for, in the execution that runs here."""
        execution = cast("StepExecution", current_execution.get())
        # A registered handler wins over what is built in, which is how tests stub it.
        registered = call.type in self.services.handlers.actions
        body = connector_action if registered else BODIES.get(call.type, connector_action)
        task = asyncio.current_task()
        try:
            outcome = masked(call, await body(execution, call, self.services))
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
        return outcome if outcome.status == "Succeeded" else replace(outcome, attempt=call.attempt + 1)

    def classify(self, result: ActionOutcome) -> tuple[tuple[EventRecord, ...], bool]:
        """The outcome as the record that the flow gets."""
        return (EventRecord(OUTCOME_KIND, result),), False
