"""Actors: the action that sends one a message, what it does with it, and the runs of actors with an id.

Without an id the actor is private to the run and its state is a key of the run's store; messages to one type come one
at a time, because its step has one worker. With an id the actor is a run of its own, an `ActorWorkflow`. That run takes
its messages one at a time, keeps its state in its store and replies by an event to the run that asked. A message that
is delivered again is not taken again.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from msgspec.structs import replace

from loom.effects.actions.events import ActorMessage, ActorReply, Actors, actor_run_id
from loom.effects.actions.handlers import HANDLERS, ActionContext, ActionHandlers, asks_for, call_handler
from loom.effects.actions.outcomes import (
    ActionFailed,
    argument_of,
    context_of,
    failure,
    plain,
    text_input,
    time_left,
    timed_out,
    within_limit,
)
from loom.effects.exceptions import has_other_frames, traceback_text
from loom.flows.calls import ActionCall, ActionOutcome
from loom.steps.context import Context  # noqa: TC001 - steps' annotations are read at run time
from loom.steps.decorators import step
from loom.steps.events import StartEvent, StopEvent  # noqa: TC001 - as above
from loom.steps.ports import current_execution
from loom.steps.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.effects.actions.outcomes import Services
    from loom.effects.execution import StepExecution
    from loom.flows.calls import ActionStatus


# --- the action -------------------------------------------------------------------------------------------------------


async def actor_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Give the actor the message. Its reply are the outputs."""
    actor_type = text_input(call, "actorType")
    actor_id = call.inputs.get("actorId")
    argument = argument_of(call.inputs, "actorType", "actorId")
    if actor_id == "":
        raise ActionFailed(f"The actor action '{call.action}' has an empty text as inputs.actorId.", "InvalidInputs")
    if actor_id is not None:
        return await _ask(execution, call, services, actor_run_id(actor_type, str(actor_id)), actor_type, argument)
    return await within_limit(execution, call, lambda: _take(execution, call, services, actor_type, argument))


async def _take(
    execution: StepExecution, call: ActionCall, services: Services, actor_type: str, argument: Any
) -> ActionOutcome:
    """Work on the message here. State and reply are saved in one edit, so that a repeated message finds both."""
    store = execution.run.store
    key = store_key(actor_type)
    mark = execution.idempotency_key
    kept = await store.get(key, default=None) or {}
    if kept.get("last") == mark:
        return ActionOutcome(outputs=plain(kept["reply"]))
    context = context_of(execution, call)
    state, reply = await _take_message(services.handlers, actor_type, kept.get("state"), argument, context)
    await store.set(key, {"state": state, "last": mark, "reply": reply})
    return ActionOutcome(outputs=reply)


def store_key(actor_type: str) -> str:
    """Name the key of a private actor's state. Dots are escaped, because a dot would make it a path."""
    return "actor:" + quote(actor_type, safe=" ").replace(".", "%2E")


async def _ask(
    execution: StepExecution, call: ActionCall, services: Services, run_id: str, actor_type: str, argument: Any
) -> ActionOutcome:
    """Send the message to the actor's run and wait for its reply."""
    if services.actors is None:
        raise ActionFailed(
            f"The actor '{run_id}' has an id, so it is a run of its own and needs a runtime that keeps runs: "
            'use loom.connect("sqlite:///runs.db"), or leave actorId out.',
            "ActorNotAvailable",
        )
    # Each attempt is work of its own, also one after the retry of a failed run: its message must not be taken for an
    # earlier one, whose reply has been used up.
    key = execution.idempotency_key
    message = ActorMessage(
        key=key,
        actor_type=actor_type,
        reply_to=execution.host.run_id,
        action=call.action,
        attempt=call.attempt,
        input=argument,
    )
    if not execution.repeats:  # else the wait below has begun before, and the message was sent before it
        await services.actors.tell(run_id, message)
    left = time_left(execution, call)
    limit = None if left is None else max(left, 0.0)
    try:
        reply: ActorReply = await execution.wait(ActorReply, None, f"actor:{key}", {"key": key}, limit)
    except TimeoutError:
        return timed_out(call)
    status = cast("ActionStatus", reply.status)
    return ActionOutcome(
        status, plain(reply.outputs), reply.code, reply.message, reply.error_type, traceback=reply.traceback
    )


# --- the actor --------------------------------------------------------------------------------------------------------


async def _take_message(
    handlers: ActionHandlers, actor_type: str, kept: Any, argument: Any, context: ActionContext
) -> tuple[dict[str, Any], Any]:
    """Give an actor a message. The state is a copy before and plain data after; the result is plain data too."""
    actor = handlers.actors.get(actor_type)
    if actor is None:
        raise ActionFailed(
            f"No actor is registered as {actor_type!r}. Register one with @loom.actor({actor_type!r}).", "ActorNotFound"
        )
    state: dict[str, Any] = plain(kept) if isinstance(kept, dict) else {}
    if inspect.isclass(actor):
        return await _take_by_instance(actor, state, argument, context)
    named = {"state": state} if asks_for(actor, "state") else {}
    result = plain(await call_handler(actor, argument, context, named))
    return plain(state), result


async def _take_by_instance(
    cls: Callable[[], Any], state: dict[str, Any], argument: Any, context: ActionContext
) -> tuple[dict[str, Any], Any]:
    """Make the actor anew with the attributes that it had. Attributes that begin with an underscore are not kept."""
    instance = cls()
    for name, value in state.items():
        setattr(instance, name, value)
    receive = getattr(instance, "receive", None) or (instance if callable(instance) else None)
    if receive is None:
        raise ActionFailed(
            f"The actor {type(instance).__name__} takes no messages: give it a method receive(self, input).",
            "ActorNotFound",
        )
    result = plain(await call_handler(receive, argument, context))
    kept = {name: value for name, value in vars(instance).items() if not name.startswith("_")}
    return plain(kept), result


class ActorWorkflow(Workflow):
    """The workflow of an actor's run. It never ends by itself: cancel it to forget the actor."""

    def __init__(self, actors: Actors, handlers: ActionHandlers = HANDLERS) -> None:
        super().__init__(timeout=None, max_depth=None)
        self._actors = actors
        self._handlers = handlers

    @step
    async def begin(self, ev: StartEvent) -> None:
        """There is nothing to do before the first message."""

    @step(num_workers=1)
    async def receive(self, ctx: Context, ev: ActorMessage) -> StopEvent | None:
        """Take a message, save the state, and reply when both are safe."""
        kept = await ctx.store.get("actor", default=None) or {}
        if kept.get("last") != ev.key:
            kept = await self._taken(kept, ev)
        # Also if nothing has changed: a body that runs again must have the same effects in the same order.
        await ctx.store.set("actor", kept)
        await ctx.once("saved", lambda: True)
        await self._actors.reply(ev.reply_to, ActorReply(key=ev.key, **kept["reply"]))
        return None

    async def _taken(self, kept: dict[str, Any], ev: ActorMessage) -> dict[str, Any]:
        state = kept.get("state") or {}
        context = ActionContext(ev.reply_to, ev.key, ev.attempt, ev.action)
        execution = cast("StepExecution", current_execution())
        try:
            state, result = await _take_message(self._handlers, ev.actor_type, state, ev.input, context)
            outcome = ActionOutcome(outputs=result)
        except BaseException as error:
            # Whatever a handler raises is the caller's to know, a cancellation of its own making too.
            if execution.is_interrupted_by(error):
                raise
            outcome = replace(failure(error), traceback=traceback_text(error) if has_other_frames(error) else "")
        reply = {
            "status": outcome.status,
            "outputs": outcome.outputs,
            "code": outcome.code,
            "message": outcome.message,
            "error_type": outcome.error_type,
        }
        if outcome.traceback:
            reply["traceback"] = outcome.traceback
        return {"state": state, "last": ev.key, "reply": reply}
