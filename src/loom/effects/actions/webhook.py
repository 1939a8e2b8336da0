"""The httpWebhook action: ask a service to call back, and wait for the call.

The server that receives the call sends the run a `CallbackEvent` with the action's key. A flow knows neither the
address of its host nor any secret, so `listCallbackUrl()` gives a mark. The mark becomes a real address when the
request goes out and nowhere else: what is stored and shown has the mark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias
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
    from collections.abc import Awaitable, Callable

    from loom.effects.actions.outcomes import Services
    from loom.effects.execution import StepExecution


DEFAULT_EXPIRY_S = 90 * 86_400.0
"""Seconds that an address is good for if neither the action nor its limit says."""


Subscribe: TypeAlias = "Callable[[str | None], Awaitable[ActionOutcome]]"
"""Asks a service to call back at an address; None: nobody knows one."""
Unsubscribe: TypeAlias = "Callable[[str | None, Any], Awaitable[object]]"
"""Ends a subscription, by the address and by what was recorded of it."""


async def webhook_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Subscribe once, then wait for the call. If none comes in time, unsubscribe."""
    inputs = object_inputs(call)
    subscribe, unsubscribe = inputs.get("subscribe"), inputs.get("unsubscribe")
    if not isinstance(subscribe, dict):
        raise ActionFailed(f"The action '{call.action}' needs inputs.subscribe, a request.", "InvalidInputs")

    async def end(address: str | None, _: Any) -> None:
        if isinstance(unsubscribe, dict) and unsubscribe:
            await _send(execution, call, services, with_address(unsubscribe, address))

    return await call_back(
        execution,
        call,
        services,
        lambda address: _send(execution, call, services, with_address(subscribe, address)),
        end,
        lambda: True,
    )


async def call_back(
    execution: StepExecution,
    call: ActionCall,
    services: Services,
    subscribe: Subscribe,
    unsubscribe: Unsubscribe,
    subscription: Callable[[], Any],
) -> ActionOutcome:
    """Subscribe once, then wait for the call. If none comes in time, unsubscribe.

    `subscription` gives what is recorded of a subscription, for the one that ends it.
    """
    if "subscribed" in execution.command.records:
        recorded = await execution.once("subscribed", bool)
    else:
        address = await _address(execution, call, services)
        outcome = await within_limit(execution, call, lambda: subscribe(address))
        if outcome.status != "Succeeded":
            return replace(
                outcome,
                outputs=without_address(outcome.outputs, address),
                message=without_address(outcome.message, address),
            )
        recorded = await execution.once("subscribed", subscription)
    left = time_left(execution, call)
    key = _key(call)
    try:
        event = await execution.wait(
            CallbackEvent, None, f"callback:{key}", {"key": key}, None if left is None else max(left, 0.0)
        )
    except TimeoutError:
        await unsubscribe(await _address(execution, call, services), recorded)
        return timed_out(call)
    outputs = {"statusCode": 200, "headers": event.headers, "queries": event.queries, "body": event.body}
    return ActionOutcome(outputs=plain(outputs), code="OK")


async def _address(execution: StepExecution, call: ActionCall, services: Services) -> str | None:
    """The address that the action is called back at; None where no server runs."""
    if services.callbacks is None:
        return None
    get, until = _asked(execution, call)
    return await services.callbacks.address(execution.host.run_id, _key(call), until, get=get)


async def _send(
    execution: StepExecution, call: ActionCall, services: Services, inputs: dict[str, Any]
) -> ActionOutcome:
    async def ask() -> ActionOutcome:
        answer = await request(inputs, services, key=context_of(execution, call).idempotency_key)
        return await outcome_of(answer, services.policy, execution.host.now())

    return await tamed(ask)


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
