"""A connector that is ready to be called, and one call of it.

Actions and triggers call connections alike: `connection_call` makes the request of an operation from evaluated inputs,
and `send` sends it. Credentials go to the connector's own address only.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import httpx2
from msgspec import Struct
from msgspec.structs import replace

from loom.effects.actions.connections import ClientCredentials, check_address
from loom.effects.actions.connectors.credentials import Credentials, ShownCredentials
from loom.effects.actions.connectors.openapi import ApiDocument, ApiError, ApiOperation, read_api
from loom.effects.actions.connectors.requests import Target, build, resolve
from loom.effects.actions.exchange import AnswerRefused, HttpAnswer, HttpRequest, exchange, same_origin
from loom.effects.actions.http_client import secret_request, shared_client
from loom.effects.actions.outcomes import ActionFailed
from loom.effects.off_loop import aside
from loom.flows.connections import connection_names

if TYPE_CHECKING:
    from loom.effects.actions.connections import ConnectorSpec
    from loom.effects.actions.handlers import ActionHandlers
    from loom.effects.actions.ssrf import HttpPolicy
    from loom.flows.connections import ConnectionUse

_UNAUTHORIZED = 401


class Connector:
    """The connector of a registration, with its document read."""

    def __init__(self, spec: ConnectorSpec) -> None:
        assert spec.openapi is not None
        self.name = spec.name
        self.api: ApiDocument = read_api(spec.openapi)
        self.credentials = Credentials(spec.auth)
        base_url = spec.base_url or self.api.address()
        if not base_url:
            raise ApiError("the document names no address: give the connector a base_url")
        try:
            check_address(base_url, "its address", "https://api.example.com/v1")
        except ValueError as error:
            raise ApiError(f"{error} Give the connector a base_url.") from None
        self.target = Target(
            name=spec.name,
            base_url=base_url.rstrip("/"),
            headers=dict(spec.headers),
            idempotency_header=spec.idempotency_header,
            supplied=self.credentials.supplied,
        )
        reached = [base_url]
        if isinstance(spec.auth, ClientCredentials):
            reached.append(spec.auth.token_url)
        self._reached = frozenset(map(_host, reached)) if spec.allow_private else frozenset()

    def policy(self, policy: HttpPolicy) -> HttpPolicy:
        """Add the hosts that the author allows for this connector to what requests may reach."""
        return replace(policy, allow_hosts=policy.allow_hosts | self._reached) if self._reached else policy

    async def send(self, request: HttpRequest, policy: HttpPolicy, now: float) -> tuple[HttpAnswer, ShownCredentials]:
        """Send a request, with credentials if it goes to the connector's own address.

        A token that is refused is fetched anew once. Returns the answer and the credentials that were shown.
        """
        allowed = self.policy(policy)
        client = await shared_client(allowed)
        if not same_origin(request.url, self.target.base_url):
            return await exchange(client, request, allowed), ShownCredentials()
        shown = await self.credentials.show(allowed, now)
        answer = await self._exchange(request, shown, allowed)
        if answer.status == _UNAUTHORIZED and shown.token is not None:
            self.credentials.forget(shown.token)
            shown = await self.credentials.show(allowed, now)
            answer = await self._exchange(request, shown, allowed)
        return answer, shown

    async def _exchange(self, request: HttpRequest, shown: ShownCredentials, policy: HttpPolicy) -> HttpAnswer:
        names = {name.lower() for name in shown.headers}
        headers = {name: value for name, value in request.headers.items() if name.lower() not in names}
        url = request.url
        if shown.query:
            url = f"{url}{'&' if '?' in url else '?'}{shown.query}"
        outgoing = HttpRequest(request.method, url, headers | shown.headers, request.content)
        # The library logs addresses, and this one has the key in it.
        with secret_request() if shown.query else nullcontext():
            answer = await exchange(await shared_client(policy), outgoing, policy)
        is_shown = bool(shown.query) and shown.query in answer.url
        return replace(answer, url=request.url) if is_shown else answer


def _host(address: str) -> str:
    parts = urlsplit(address)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.hostname}:{port}"


def connector_of(spec: ConnectorSpec) -> Connector:
    """Give the connector of a registration; its document is read the first time. Raises `ApiError`."""
    if spec.built is None:
        spec.built = Connector(spec)
    assert isinstance(spec.built, Connector)
    return spec.built


def unusable(spec: ConnectorSpec, error: ApiError) -> ActionFailed:
    """Say that the document of a connector cannot be used."""
    message = f"The document of the connector '{spec.name}' cannot be used: {error}"
    return ActionFailed(message, "InvalidConnector")


async def read_off_loop(spec: ConnectorSpec) -> None:
    """Read the document of a connector in a thread, if nobody has: a large one takes seconds. Raises `ActionFailed`."""
    if spec.built is None:
        try:
            await aside("judge", connector_of, spec)
        except ApiError as error:
            raise unusable(spec, error) from error


class ConnectionCall(Struct, frozen=True):
    """One call of a connection: the request of an operation, without credentials, and who sends it."""

    connector: Connector
    operation: ApiOperation
    request: HttpRequest

    async def send(self, policy: HttpPolicy, now: float) -> tuple[HttpAnswer, ShownCredentials]:
        """Send the request. `now`: seconds since 1970, by which tokens expire."""
        return await self.connector.send(self.request, policy, now)

    async def ask(self, place: str, policy: HttpPolicy, now: float) -> tuple[HttpAnswer, ShownCredentials]:
        """Ask at a place that the service has given for the end of its work."""
        return await self.connector.send(self._to("GET", place), policy, now)

    async def page(self, place: str, policy: HttpPolicy, now: float) -> tuple[HttpAnswer, ShownCredentials]:
        """Fetch another page. Raises `AnswerRefused` for one that another service has."""
        return await self.connector.send(self._to("GET", self._own(place)), policy, now)

    async def unsubscribe(self, place: str, policy: HttpPolicy, now: float) -> tuple[HttpAnswer, ShownCredentials]:
        """End the subscription that the service has given this place to, by its `Location`."""
        return await self.connector.send(self._to("DELETE", self._own(place)), policy, now)

    def place(self, location: str) -> str:
        """Make an address of a place that may be relative to the request."""
        return urljoin(self.request.url, location)

    def _own(self, place: str) -> str:
        try:
            address = self.place(place)
            is_own = same_origin(address, self.connector.target.base_url)
        except (ValueError, httpx2.InvalidURL) as error:
            raise AnswerRefused(f"The place that the service points to is no address: {error}") from error
        if not is_own:
            raise AnswerRefused(f"The service points to {urlsplit(address).hostname}, which is not its own address.")
        return address

    def _to(self, method: str, address: str) -> HttpRequest:
        dropped = {"content-type", (self.connector.target.idempotency_header or "").lower()}
        kept = {name: value for name, value in self.request.headers.items() if name.lower() not in dropped}
        own = same_origin(address, self.connector.target.base_url)
        return HttpRequest(method, address, kept if own else {})


def connection_call(
    handlers: ActionHandlers,
    kind: str,
    inputs: Any,
    *,
    use: ConnectionUse | None = None,
    key: str = "",
    callback: str = "",
) -> ConnectionCall | None:
    """Prepare the request of the operation that evaluated inputs name; None if no document serves the connection.

    This is what actions and triggers share. A polling trigger of `kind` "apiconnection" prepares a call for each poll
    and sends it: `call = connection_call(services.handlers, trigger.type, inputs, use=trigger.connection)`, then
    `answer, shown = await call.send(services.policy, now)`. A webhook trigger gives `callback`, the address that the
    service shall call: it is put where the operation takes one, unless the inputs have it. The subscription ends with
    `call.unsubscribe(answer.header("location"), ...)`; that place is to be kept with the subscription. Before an answer
    is stored, mask what it repeats of credentials: `without_secrets(outputs, shown.secrets)`.

    Await `read_off_loop(spec)` first where the event loop must not stand still while a document is read.

    Raises `ActionFailed` for a document that cannot be used, and `BadRequestError` for inputs that name no operation or
    lack a parameter. `key` is the idempotency key.
    """
    names = (*(use.names if use is not None else ()), *connection_names(kind, inputs))
    spec = handlers.connector_for(names)
    if spec is None or spec.openapi is None:
        return None
    try:
        connector = connector_of(spec)
        operation, arguments = resolve(connector.api, connector.target, kind, inputs, use)
    except ApiError as error:
        raise unusable(spec, error) from error
    request = build(operation, arguments, connector.target, key=key, callback=callback)
    return ConnectionCall(connector, operation, request)
