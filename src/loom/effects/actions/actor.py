"""The actor action: a message to an actor, and its reply. May import loom.flows, loom.steps and loom.effects.

Without an id the actor is private to the run and its state is a key of the run's store; messages to one type come one
at a time, for its step has one worker. With an id the actor is a run of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from loom.effects.actions.actor_port import ActorMessage, ActorReply, actor_run_id
from loom.effects.actions.actors import take_message
from loom.effects.actions.outcomes import (
    ActionFailed,
    argument_of,
    context_of,
    text_input,
    time_left,
    timed_out,
    within_limit,
)
from loom.effects.actions.plain import plain
from loom.flows.calls import ActionCall, ActionOutcome

if TYPE_CHECKING:
    from loom.effects.actions.outcomes import Services
    from loom.effects.execution import StepExecution
    from loom.flows.calls import ActionStatus


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
    state, reply = await take_message(services.handlers, actor_type, kept.get("state"), argument, context)
    await store.set(key, {"state": state, "last": mark, "reply": reply})
    return ActionOutcome(outputs=reply)


def store_key(actor_type: str) -> str:
    """Where a private actor's state is kept: a key of its own, for a dot would make it a path."""
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
