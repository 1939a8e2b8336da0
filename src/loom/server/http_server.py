"""Serve the API by uvicorn in the current event loop: where it listens, whether it may, and how it stops in order.

A server that stops closes its door first, then breaks its streams. Their readers go on elsewhere or later, and are
not refused here. Requests that are under way may finish; the server breaks off late ones. The runtime is left
to its owner: unfinished runs stay in the store.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from loom.server.auth import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send

    from loom.server.call import Server
    from loom.server.settings import ServerSettings

# -- where a server listens -------------------------------------------------------------------------------------------


class CannotListen(Exception):
    """A server cannot be where it was told to be."""


class NeedsKey(CannotListen):
    """Other machines could reach a server that asks for no key."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"Without a key the server is for this machine only, and {place} is open to others: make a key with "
            "`loom keys create NAME --scope read,start,event`, or use 127.0.0.1."
        )


async def bind(host: str, port: int) -> list[socket.socket]:
    """Bind the sockets of a host, all on one port; 0 is any port that is free. They do not listen yet."""
    bound: list[socket.socket] = []
    try:
        for family, address in await _addresses(host, port):
            # The second address of a name gets the port that was found for the first.
            found = _bind(family, (address, bound[0].getsockname()[1] if bound else port))
            if found is not None:
                bound.append(found)
    except OSError as error:
        for each in bound:
            each.close()
        raise CannotListen(_reason(host, port, error)) from error
    if not bound:
        raise CannotListen(_reason(host, port, OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))))
    return bound


async def check_keys(sockets: Iterable[socket.socket], server: Server) -> None:
    """Refuse to be reachable from other machines while no key is asked for, also by way of a proxy on this one."""
    addresses = [each.getsockname()[0] for each in sockets]
    for place in (*addresses, *server.settings.hosts):
        if not is_loopback(place) and not await server.keys.required():
            raise NeedsKey(place)


def url_of(listening: socket.socket) -> str:
    """Return the address that a client uses."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as error:
        raise CannotListen(f"The host {host!r} is not known: use an address of this machine, or its name.") from error
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _bind(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket | None:
    """Bind a socket to an address; None if this machine has no such address, as IPv6 is often missing."""
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        found.setblocking(False)
        found.bind(address)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRNOTAVAIL:
            return None
        raise
    return found


def _reason(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} of {host} is in use: choose another one, or 0 for any that is free."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"This machine has no address {host}: use one of its own, such as 127.0.0.1."
    if error.errno == errno.EACCES:
        return f"Port {port} of {host} is not for everybody: choose one above 1023."
    return f"Port {port} of {host} cannot be used: {error.strerror or error}."


# -- serving ----------------------------------------------------------------------------------------------------------


_log = logging.getLogger("loom.server")

_KEEP_ALIVE_S = 30
"""Longer than clients keep a connection, so that they close it and not the server under their next request."""
_LAST_WORDS_S = 1.0
"""How long those who have waited in vain have for their answers."""
_FALSE_ALARMS = (
    "ASGI callable returned without completing response.",
    "No supported WebSocket library detected.",
    "Unsupported upgrade request.",
)


@asynccontextmanager
async def serving(app: Starlette, sockets: list[socket.socket]) -> AsyncIterator[HttpServer]:
    """Serve an app that `create_app` made on bound sockets, until the block ends."""
    server = HttpServer(app, sockets)
    with _no_false_alarms():
        await server.begin()
        ticking = asyncio.create_task(server.main_loop())
        try:
            yield server
        finally:
            server.should_exit = True
            await server.shutdown(sockets)
            await asyncio.gather(ticking, return_exceptions=True)


class HttpServer(uvicorn.Server):
    """One server. It leaves signals to its caller."""

    def __init__(self, app: Starlette, sockets: list[socket.socket]) -> None:
        self.app = app
        self._shared: Server = app.state.server
        settings = self._shared.settings
        super().__init__(
            uvicorn.Config(
                _Stoppable(app, self._shared),
                http=_limited(AutoHTTPProtocol, settings),
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level=logging.WARNING,
                access_log=False,
                proxy_headers=False,  # else X-Forwarded-For would say who is on this machine
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                limit_concurrency=settings.max_connections,
                h11_max_incomplete_event_size=settings.max_header,
            )
        )
        self._sockets = sockets
        self.url = url_of(sockets[0])
        """Where it is."""

    async def begin(self) -> None:
        """Open the door."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        try:
            await self.startup(self._sockets)
        except OSError as error:
            raise CannotListen(f"{self.url} cannot be served: {error.strerror or error}.") from error

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nothing new, and finish what is under way as far as there is time."""
        self._shared.draining = True
        for listening in self.servers:
            listening.close()
        self._shared.open_streams.break_all()
        closing = asyncio.create_task(super().shutdown(sockets))
        _, late = await asyncio.wait([closing], timeout=self._shared.settings.drain)
        if late:
            self._shared.waits.end_all()
            _, late = await asyncio.wait([closing], timeout=_LAST_WORDS_S)
        if late:
            self._break_off()
        await closing

    def _break_off(self) -> None:
        """End the connections that are still open. No answer is given: what they asked for may have happened."""
        state = self.server_state
        _log.warning("The server stops. Requests that were not finished: %d.", len(state.tasks))
        for connection in list(state.connections):
            connection.transport.abort()
        for task in list(state.tasks):
            task.cancel()


class _Stoppable:
    """The app, whose requests may be cancelled by a server that stops: that is no failure of theirs."""

    def __init__(self, app: Starlette, server: Server) -> None:
        self._app = app
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._server.draining:
                raise


def _limited(base: Any, settings: ServerSettings) -> type[asyncio.Protocol]:
    """A protocol of uvicorn that limits the time and the size of a request's head; its body is up to `Limited`."""

    class LimitedHeads(base):  # type: ignore[misc] # whichever protocol uvicorn has
        _late: asyncio.TimerHandle | None = None
        _taken = 0

        @override
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._expect()

        @override
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            last = self.cycle
            if last is not None and not last.response_complete:
                self._arrived()
                return
            self._expect()
            self._taken += len(data)
            # The rest of a body may come before the head, if the request was answered without it.
            allowed = settings.max_header + (settings.max_body if last is not None and last.more_body else 0)
            if self._taken > allowed and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

        @override
        def connection_lost(self, exc: Exception | None) -> None:
            self._arrived()
            super().connection_lost(exc)

        def _expect(self) -> None:
            if self._late is None and not self.transport.is_closing():
                self._late = self.loop.call_later(settings.arrival_timeout, self.transport.abort)

        def _arrived(self) -> None:
            self._taken = 0
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return LimitedHeads


@contextmanager
def _no_false_alarms() -> Iterator[None]:
    """Keep uvicorn from logging an answer without its end, which is meant, and advice about WebSockets, which are not
    served here.
    """

    def is_news(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_FALSE_ALARMS)

    logger = logging.getLogger("uvicorn.error")
    logger.addFilter(is_news)
    try:
        yield
    finally:
        logger.removeFilter(is_news)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return how to make the event loop that serves best here: uvloop's if it is installed."""
    return uvicorn.Config("", loop="auto", log_config=None).get_loop_factory()
