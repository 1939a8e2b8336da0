"""Actors: what they do with a message, and the workflow of those with an id, each of which is a run of its own.

The run of an actor takes its messages one at a time, keeps its state in its store and replies by an event to the run
that asked. A message that is delivered again is not taken again. May import loom.steps and loom.flows.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from loom.effects.actions.actor_port import ActorMessage, ActorReply, Actors
from loom.effects.actions.handlers import HANDLERS, ActionContext, Handlers, asks_for, call_handler
from loom.effects.actions.outcomes import ActionFailed, failure
from loom.effects.actions.plain import plain
from loom.effects.tracebacks import has_other_frames, traceback_text
from loom.flows.calls import ActionOutcome
from loom.steps.context import Context  # noqa: TC001 - steps' annotations are read at run time
from loom.steps.decorators import step
from loom.steps.event_base import StartEvent, StopEvent  # noqa: TC001 - as above
from loom.steps.ports import current_execution
from loom.steps.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.effects.execution import StepExecution


async def take_message(
    handlers: Handlers, actor_type: str, kept: Any, argument: Any, context: ActionContext
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
    """Make the actor anew with the attributes that it had. Those that begin with an underscore are not kept."""
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
    """What the run of an actor runs. It never ends by itself: cancel it to forget the actor."""

    def __init__(self, actors: Actors, handlers: Handlers = HANDLERS) -> None:
        super().__init__(timeout=None)
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
        execution = cast("StepExecution", current_execution.get())
        try:
            state, result = await take_message(self._handlers, ev.actor_type, state, ev.input, context)
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
