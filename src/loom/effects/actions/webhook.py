"""The httpWebhook action: ask a service to call back, and wait for the call.

The server that receives the call sends the run a `CallbackEvent` with the action's key. A flow knows neither the
address of its host nor any secret, so `listCallbackUrl()` gives a mark. The mark becomes a real address when the
request goes out and nowhere else: what is stored and shown has the mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec.structs import replace

from loom.effects.actions.events import CallbackEvent
from loom.effects.actions.http import outcome_of, request, tamed
from loom.effects.actions.outcomes import (
    ActionFailed,
    context_of,
    object_inputs,
    plain,
    time_left,
    timed_out,
    within_limit,
)
from loom.effects.actions.waits import seconds_of
from loom.flows.calls import CALLBACK, ActionCall, ActionOutcome

if TYPE_CHECKING:
    from loom.effects.actions.outcomes import Services
    from loom.effects.execution import StepExecution


DEFAULT_EXPIRY_S = 90 * 86_400.0
"""Seconds that an address is good for if neither the action nor its limit says."""


async def webhook_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Subscribe once, then wait for the call. If none comes in time, unsubscribe."""
    subscribe = object_inputs(call).get("subscribe")
    if not isinstance(subscribe, dict):
        raise ActionFailed(f"The action '{call.action}' needs inputs.subscribe, a request.", "InvalidInputs")
    if "subscribed" in execution.command.records:
        await execution.once("subscribed", bool)
    else:
        outcome = await within_limit(execution, call, lambda: _send(execution, call, services, subscribe))
        if outcome.status != "Succeeded":
            return outcome
        await execution.once("subscribed", lambda: True)
    left = time_left(execution, call)
    key = _key(call)
    try:
        event = await execution.wait(
            CallbackEvent, None, f"callback:{key}", {"key": key}, None if left is None else max(left, 0.0)
        )
    except TimeoutError:
        unsubscribe = object_inputs(call).get("unsubscribe")
        if isinstance(unsubscribe, dict) and unsubscribe:
            await _send(execution, call, services, unsubscribe)
        return timed_out(call)
    outputs = {"statusCode": 200, "headers": event.headers, "queries": event.queries, "body": event.body}
    return ActionOutcome(outputs=plain(outputs), code="OK")


async def _send(
    execution: StepExecution, call: ActionCall, services: Services, inputs: dict[str, Any]
) -> ActionOutcome:
    callbacks = services.callbacks
    address = None
    if callbacks is not None:
        get, until = _asked(execution, call)
        address = await callbacks.address(execution.host.run_id, _key(call), until, get=get)
    addressed = with_address(inputs, address)

    async def ask() -> ActionOutcome:
        answer = await request(addressed, services, key=context_of(execution, call).idempotency_key)
        return await outcome_of(answer, services.policy, execution.host.now())

    outcome = await tamed(ask)
    return replace(
        outcome,
        outputs=without_address(outcome.outputs, address),
        message=without_address(outcome.message, address),
    )


def _asked(execution: StepExecution, call: ActionCall) -> tuple[bool, float]:
    """Read what `inputs.callback` asks of the address: whether a GET is a call too, and until when it is good.

    Without a word about it, the address is good for as long as the action may take. Both are worked out from when the
    work began: a repeated request, and the one that unsubscribes, have the same address.
    """
    given = object_inputs(call).get("callback")
    if not isinstance(given, dict | None):
        raise ActionFailed("inputs.callback must be an object with 'method' and 'expires'.", "InvalidInputs")
    asked = given or {}
    method = asked.get("method", "POST")
    if not isinstance(method, str) or method.upper() not in ("GET", "POST"):
        raise ActionFailed("inputs.callback.method must be GET or POST.", "InvalidInputs")
    lasts = asked.get("expires")
    seconds = seconds_of(lasts, "callback.expires") if lasts is not None else call.timeout_s or DEFAULT_EXPIRY_S
    return method.upper() == "GET", float(round((call.first_at or execution.command.started_at) + seconds))


def _key(call: ActionCall) -> str:
    return call.key or call.action


# --- the address in the place of its mark -----------------------------------------------------------------------------


def with_address(value: Any, address: str | None) -> Any:
    """Put the address in the place of the mark, also within texts and as a part of another URL."""
    return value if address is None else _replaced(value, CALLBACK, address)


def without_address(value: Any, address: str | None) -> Any:
    """Put the mark back for the address, in what a service says: the address is not for readers."""
    return value if address is None else _replaced(value, address, CALLBACK)


def _replaced(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return value.replace(old, new).replace(quote(old, safe=""), quote(new, safe=""))
        case dict():
            return {key: _replaced(item, old, new) for key, item in value.items()}
        case list():
            return [_replaced(item, old, new) for item in value]
        case _:
            return value
