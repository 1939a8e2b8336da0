"""How often callers may ask, and how often they may be wrong about their key.

A bucket holds twice as many requests as may come in a second, and fills up again. Whoever shows a key counts by the
key, everybody else by the address of the connection; headers of proxies say nothing here. May import starlette and the
server's keys and problems.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from loom.server.auth import authenticate, shown_key
from loom.server.problems import ApiProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import Headers
    from starlette.types import Scope

    from loom.server.auth import Keys, Principal

GUESSES = 10.0
"""Wrong keys per second that one address is told of as such; a good key is let in all the same."""

_MOST = 10_000
"""So many callers are kept in mind; whoever was away longest starts with a full bucket again."""
_BURST_S = 2.0
_SMALL_NETWORK = 64
"""Whoever has an address of IPv6 has a whole network of this length."""


class Buckets:
    """A bucket for each caller, all of the same size. What is kept of one is the time at which it is full again."""

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        most: int = _MOST,
        *,
        burst_s: float = _BURST_S,
    ) -> None:
        self._cost = 1.0 / rate
        # A bucket that could not hold one request would let none through.
        self._size = max(burst_s, self._cost)
        self._now = clock
        self._most = most
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, who: str) -> float:
        """How many seconds it takes until this caller may ask; 0.0: now."""
        full_at = self._full_at.get(who)
        # What rounding leaves is not waited for.
        left = 0.0 if full_at is None else full_at - self._now() + self._cost - self._size
        return left if left > 1e-9 else 0.0  # noqa: PLR2004 - a nanosecond

    def take(self, who: str) -> None:
        """Count a request."""
        now = self._now()
        self._full_at[who] = max(self._full_at.get(who, now), now) + self._cost
        self._full_at.move_to_end(who)
        if len(self._full_at) > self._most:
            self._full_at.popitem(last=False)


class Rates:
    """Who asks, as long as that is not too often."""

    def __init__(self, keys: Keys, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._requests = Buckets(rate, clock) if rate is not None else None
        self._guesses = Buckets(GUESSES, clock)

    async def principal(self, headers: Headers, scope: Scope) -> Principal:
        """Who makes a request, or why nobody may: 401, 403, or 429 if it is one too many."""
        key = shown_key(headers)
        if key is None:
            found = await authenticate(self._keys, headers, scope)
            self.count_address(scope)
            return found
        try:
            found = await authenticate(self._keys, headers, scope)
        except ApiProblem:
            # Looked up first: who guesses shall not lock out good keys behind the same address. No guess finds a
            # secret of 256 bits; what is limited is the talk about it.
            _count(self._guesses, address_of(scope), "Too many wrong keys came from this address.")
            raise
        if self._requests is not None:
            _count(self._requests, found.id, _TOO_MANY)
        return found

    def count_address(self, scope: Scope) -> None:
        """Count a request of somebody without a key, or refuse it."""
        if self._requests is not None:
            _count(self._requests, address_of(scope), _TOO_MANY)


_TOO_MANY = "Too many requests came from this caller."


def _count(buckets: Buckets, who: str, refusal: str) -> None:
    """Count a request, or refuse it."""
    if left := buckets.wait(who):
        raise ApiProblem("limited", f"{refusal} Ask again later.", headers={"Retry-After": str(math.ceil(left))})
    buckets.take(who)


def address_of(scope: Scope) -> str:
    """Where a request comes from, as it counts: of IPv6 only the network."""
    client = scope.get("client")
    if client is None:
        return "unknown"
    try:
        address = ipaddress.ip_address(client[0].partition("%")[0])
    except ValueError:
        return str(client[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _SMALL_NETWORK), strict=False))
