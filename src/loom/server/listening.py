"""Where a server listens: its sockets, and whether it may be there. May import the server's frame."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import TYPE_CHECKING

from loom.server.auth import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.server.routing import Server


class CannotListen(Exception):
    """A server cannot be where it was told to be."""


class NeedsKey(CannotListen):
    """Others could reach a server that asks nobody for a key."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"Without a key the server is for this machine only, and {place} is open to others: make a key with "
            "`loom keys create NAME --scope read,start,event`, or use 127.0.0.1."
        )


async def bind(host: str, port: int) -> list[socket.socket]:
    """The sockets of a host, all on one port; 0 is any port that is free. Nobody can connect to them yet."""
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
    """The address that a client uses."""
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
    """A socket at an address, or none if this machine has no such address, as IPv6 is often missing."""
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
