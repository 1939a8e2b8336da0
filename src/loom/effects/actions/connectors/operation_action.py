"""Actions of connections that have a connector: an operation, its pages, and the subscription of a webhook."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.effects.actions.connectors.calls import ConnectionCall, connection_call, read_off_loop
from loom.effects.actions.connectors.credentials import without_secrets
from loom.effects.actions.exchange import AnswerRefused
from loom.effects.actions.http import Asked, ask_until_done, outcome_of, place_of, tamed
from loom.effects.actions.outcomes import ActionFailed, context_of, plain
from loom.effects.actions.used_connections import connector_of, use_of
from loom.effects.actions.webhook import call_back, with_address
from loom.flows.calls import CALLBACK, ActionCall, ActionOutcome

if TYPE_CHECKING:
    from loom.effects.actions.connectors.credentials import ShownCredentials
    from loom.effects.actions.exchange import HttpAnswer
    from loom.effects.actions.outcomes import Services
    from loom.effects.execution import StepExecution
    from loom.flows.connections import ConnectionUse

_MAX_PAGES = 10_000
_MAX_ITEMS = 100_000


async def operation_action(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Call the operation that the inputs name, or subscribe by it and wait."""
    spec = connector_of(execution, call, services.handlers)
    if spec is not None:
        await read_off_loop(spec)
    if call.type.endswith("webhook"):
        return await _webhook(execution, call, services)
    use = use_of(execution, call)

    async def ask(place: str) -> Asked:
        prepared = _prepared(execution, call, services, use, call.inputs)
        now = execution.host.now()
        if place:
            return await _asked(execution, services, *await prepared.ask(place, services.policy, now), place)
        asked = await _asked(execution, services, *await prepared.send(services.policy, now))
        if use is None or not use.page_items or asked.outcome.status != "Succeeded" or asked.place:
            return asked
        return Asked(await _all_pages(execution, services, prepared, asked.outcome, use.page_items))

    return await ask_until_done(execution, call, ask)


def _prepared(
    execution: StepExecution,
    call: ActionCall,
    services: Services,
    use: ConnectionUse | None,
    inputs: Any,
    callback: str = "",
) -> ConnectionCall:
    key = context_of(execution, call).idempotency_key
    prepared = connection_call(services.handlers, call.type, inputs, use=use, key=key, callback=callback)
    if prepared is None:  # it was there when the action began
        raise ActionFailed(f"The connector of the action '{call.action}' is gone.", "ConnectorNotFound")
    return prepared


async def _asked(
    execution: StepExecution, services: Services, answer: HttpAnswer, shown: ShownCredentials, place: str = ""
) -> Asked:
    following = place_of(answer, place)
    outcome = await tamed(partial(outcome_of, answer, services.policy, execution.host.now()))
    return Asked(_without(outcome, shown), following)


def _without(outcome: ActionOutcome, shown: ShownCredentials) -> ActionOutcome:
    """Mask what the answer repeats of credentials: it is stored."""
    if not shown.secrets or outcome.outputs is None:
        return outcome
    return replace(outcome, outputs=without_secrets(outcome.outputs, shown.secrets))


# --- pages ------------------------------------------------------------------------------------------------------------


async def _all_pages(
    execution: StepExecution, services: Services, prepared: ConnectionCall, first: ActionOutcome, wanted: int
) -> ActionOutcome:
    """Fetch pages until there are as many items as wanted. Items of one page are never divided.

    The outputs are those of the first page, with all items, and with the address of the page that comes next, if any.
    """
    pages = prepared.operation.pages
    body = first.outputs.get("body") if isinstance(first.outputs, dict) else None
    if pages is None or not isinstance(body, dict) or not isinstance(body.get(pages.items), list):
        return first
    wanted = min(wanted, _MAX_ITEMS)
    items = list(body[pages.items])
    following, seen, size = body.get(pages.next_link), set[str](), 0
    while isinstance(following, str) and following and len(items) < wanted:
        if following in seen or len(seen) >= _MAX_PAGES:
            raise AnswerRefused("The service gives out pages without an end: the next one was there before.")
        seen.add(following)
        answer, shown = await prepared.page(following, services.policy, execution.host.now())
        size += len(answer.data)
        if size > services.policy.max_response_bytes:
            raise AnswerRefused(f"The pages have more than {services.policy.max_response_bytes} bytes together.")
        outcome = _without(await outcome_of(answer, services.policy, execution.host.now()), shown)
        if outcome.status != "Succeeded":
            return outcome
        page = outcome.outputs["body"]
        if not isinstance(page, dict) or not isinstance(page.get(pages.items), list):
            raise AnswerRefused(f"A page of the service has no '{pages.items}'.")
        items += page[pages.items]
        following = page.get(pages.next_link)
    whole = {key: value for key, value in body.items() if key != pages.next_link} | {pages.items: items}
    if following:
        whole[pages.next_link] = following
    return replace(first, outputs={**first.outputs, "body": whole})


# --- webhooks ---------------------------------------------------------------------------------------------------------


async def _webhook(execution: StepExecution, call: ActionCall, services: Services) -> ActionOutcome:
    """Subscribe by the operation, wait for the call, and end the subscription if none comes in time."""
    use = use_of(execution, call)
    location = ""

    async def subscribe(address: str | None) -> ActionOutcome:
        async def ask() -> ActionOutcome:
            nonlocal location
            inputs = with_address(call.inputs, address)
            prepared = _prepared(execution, call, services, use, inputs, address or CALLBACK)
            answer, shown = await prepared.send(services.policy, execution.host.now())
            location = answer.header("location")
            return _without(await outcome_of(answer, services.policy, execution.host.now()), shown)

        return await tamed(ask)

    async def unsubscribe(address: str | None, recorded: Any) -> None:
        if not isinstance(recorded, str) or not recorded:
            return

        async def ask() -> ActionOutcome:
            prepared = _prepared(
                execution, call, services, use, with_address(call.inputs, address), address or CALLBACK
            )
            answer, _ = await prepared.unsubscribe(recorded, services.policy, execution.host.now())
            return await outcome_of(answer, services.policy, execution.host.now())

        await tamed(ask)

    return await call_back(execution, call, services, subscribe, unsubscribe, lambda: plain(location) or True)
