"""The http client: every connection goes to an address that the policy has seen and allowed (see `ssrf`).

A name is resolved once per connection, and the connection goes to the very address that was judged. So a second answer
of the name server cannot lead elsewhere. Certificate and Host header still carry the name.

The http library logs each address that it asks, and in its details the headers of answers. Of an action whose data is
secure, and of a request whose address is secret, it logs nothing, whatever the program has set up for logs.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

import httpcore2
import httpx2
from typing_extensions import override

from loom.steps.ports import current_body

if TYPE_CHECKING:
    import ssl

    from loom.effects.actions.ssrf import HttpPolicy


Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Gives the addresses of a host, in the order in which they shall be tried."""
USER_AGENT = "loom-workflows"


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, as the system knows them."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise httpcore2.ConnectError(f"The host {host} has no address: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


# --- clients ----------------------------------------------------------------------------------------------------------


def make_client(
    policy: HttpPolicy, tls: ssl.SSLContext | None = None, resolver: Resolver = resolve
) -> httpx2.AsyncClient:
    """A client that verifies certificates, follows nothing by itself, and takes no hint from the environment."""
    _redact_logs()
    context = tls if tls is not None else default_tls()
    return httpx2.AsyncClient(
        transport=GuardedTransport(policy, context, resolver),
        timeout=policy.request_timeout_s,
        follow_redirects=False,
        trust_env=False,
        headers={"User-Agent": USER_AGENT, "Accept-Encoding": "gzip, deflate"},
    )


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[HttpPolicy, _Lent]] = weakref.WeakKeyDictionary()


class _Lent:
    """A client and the generator that closes it with its event loop."""

    __slots__ = ("client", "owner")

    def __init__(self, policy: HttpPolicy) -> None:
        self.client = make_client(policy)
        self.owner = _owner(self.client, policy)


async def _owner(client: httpx2.AsyncClient, policy: HttpPolicy) -> AsyncGenerator[None]:
    """Lives as long as its event loop, which closes its asynchronous generators when it ends, and the client so."""
    try:
        yield
    finally:
        _clients.get(asyncio.get_running_loop(), {}).pop(policy, None)
        await client.aclose()


async def shared_client(policy: HttpPolicy) -> httpx2.AsyncClient:
    """The client of this event loop for a policy. It is closed when the event loop ends."""
    of_loop = _clients.setdefault(asyncio.get_running_loop(), {})
    lent = of_loop.get(policy)
    if lent is None or lent.client.is_closed:
        lent = of_loop[policy] = _Lent(policy)
        await anext(lent.owner)
    return lent.client


@cache
def default_tls() -> ssl.SSLContext:
    """Verifies certificates. Reading the authorities takes a while, so it is done once."""
    return httpx2.create_ssl_context()


# --- guarded connections ----------------------------------------------------------------------------------------------


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to allowed addresses and to nothing else."""

    def __init__(self, policy: HttpPolicy, resolver: Resolver = resolve) -> None:
        self._policy = policy
        self._resolver = resolver
        self._sockets = httpcore2.AnyIOBackend()

    @override
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first of the host's allowed addresses that answers."""
        failure: Exception | None = None
        for address in self._policy.permitted(host, port, await self._resolver(host, port)):
            try:
                return await self._sockets.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError(f"The host {host} has no address.")

    @override
    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """No flow has business with sockets of the machine."""
        raise httpcore2.ConnectError("Local sockets are not reachable from flows.")

    @override
    async def sleep(self, seconds: float) -> None:
        """Wait between attempts to connect."""
        await asyncio.sleep(seconds)


class GuardedTransport(httpx2.AsyncBaseTransport):
    """The way of requests to a pool whose connections are guarded.

    The client's own transport does not let its maker choose the sockets of its pool. So the pool is made here, and
    this class does no more than pass requests to it and responses back, by public names of both libraries.
    """

    def __init__(self, policy: HttpPolicy, tls: ssl.SSLContext, resolver: Resolver = resolve) -> None:
        self.tls = tls
        self._connections = httpcore2.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=200,
            max_keepalive_connections=20,
            keepalive_expiry=15.0,
            network_backend=GuardedBackend(policy, resolver),
        )

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request through the pool."""
        url = request.url
        assert isinstance(request.stream, httpx2.AsyncByteStream)
        passed = httpcore2.Request(
            request.method,
            httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        with _as_client_errors():
            response = await self._connections.handle_async_request(passed)
        return httpx2.Response(
            response.status, headers=response.headers, stream=_ResponseStream(response), extensions=response.extensions
        )

    @override
    async def aclose(self) -> None:
        """Close all connections."""
        await self._connections.aclose()


_NAMED = {
    getattr(httpcore2, name): getattr(httpx2, name)
    for name in (
        "ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout", "TimeoutException", "ConnectError", "ReadError",
        "WriteError", "NetworkError", "ProxyError", "UnsupportedProtocol", "LocalProtocolError", "RemoteProtocolError",
        "ProtocolError",
    )
}  # fmt: skip
"""The client's errors by the pool's, the narrow ones before the wide ones."""


@contextmanager
def _as_client_errors() -> Iterator[None]:
    """Raise what goes wrong with a connection as the client's own error of the same name."""
    try:
        yield
    except tuple(_NAMED) as error:
        kind = next(own for theirs, own in _NAMED.items() if isinstance(error, theirs))
        raise kind(str(error)) from error


class _ResponseStream(httpx2.AsyncByteStream):
    """The bytes of a response, as the pool gives them."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_client_errors():
            async for part in self._response.aiter_stream():
                yield part

    @override
    async def aclose(self) -> None:
        await self._response.aclose()


# --- logs of the library ----------------------------------------------------------------------------------------------

_LOGGERS = ("httpx2", "httpcore2.connection", "httpcore2.http11", "httpcore2.http2")
"""The loggers of the http library, all of them: a filter sees the records of its own logger alone."""
_is_secret: ContextVar[bool] = ContextVar("loom_secret_request", default=False)


@contextmanager
def secret_request() -> Iterator[None]:
    """Let nothing be logged of the requests that are made inside."""
    before = _is_secret.set(True)
    try:
        yield
    finally:
        _is_secret.reset(before)


class _NotOfSecureActions(logging.Filter):
    """Lets pass what is not logged on behalf of a secure action or a secret request."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        mark = current_body.get()
        return not (_is_secret.get() or (mark is not None and mark.is_secure))


_FILTER = _NotOfSecureActions()


def _redact_logs() -> None:
    """See to it that nothing is logged of secure requests. Doing it again changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)
