"""What triggers ask of services: whether there is something new, to be called back, and to be called no more.

A trigger has no run and no action. It goes the ways of actions all the same: requests pass the guard, connections are
called by their connectors, and what a service answers is masked before it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urljoin

from msgspec import Struct
from msgspec.structs import replace

from loom.effects.actions.connectors.calls import ConnectionCall, connection_call, read_off_loop
from loom.effects.actions.connectors.credentials import without_secrets
from loom.effects.actions.content import media_type
from loom.effects.actions.exchange import AnswerRefused
from loom.effects.actions.handlers import ActionContext, call_handler
from loom.effects.actions.http import outcome_of, poll_of, request, tamed
from loom.effects.actions.http_client import secret_request
from loom.effects.actions.outcomes import ActionFailed, Services, code_of, failure, is_failure, plain
from loom.effects.actions.webhook import with_address, without_address
from loom.flows.beside import connection_name
from loom.flows.calls import CALLBACK, MASK, ActionOutcome
from loom.flows.connections import ConnectionUse, connection_key, connection_names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.effects.actions.connections import ConnectorSpec
    from loom.effects.actions.connectors.credentials import ShownCredentials
    from loom.effects.actions.exchange import HttpAnswer

_DATA = 200
"""The status of an answer that has something new. All other successes have nothing."""
_NOTHING = 202
_LEAST_SECRET = 6
"""Shorter texts are not taken for secrets: they are parts of too many words."""


class TriggerCall(Struct, frozen=True):
    """A trigger that is about to call its service, and what it calls with."""

    name: str
    type: str
    """In lower case."""
    inputs: Any
    """Evaluated, with a mark in the place of the address that shall be called."""
    written: Any
    """The inputs as the document has them."""
    services: Services
    now: float
    run_id: str
    key: str
    """Idempotency key of the call."""
    secrets: Mapping[str, str] = {}
    """Texts by name that neither messages nor headers nor places may repeat."""
    credentials: tuple[str, ...] = ()
    """Secrets that a body may not repeat either. Settings of an app may be plain words that data is full of."""

    @property
    def use(self) -> ConnectionUse:
        """What the document says of the connection."""
        names = connection_names(self.type, self.written)
        return ConnectionUse(self.type, "", self.written, "inputs", names, connection_key(self.written))

    def hidden(self, message: str) -> str:
        """Mask secrets in a message."""
        name = connection_name(self.inputs)
        of_connection = self.services.secrets(name) if name is not None else ()
        for text, _ in _forms({**self.secrets, **{text: text for text in of_connection}}):
            message = message.replace(text, MASK)
        return message


class Answer(Struct, frozen=True):
    """What a service said to a trigger."""

    status: Literal["data", "nothing", "failed"]
    outputs: dict[str, Any] = {}
    place: str = ""
    """`Location`: where to ask the next time, or what to delete to end a subscription. Secrets in it are marked."""
    retry_after_s: float | None = None
    code: str = ""
    message: str = ""


# --- polls ------------------------------------------------------------------------------------------------------------


async def poll(call: TriggerCall, place: str) -> Answer:
    """Ask whether there is something new: at the place that the service named the last time, or where the inputs say.

    It never raises for what a service does.
    """
    place = _unsealed(place, call.secrets)
    return await _asked(call, partial(_sent_poll, call, place))


async def _sent_poll(call: TriggerCall, place: str) -> tuple[ActionOutcome, str]:
    if call.type == "http":
        inputs = _object(call)
        answer = await request(poll_of(inputs, place) if place else inputs, call.services)
        return await _read(call, answer)
    spec = _connector(call)
    if spec.handler is not None:
        return await _handled(call, spec, {**_object(call), "nextLink": place} if place else call.inputs)
    prepared = await _prepared(call, spec, call.inputs)
    policy = call.services.policy
    answer, shown = await (prepared.ask(place, policy, call.now) if place else prepared.send(policy, call.now))
    return await _read(call, answer, shown)


# --- subscriptions ----------------------------------------------------------------------------------------------------


async def subscribe(call: TriggerCall, address: str) -> Answer:
    """Ask a service to call an address. The answer's place is what ends the subscription."""

    async def ask() -> tuple[ActionOutcome, str]:
        if call.type == "httpwebhook":
            wanted = _object(call).get("subscribe")
            if not isinstance(wanted, dict):
                raise ActionFailed(f"The trigger '{call.name}' needs inputs.subscribe, a request.", "InvalidInputs")
            return await _read(call, await request(with_address(wanted, address), call.services, key=call.key))
        spec = _connector(call)
        inputs = with_address(call.inputs, address)
        if spec.handler is not None:
            return await _handled(call, spec, inputs)
        prepared = await _prepared(call, spec, inputs, address)
        return await _read(call, *await prepared.send(call.services.policy, call.now))

    answer = await _asked(call, ask)
    # The address is a credential of its own: what the service repeats of it is not for readers.
    return replace(answer, outputs={}, message=without_address(answer.message, address))


async def unsubscribe(call: TriggerCall, address: str, place: str) -> Answer:
    """Ask a service to call no more. Without a request of the document, and without a place, nothing can be asked."""
    place = _unsealed(place, call.secrets)

    async def ask() -> tuple[ActionOutcome, str]:
        if call.type == "httpwebhook":
            wanted = _object(call).get("unsubscribe")
            if not isinstance(wanted, dict) or not wanted:
                return ActionOutcome(), ""
            return await _read(call, await request(with_address(wanted, address), call.services, key=call.key))
        if not place:
            return ActionOutcome(), ""
        spec = _connector(call)
        inputs = with_address(call.inputs, address)
        if spec.handler is not None:
            return await _handled(call, spec, {**_object(call), "method": "delete", "path": place})
        prepared = await _prepared(call, spec, inputs, address)
        return await _read(call, *await prepared.unsubscribe(place, call.services.policy, call.now))

    answer = await _asked(call, ask)
    return replace(answer, outputs={}, message=without_address(answer.message, address))


# --- the call ---------------------------------------------------------------------------------------------------------


async def _asked(call: TriggerCall, ask: Callable[[], Awaitable[tuple[ActionOutcome, str]]]) -> Answer:
    """Make a call, and turn whatever comes of it into an answer."""
    place = ""

    async def work() -> ActionOutcome:
        nonlocal place
        outcome, place = await ask()
        return outcome

    try:
        # The library logs addresses, and these have secrets in them.
        with secret_request():
            outcome = await tamed(work)
    except Exception as error:  # noqa: BLE001 - a handler or a connector may raise anything, which the history tells
        outcome = failure(error)
    outputs = outcome.outputs if isinstance(outcome.outputs, dict) else {"body": outcome.outputs}
    if outcome.status != "Succeeded":
        return Answer(
            "failed",
            retry_after_s=outcome.retry_after_s,
            code=outcome.code,
            message=call.hidden(outcome.message),
        )
    has_data = outputs.get("statusCode", _DATA) == _DATA
    outputs = without_secrets(outputs, call.credentials)
    if "headers" in outputs:
        outputs = {**outputs, "headers": without_secrets(outputs["headers"], tuple(call.secrets.values()))}
    return Answer(
        "data" if has_data else "nothing",
        outputs if has_data else {},
        _sealed(place, call.secrets),
        outcome.retry_after_s,
        outcome.code,
    )


async def _read(
    call: TriggerCall, answer: HttpAnswer, shown: ShownCredentials | None = None
) -> tuple[ActionOutcome, str]:
    """Read an answer and the place that it names."""
    outcome = await outcome_of(answer, call.services.policy, call.now)
    body = outcome.outputs["body"]
    is_json = media_type(answer.header("content-type")).endswith("json")
    if outcome.status == "Succeeded" and is_json and isinstance(body, str) and answer.data.lstrip()[:1] != b'"':
        raise AnswerRefused("The answer says that it is JSON, and it is not.")
    location = answer.header("location")
    place = urljoin(answer.url, location) if location else ""
    if shown is not None and shown.secrets:
        if without_secrets(place, shown.secrets) != place:
            raise AnswerRefused("The place that the service names repeats a credential, which must not be stored.")
        outcome = replace(outcome, outputs=without_secrets(outcome.outputs, shown.secrets))
    return outcome, place


def _connector(call: TriggerCall) -> ConnectorSpec:
    names = (*call.use.names, *connection_names(call.type, call.inputs))
    spec = call.services.handlers.connector_for(names)
    if spec is None:
        known = f"'{names[0]}'" if names else "of the trigger"
        raise ActionFailed(f"There is no connector for the connection {known} here.", "ConnectorNotFound")
    return spec


async def _prepared(call: TriggerCall, spec: ConnectorSpec, inputs: Any, address: str = "") -> ConnectionCall:
    await read_off_loop(spec)
    callback = address or CALLBACK if call.type.endswith("webhook") else ""
    found = connection_call(call.services.handlers, call.type, inputs, use=call.use, key=call.key, callback=callback)
    assert found is not None
    return found


async def _handled(call: TriggerCall, spec: ConnectorSpec, inputs: Any) -> tuple[ActionOutcome, str]:
    """Call the function that serves a connection. None means that there is nothing new."""
    assert spec.handler is not None
    context = ActionContext(call.run_id, call.key, 0, call.name)
    name = connection_name(call.inputs)
    if name is not None:
        context = context.over(call.services.connection(name))
    result = plain(await call_handler(spec.handler, inputs, context))
    if result is None:
        return ActionOutcome(outputs={"statusCode": _NOTHING}, code=code_of(_NOTHING)), ""
    if not isinstance(result, dict) or not ({"body", "statusCode"} & set(result)):
        result = {"body": result}
    outputs = {"statusCode": _DATA, "headers": {}, **result}
    status = outputs["statusCode"]
    if not isinstance(status, int) or is_failure(status):
        code = code_of(status) if isinstance(status, int) else str(status)
        return ActionOutcome("Failed", code=code, message=f"The handler answered {status}."), ""
    headers = outputs["headers"] if isinstance(outputs["headers"], dict) else {}
    found = next((value for key, value in headers.items() if key.lower() == "location"), "")
    return ActionOutcome(outputs=outputs, code=code_of(status)), found if isinstance(found, str) else ""


def _object(call: TriggerCall) -> dict[str, Any]:
    if isinstance(call.inputs, dict):
        return call.inputs
    raise ActionFailed(f"The inputs of the trigger '{call.name}' must be an object.", "InvalidInputs")


# --- secrets in places ------------------------------------------------------------------------------------------------

_MARK = "\x1a"
"""Stands around the name of a secret in a stored place. No address has it."""


def _forms(secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """List what stands in an address for a secret, plain or encoded, with the mark that takes its place."""
    found = []
    for name, text in sorted(secrets.items(), key=lambda each: len(each[1]), reverse=True):
        if len(text) >= _LEAST_SECRET:
            found += [(text, f"{_MARK}{name}{_MARK}"), (quote(text, safe=""), f"{_MARK}%{name}{_MARK}")]
    return found


def _sealed(place: str, secrets: Mapping[str, str]) -> str:
    """Put the names of secrets in their places: an address may repeat what was sent with the request."""
    for text, mark in _forms(secrets):
        place = place.replace(text, mark)
    return place


def _unsealed(place: str, secrets: Mapping[str, str]) -> str:
    for text, mark in _forms(secrets):
        place = place.replace(mark, text)
    return place
