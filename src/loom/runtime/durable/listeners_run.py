"""The run that listens for a trigger: it polls a service, or has a service call, and starts runs of the flow.

A poll, what it has brought, and the place to ask the next time are ticks of this run. What is brought is committed
before anything starts, and each item's run has an id that follows from the trigger, the poll and the item. So a process
that dies in between loses no item, and the process that goes on starts none twice.

A webhook's calls are events of this run: a call that was acknowledged is stored. The subscription ends with the run, in
its clean-up step.

The classes of events here are stored by the name of this module, so they cannot move.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import Field

from loom.expressions import ContextEnvironment, ExpressionError, compile_value
from loom.expressions.dotnet.timestamps import timestamp_text
from loom.expressions.meter import Meter, metered_by
from loom.flows.calls import CALLBACK
from loom.flows.triggers import POLLED, FiringRefused, fired
from loom.runtime.durable.listener_firings import firing, noted
from loom.runtime.durable.listener_starts import ItemStarts
from loom.runtime.durable.registration import FlowRegistration
from loom.runtime.durable.schedules_run import next_due, pinned
from loom.runtime.durable.stored_definitions import DefinitionNotFound, DefinitionUnreadable
from loom.runtime.masking import hides_outputs
from loom.steps.context import Context  # noqa: TC001 - steps' annotations are read at run time
from loom.steps.decorators import on_cancel, step
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import Event, HumanResponseEvent, RunCancelledEvent, StartEvent, StopEvent
from loom.steps.registry import built_on_first_use
from loom.steps.retry import (
    retry_any,
    retry_if_exception_type,
    retry_policy,
    stop_after_delay,
    stop_never,
    wait_exponential,
)
from loom.steps.workflow import Workflow
from loom.store.errors import StoreError

if TYPE_CHECKING:
    from loom.effects.actions.trigger_calls import Answer, TriggerCall
    from loom.flows.program import Trigger
    from loom.runtime.durable.worker import WorkerRuntime

_log = logging.getLogger("loom.durable")

KEY = "trigger"
"""The key of the address at which the service of a webhook calls."""

_SHORTEST_S = 1.0
"""Seconds between two polls at the least, whatever a service asks for."""
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 10.0, 3600.0
_LOOK_S = 600.0
"""Seconds until a subscription is looked at without a reason. A process that should have given one may have died."""
_CLEANUP_S = 86_400.0

_UNTIL_THE_STORE_IS_BACK = retry_policy(
    retry=retry_if_exception_type(StoreError), wait=wait_exponential(max=60), stop=stop_never()
)


class NotUnsubscribed(Exception):
    """Raised if a service has not ended a subscription: it is asked again."""


@built_on_first_use
class ListenerStart(StartEvent, defer_build=True):
    """What a listener listens for."""

    name: str
    generation: int = 1
    workflow: str
    trigger: str
    definition: dict[str, Any]
    """The trigger as the document has it. Another one is another listener."""
    timing: dict[str, Any] | None = None
    """When it polls; None for a webhook."""

    @property
    def run_id(self) -> str:
        """The id of the run that it is."""
        return listener_run_id(self.name, self.generation)

    @property
    def type(self) -> str:
        """The type of the trigger, in lower case."""
        return str(self.definition.get("type")).lower()

    def fields(self, generation: int) -> dict[str, Any]:
        """Return what is stored of it."""
        return self.model_copy(update={"generation": generation}).model_dump(mode="json")


@built_on_first_use
class PollDue(Event, defer_build=True):
    """The service is to be asked at a time."""

    at: float
    number: int


@built_on_first_use
class Polled(Event, defer_build=True):
    """A poll has brought something: a run starts for each item."""

    number: int
    at: float
    items: list[Any]
    outputs: dict[str, Any]
    """The trigger's outputs without their body."""
    place: str = ""
    retry_after_s: float | None = None
    by_hand: bool = False


@built_on_first_use
class LookDue(Event, defer_build=True):
    """A subscription is to be made or ended, if the flow was enabled or disabled."""

    number: int
    after_s: float = 0.0


@built_on_first_use
class FireNow(HumanResponseEvent, defer_build=True):
    """An operator wants a poll now."""


@built_on_first_use
class FlowTurned(HumanResponseEvent, defer_build=True):
    """The flow was enabled, disabled or changed."""


@built_on_first_use
class TriggerCalled(HumanResponseEvent, defer_build=True):
    """The service has called."""

    call_id: str
    body: Any = None
    headers: dict[str, Any] = Field(default_factory=dict)
    queries: dict[str, Any] = Field(default_factory=dict)


def listener_name(flow: str, trigger: str) -> str:
    """Name the listener of a trigger. Different triggers have different names, whatever characters theirs have."""
    return ":".join(text.replace("%", "%25").replace(":", "%3A") for text in (flow, trigger))


def listener_run_id(name: str, generation: int) -> str:
    """The id of a listener's run. A listener that is replaced goes on as the next generation."""
    return f"trigger:{name}" if generation == 1 else f"trigger:{name}:{generation}"


class _Current(NamedTuple):
    """The flow as it is now, and its trigger."""

    code: FlowRegistration
    trigger: Trigger
    is_disabled: bool


class ListenerWorkflow(Workflow):
    """What the run of a listener runs. It ends when it is cancelled: its flow is gone, or another one replaces it."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        super().__init__(timeout=None, max_depth=None)
        self._worker = runtime

    @step(retry_policy=_UNTIL_THE_STORE_IS_BACK)
    async def begin(self, ctx: Context, ev: ListenerStart) -> PollDue | LookDue | StopEvent:
        """Poll at once, unless the recurrence says from when; or subscribe at once."""
        row = await self._worker.row(ev.run_id)
        timing = pinned(ev.timing, row.created_at) if ev.timing is not None else None
        async with ctx.store.edit_state() as state:
            state["listener"] = ev.model_dump(mode="json")
            state["timing"] = timing
        if ev.type not in POLLED:
            return LookDue(number=1)
        assert ev.timing is not None
        assert timing is not None
        begins_now = "startTime" not in ev.timing and "cron" not in ev.timing and "schedule" not in ev.timing
        first = row.created_at if begins_now else next_due(timing, row.created_at)
        return StopEvent(result="over") if first is None else PollDue(at=first, number=1)

    # -- polling ------------------------------------------------------------------------------------------------------

    @step(num_workers=1, retry_policy=_UNTIL_THE_STORE_IS_BACK)
    async def poll(self, ctx: Context, ev: PollDue) -> PollDue | Polled | StopEvent:
        """Wait until a poll is due or wanted, and ask. What it brings is committed before any run starts."""
        by_hand = await _waited(ctx, FireNow, f"poll {ev.number}", ev.at - self._worker.now())
        start = ListenerStart(**await ctx.store.get("listener"))
        current = await self._current(start)
        now = self._worker.now()
        if current is None:
            return await self._later(ctx, ev, now)  # the cancellation is under way
        if current.is_disabled:
            return await self._later(ctx, ev, now)
        values = await ctx.store.get_state()
        answer = await self._asked(start, current, values.get("place", ""), ctx.idempotency_key)
        if answer.status != "data":
            failures = values.get("failures", 0) + 1 if answer.status == "failed" else 0
            came = {"failures": failures} if failures else {"failures": 0, "place": answer.place}
            await self._note(ctx, start, firing(now, answer.status, answer.code, answer.message, by_hand=by_hand), came)
            return await self._later(ctx, ev, now, answer.retry_after_s, failures)
        outputs = {"headers": {}, **answer.outputs}
        try:
            items = fired(current.code.program, current.trigger, outputs, now, None, current.code.flow.given())
        except (FiringRefused, WorkflowRuntimeError) as error:
            # The place stays: what came is there still when the document is mended.
            failures = values.get("failures", 0) + 1
            refused = firing(now, "failed", "FiringRefused", _refusal(error, current.trigger), by_hand=by_hand)
            await self._note(ctx, start, refused, {"failures": failures})
            return await self._later(ctx, ev, now, answer.retry_after_s, failures)
        if not items:
            came = {"failures": 0, "place": answer.place}
            await self._note(ctx, start, firing(now, "nothing", _why_none(items), by_hand=by_hand), came)
            return await self._later(ctx, ev, now, answer.retry_after_s)
        return Polled(
            number=ev.number,
            at=now,
            items=items,
            outputs={key: value for key, value in outputs.items() if key != "body"},
            place=answer.place,
            retry_after_s=answer.retry_after_s,
            by_hand=by_hand,
        )

    @step(num_workers=1, retry_policy=_UNTIL_THE_STORE_IS_BACK)
    async def start_runs(self, ctx: Context, ev: Polled) -> PollDue | StopEvent:
        """Start a run for each item that a poll has brought."""
        start = ListenerStart(**await ctx.store.get("listener"))
        done = await self._starts(start, f"{ev.number}").start(ev.items, ev.outputs)
        came = {"failures": 0, "place": ev.place}
        await self._note(ctx, start, done.firing(ev.at, by_hand=ev.by_hand), came)
        due = PollDue(at=ev.at, number=ev.number)
        return await self._later(ctx, due, self._worker.now(), ev.retry_after_s)

    async def _later(
        self, ctx: Context, ev: PollDue, now: float, retry_after_s: float | None = None, failures: int = 0
    ) -> PollDue | StopEvent:
        """Say when the next poll is due: as the service asks, else as the recurrence has it, later after failures."""
        timing = await ctx.store.get("timing")
        following: float | None
        if retry_after_s is not None and not failures:
            following = now + max(retry_after_s, _SHORTEST_S)
        else:
            backoff = min(_FIRST_BACKOFF_S * 2 ** min(failures - 1, 20), _LONGEST_BACKOFF_S) if failures else 0.0
            following = next_due(timing, max(ev.at, now + max(backoff, retry_after_s or 0.0)))
        await ctx.store.set("next_at", following)
        return StopEvent(result="over") if following is None else PollDue(at=following, number=ev.number + 1)

    async def _asked(self, start: ListenerStart, current: _Current, place: str, key: str) -> Answer:
        from loom.effects.actions.trigger_calls import poll

        try:
            call = await self._call(start, current.code, key)
        except (ExpressionError, WorkflowRuntimeError) as error:
            return _unready(error, current.code)
        return await poll(call, place)

    # -- webhooks -----------------------------------------------------------------------------------------------------

    @step(num_workers=1, retry_policy=_UNTIL_THE_STORE_IS_BACK)
    async def look(self, ctx: Context, ev: LookDue) -> LookDue | StopEvent:
        """Subscribe if the flow is enabled and there is no subscription; end it if the flow is disabled."""
        await _waited(ctx, FlowTurned, f"look {ev.number}", ev.after_s)
        start = ListenerStart(**await ctx.store.get("listener"))
        current = await self._current(start)
        after = LookDue(number=ev.number + 1, after_s=_LOOK_S)
        if current is None:
            return after  # the cancellation is under way
        values = await ctx.store.get_state()
        subscription, failures = values.get("subscription"), values.get("failures", 0)
        if current.is_disabled == (subscription is None):
            return after
        answer = await self._turned(start, current.code, subscription, ctx.idempotency_key)
        now = self._worker.now()
        if answer.status == "failed":
            message = f"{'Subscribing' if subscription is None else 'Unsubscribing'} has failed: {answer.message}"
            came = {"failures": failures + 1}
            await self._note(ctx, start, firing(now, "failed", answer.code, message), came)
            backoff = min(_FIRST_BACKOFF_S * 2 ** min(failures, 20), _LONGEST_BACKOFF_S)
            return LookDue(number=ev.number + 1, after_s=max(backoff, answer.retry_after_s or 0.0))
        made = {"at": now, "place": answer.place} if subscription is None else None
        code = "Subscribed" if made is not None else "Unsubscribed"
        await self._note(ctx, start, firing(now, "nothing", code), {"failures": 0, "subscription": made})
        return after

    async def _turned(
        self, start: ListenerStart, code: FlowRegistration, subscription: dict[str, Any] | None, key: str
    ) -> Answer:
        """Subscribe if there is no subscription, else end it."""
        from loom.effects.actions.trigger_calls import Answer, subscribe, unsubscribe

        address = await self._worker.callbacks.address(start.run_id, KEY, repeats=True)
        if address is None:
            message = "This process does not know the address of its server: set callback_url, or use loom serve."
            return Answer("failed", code="NoCallbackUrl", message=message)
        try:
            call = await self._call(start, code, key)
        except (ExpressionError, WorkflowRuntimeError) as error:
            return _unready(error, code)
        if subscription is None:
            return await subscribe(call, address)
        return await unsubscribe(call, address, subscription["place"])

    @step(num_workers=1, retry_policy=_UNTIL_THE_STORE_IS_BACK)
    async def called(self, ctx: Context, ev: TriggerCalled) -> None:
        """Start the runs of a call."""
        start = ListenerStart(**await ctx.store.get("listener"))
        current, now = await self._current(start), self._worker.now()
        if current is None:
            return
        if current.is_disabled:
            await self._note(ctx, start, firing(now, "nothing", "FlowDisabled"))
            return
        outputs = {"statusCode": 200, "headers": ev.headers, "queries": ev.queries, "body": ev.body}
        try:
            items = fired(current.code.program, current.trigger, outputs, now, None, current.code.flow.given())
        except (FiringRefused, WorkflowRuntimeError) as error:
            await self._note(ctx, start, firing(now, "failed", "FiringRefused", _refusal(error, current.trigger)))
            return
        if not items:
            await self._note(ctx, start, firing(now, "nothing", _why_none(items)))
            return
        del outputs["body"]
        done = await self._starts(start, ev.call_id).start(items, outputs)
        await self._note(ctx, start, done.firing(now))

    @on_cancel(
        timeout=_CLEANUP_S,
        retry_policy=retry_policy(
            retry=retry_any(retry_if_exception_type(StoreError), retry_if_exception_type(NotUnsubscribed)),
            wait=wait_exponential(max=3600),
            stop=stop_after_delay(_CLEANUP_S),
        ),
    )
    async def unsubscribe(self, ctx: Context, ev: RunCancelledEvent) -> None:
        """End the subscription, if there is one."""
        del ev
        values = await ctx.store.get_state()
        subscription = values.get("subscription")
        if subscription is None:
            return
        start = ListenerStart(**values["listener"])
        code = self._worker.codes.get(start.workflow)
        if not isinstance(code, FlowRegistration):
            raise NotUnsubscribed(f"The flow {start.workflow!r} has no code here, so its subscription goes on.")
        answer = await self._turned(start, code, subscription, ctx.idempotency_key)
        if answer.status == "failed":
            raise NotUnsubscribed(f"{answer.code}: {answer.message}")
        await ctx.store.set("subscription", None)

    # -- what both do -------------------------------------------------------------------------------------------------

    async def _current(self, start: ListenerStart) -> _Current | None:
        """Return the flow and the trigger as they are now; None if nobody listens for them any more by this run.

        Then this run is cancelled: what should have done so may not have seen it.
        """
        worker = self._worker
        if await worker.listeners.is_replaced(start):
            await worker.cancel(start.run_id, reason="another one listens for the trigger")
            return None
        try:
            code, definition = await worker.definitions.code_and_definition(start.workflow)
            if definition is not None and code is not None and (code.document or ("",))[0] != definition.latest.digest:
                code = await worker.definitions.code_for(start.workflow, definition.current)
        except DefinitionNotFound:
            await worker.cancel(start.run_id, reason="the flow was deleted")
            return None
        except DefinitionUnreadable:
            code, definition = worker.codes.get(start.workflow), None  # the log tells it where the flow is taken up
        if not isinstance(code, FlowRegistration):
            raise StoreError(f"The flow {start.workflow!r} has no code here.")
        triggers = {each.name: each for each in code.program.triggers}
        trigger = triggers.get(start.trigger)
        if trigger is None or trigger.definition != start.definition:
            await worker.cancel(start.run_id, reason="the flow has another trigger now")
            return None
        return _Current(code, trigger, definition is not None and definition.is_disabled)

    async def _call(self, start: ListenerStart, code: FlowRegistration, key: str) -> TriggerCall:
        """Evaluate the inputs of the trigger. Values that are secret are in memory only, for this call."""
        from loom.effects.actions.http_client import default_tls
        from loom.effects.actions.trigger_calls import TriggerCall

        await asyncio.to_thread(default_tls)  # takes 0.2 s the first time
        given, program = code.flow.given(), code.program
        defaults = {each.name: each.default for each in program.parameters.values() if each.has_default}
        parameters = code.definition.with_connections({**defaults, **given.get("parameters", {})})
        now = self._worker.now()
        context = {
            **given,
            "parameters": parameters,
            "callbackUrl": CALLBACK,
            "utcNow": timestamp_text(now),
            "workflow": {"name": start.workflow, "run": {"name": start.run_id}},
            "trigger": {"name": start.trigger},
        }
        written = start.definition.get("inputs")
        with metered_by(Meter()):
            inputs = compile_value(written, path="inputs")(ContextEnvironment(context))
        secure = {
            f"parameter {name}": value
            for name, value in parameters.items()
            if isinstance(value, str) and (known := program.parameters.get(name.lower())) and known.is_secure
        }
        settings = {f"setting {name}": text for name, text in given.get("appSettings", {}).items()}
        return TriggerCall(
            name=start.trigger,
            type=start.type,
            inputs=inputs,
            written=written,
            services=code.action_services,
            now=now,
            run_id=start.run_id,
            key=key,
            secrets={**settings, **secure},
            credentials=tuple(secure.values()),
        )

    def _starts(self, start: ListenerStart, call: str) -> ItemStarts:
        return ItemStarts(self._worker, start.workflow, start.trigger, f"{start.name}:{start.generation}:{call}")

    async def _note(
        self, ctx: Context, start: ListenerStart, happened: dict[str, Any], came: dict[str, Any] | None = None
    ) -> None:
        """Write down what became of the trigger, with what follows for the next time."""
        if happened["status"] == "failed":
            _log.warning("The trigger %s of %s has failed: %s", start.trigger, start.workflow, happened["message"])
        async with ctx.store.edit_state() as state:
            for name, value in {**noted(state, happened), **(came or {})}.items():
                state[name] = value


async def _waited(ctx: Context, kind: type[Event], waiter: str, seconds: float) -> bool:
    """Wait for a time, or for an event. Return whether the event came."""
    try:
        await ctx.wait_for_event(kind, waiter_id=waiter, timeout=max(0.0, seconds))
    except TimeoutError:
        return False
    return True


def _why_none(items: list[Any] | None) -> str:
    return "TriggerConditionNotMet" if items is None else "SplitOnEmpty"


def _refusal(error: Exception, trigger: Trigger) -> str:
    """Say why a trigger could not fire. What the schema objects to may repeat what came."""
    return "Its outputs are secure, so it is not said why they were refused." if hides_outputs(trigger) else str(error)


def _unready(error: Exception, code: FlowRegistration) -> Answer:
    """Say that the inputs of a trigger cannot be evaluated. An error about a secret may repeat it."""
    from loom.effects.actions.trigger_calls import Answer

    program = code.program
    has_secrets = program.beside is not None or any(each.is_secure for each in program.parameters.values())
    why = f" in {getattr(error, 'path', '') or 'inputs'}." if has_secrets else f": {error}"
    return Answer("failed", code="InvalidInputs", message=f"The trigger's inputs cannot be evaluated{why}")
