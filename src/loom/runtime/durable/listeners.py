"""Listeners of triggers: which a flow asks for, how they are made and ended, and what operators ask of them.

Each is a run of its own; see `listeners_run`. The trigger as the document has it is what a listener is made for: the
same trigger in a new version of the flow keeps its listener, and another one replaces it.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from loom.api.definitions import TriggerFiring, TriggerHistory
from loom.api.times import maybe_moment, moment
from loom.effects.flow_codec import AnyEventCodec, FlowStartEvent
from loom.flows.connections import connection_names
from loom.flows.diagnostics import did_you_mean
from loom.flows.triggers import POLLED, SUBSCRIBED, TIMED
from loom.runtime.durable import history
from loom.runtime.durable.generations import Generations
from loom.runtime.durable.listener_firings import firings_in
from loom.runtime.durable.listeners_run import (
    FireNow,
    FlowTurned,
    ListenerStart,
    ListenerWorkflow,
    listener_name,
    listener_run_id,
)
from loom.runtime.durable.names import TRIGGERS, check_name
from loom.runtime.durable.registration import FlowRegistration, prepared
from loom.runtime.durable.schedules_run import FLOW_TAG, iso_text, timing_of_trigger
from loom.steps.errors import WorkflowRuntimeError
from loom.store.errors import RunFinished, RunNotFound

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from loom.core.state import BrokerState
    from loom.effects.actions.handlers import ActionHandlers
    from loom.flows.program import Program, Trigger
    from loom.runtime.durable.generations import Generation
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.runtime.flow import Flow
    from loom.store.records import RunRow

LISTENER_TAG = "loom.listener"
"""The tag with a listener's name, of its own run."""

TYPE_TAG = "loom.listener.type"
"""The tag with the type of a listener's trigger, in lower case."""

_log = logging.getLogger("loom.durable")

_EVERY_MINUTE = {"frequency": "Minute", "interval": 1}
"""When a connection is polled if its trigger does not say."""
_MANY = 10_000_000
"""More generations than a listener ever has."""


class TriggerNotFound(LookupError):
    """The flow has no trigger of this name."""

    def __init__(self, flow: str, trigger: str, hint: str = "") -> None:
        super().__init__(f"The flow {flow!r} has no trigger {trigger!r}.{hint}")
        self.flow = flow
        self.trigger = trigger


class TriggerRefused(ValueError):
    """A trigger cannot be fired by hand now."""


def workflow_of(flow: str) -> str:
    """Return the name that the listeners of a flow are stored with."""
    return f"{TRIGGERS}{flow}"


def listens(trigger: Trigger) -> bool:
    """Tell whether a trigger needs a listener."""
    return trigger.type in POLLED or trigger.type in SUBSCRIBED


class ListenerClient:
    """Makes, finds and ends the listeners of a store."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime
        self._made = Generations(runtime, LISTENER_TAG, listener_run_id, cleans_up=True)

    # -- making and ending --------------------------------------------------------------------------------------------

    async def keep(self, start: ListenerStart) -> None:
        """Make sure that a listener is there, and for no other trigger than this one."""
        check_name("The run_id of a listener", listener_run_id(start.name, _MANY))
        tags = {FLOW_TAG: start.workflow, TYPE_TAG: start.type}
        await self._made.keep(start.name, workflow_of(start.workflow), start.fields, tags, ends=False)

    async def end(self, flow: str, name: str) -> None:
        """Cancel all generations of a listener. They end their subscriptions."""
        await self._made.cancel(await self._made.of(name, workflow_of(flow)))

    async def rows(self, flow: str) -> list[RunRow]:
        """List the running listeners of a flow."""
        return await self._made.rows(workflow_of(flow), {}, running=True)

    async def names_of(self, flow: str) -> list[str]:
        """List the names of the running listeners of a flow."""
        return sorted({self._made.identity(row)[0] for row in await self.rows(flow)})

    async def is_replaced(self, start: ListenerStart) -> bool:
        """Tell whether another listener has taken over."""
        return await self._made.is_replaced(start.name, workflow_of(start.workflow), start.generation)

    async def turned(self, flow: str) -> None:
        """Tell the webhooks of a flow that it was enabled or disabled. Polls look themselves."""
        for row in await self.rows(flow):
            if row.tags.get(TYPE_TAG) in SUBSCRIBED:
                await self._tell(row.run_id, FlowTurned())

    async def _tell(self, run_id: str, event: FireNow | FlowTurned) -> bool:
        try:
            await self._runtime.send_event(run_id, event)
        except (RunFinished, RunNotFound):
            return False
        return True

    # -- operators ----------------------------------------------------------------------------------------------------

    async def history(self, flow: str, trigger: Trigger) -> TriggerHistory:
        """Tell what has become of a trigger, latest first."""
        if trigger.type in TIMED:
            return await self._of_schedule(flow, trigger)
        found = await self._newest(flow, trigger)
        known = TriggerHistory(name=trigger.name, type=trigger.type)
        if found is None:
            return known
        state = await history.state_at(self._runtime.store, found.row, AnyEventCodec().field, None)
        kept = await _store_of(state)
        return TriggerHistory(
            name=trigger.name,
            type=trigger.type,
            run_id=found.row.run_id,
            next_at=maybe_moment(kept.get("next_at")) if trigger.type in POLLED else None,
            subscribed=bool(kept.get("subscription")) if trigger.type in SUBSCRIBED else None,
            last_error=kept.get("last_error"),
            firings=[_shown(each) for each in firings_in(kept)],
        )

    async def _newest(self, flow: str, trigger: Trigger) -> Generation | None:
        found = await self._made.of(listener_name(flow, trigger.name), workflow_of(flow))
        return found[0] if found else None

    async def _of_schedule(self, flow: str, trigger: Trigger) -> TriggerHistory:
        """Tell of a trigger that time fires what its schedule knows: its last run."""
        known = TriggerHistory(name=trigger.name, type=trigger.type)
        for name in await self._runtime.schedule_client.names_of(flow):
            found = await self._runtime.schedule_client.get(name)
            if found.trigger != trigger.name:
                continue
            firings = []
            if found.last_at is not None and found.last_run_id is not None:
                firings = [
                    TriggerFiring(at=found.last_at, status="succeeded", code="OK", runs=1, run_id=found.last_run_id)
                ]
            return TriggerHistory(
                name=trigger.name,
                type=trigger.type,
                run_id=found.run_id,
                next_at=found.next_at,
                last_error=found.last_error,
                firings=firings,
            )
        return known

    async def fire(self, flow: str, trigger: Trigger) -> str:
        """Fire a trigger now: poll, or start the run that is due by time. Returns the id of the run that does it."""
        if trigger.type in TIMED:
            event = FlowStartEvent(trigger=trigger.name, outputs={"scheduledTime": iso_text(self._runtime.now())})
            run_id, _ = await self._runtime.starter.begin(flow, event, run_id=uuid.uuid4().hex)
            return run_id
        if trigger.type not in POLLED:
            raise TriggerRefused(
                f"The trigger {trigger.name!r} is fired by a call, with what that brings: call it, or start a run."
            )
        found = await self._newest(flow, trigger)
        if found is None or not found.is_alive or not await self._tell(found.row.run_id, FireNow()):
            raise TriggerRefused(
                f"Nothing listens for the trigger {trigger.name!r}: no process with what it needs works for the flow."
            )
        return found.row.run_id


def find_trigger(flow: str, program: Program, name: str | None) -> Trigger:
    """Find a trigger of a flow; without a name the only one."""
    if name is None:
        if len(program.triggers) == 1:
            return program.triggers[0]
        names = ", ".join(each.name for each in program.triggers)
        raise TriggerRefused(f"Say which trigger of {flow!r}: {names}." if names else f"{flow!r} has no trigger.")
    found = next((each for each in program.triggers if each.name == name), None)
    if found is None:
        raise TriggerNotFound(flow, name[:200], did_you_mean(name, [each.name for each in program.triggers]))
    return found


_STATUSES = {"data": "succeeded", "nothing": "skipped", "failed": "failed"}


def _shown(kept: dict[str, Any]) -> TriggerFiring:
    return TriggerFiring(
        at=moment(kept["at"]),
        status=_STATUSES[kept["status"]],
        code=kept["code"],
        message=kept["message"] or None,
        by_hand=kept["by_hand"],
        runs=kept["runs"],
        run_id=kept["run_id"] or None,
        repeats=kept.get("repeats", 0),
        until=maybe_moment(kept.get("until")),
    )


async def _store_of(state: BrokerState) -> dict[str, Any]:
    store = AnyEventCodec().store_from(state.store, state.store_type, state.store_version)
    return dict((await store.get_state()).items())


# -- listeners that flows ask for --------------------------------------------------------------------------------------


async def keep_listeners(runtime: WorkerRuntime, names: Iterable[str], ended: Container[str] = ()) -> None:
    """Make, replace and end listeners as the triggers of these flows say now; listeners of ended flows end."""
    for name in names:
        code = runtime.codes.get(name)
        if not isinstance(code, FlowRegistration):
            continue
        wanted = {listener_name(name, each.name): each for each in code.program.triggers if listens(each)}
        if name in ended:
            wanted = {}
        gone = set(await runtime.listeners.names_of(name)) - set(wanted)
        starts = [
            start for known, each in wanted.items() if (start := _listener(runtime, name, known, each, code.flow))
        ]
        if not gone and not starts:
            continue
        if (own := workflow_of(name)) not in runtime.codes:
            runtime.codes[own] = prepared(own, ListenerWorkflow(runtime))
            await runtime.work_on([own])
        for each in gone:
            await runtime.listeners.end(name, each)
        for start in starts:
            try:
                await runtime.listeners.keep(start)
            except ValueError as error:
                _complain(start.trigger, name, error)


def _listener(runtime: WorkerRuntime, flow: str, known: str, trigger: Trigger, code: Flow) -> ListenerStart | None:
    """Make what a listener begins with; None, and a line in the log, if this process cannot listen."""
    try:
        _check_served(runtime.services.handlers, trigger)
        timing = timing_of_trigger(trigger, code, _default_timing(trigger)) if trigger.type in POLLED else None
    except (ValueError, WorkflowRuntimeError) as error:
        _complain(trigger.name, flow, error)
        return None
    return ListenerStart(name=known, workflow=flow, trigger=trigger.name, definition=trigger.definition, timing=timing)


def _check_served(handlers: ActionHandlers, trigger: Trigger) -> None:
    if trigger.type in ("http", "httpwebhook"):
        return
    names = connection_names(trigger.type, trigger.definition.get("inputs"))
    if handlers.connector_for(names) is None:
        known = names[0] if names else "NAME"
        raise ValueError(f"register a connector for its connection, as loom.connector({known!r}, ...).")


def _default_timing(trigger: Trigger) -> dict[str, Any] | None:
    return _EVERY_MINUTE if trigger.type != "http" else None


def _complain(trigger: str, flow: str, error: Exception) -> None:
    """Say why nothing listens for a trigger. The flow may be started otherwise."""
    _log.warning("The trigger %s of the flow %s starts no runs: %s", trigger, flow, error)
