"""Limits of one caller: how often it asks, how often its key is wrong, how many runs it begins; and its refusals.

A bucket holds twice as many requests as may come in a second, and fills up again. A caller with a key counts by the
key, any other by the address of the connection; headers of proxies say nothing here.

Lines of the log and entries of the record about refusals are bounded too, for a caller decides how often it is refused.
A line names the address and the id of the shown key, never the key, and not whether there is a key of that id.

A run counts for the key that has begun it, from its request on. It counts no more once it has ended, waits for input,
is paused or is parked: such a run needs no memory. Runs that other servers have begun do not count, nor what this
one began before its last restart.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import time
from collections import Counter
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from loom.runtime.lru_cache import LruCache
from loom.server.addresses import signature_of
from loom.server.auth import authenticate, not_proved, shown_key, shown_key_id
from loom.server.problems import ApiProblem, problem_of
from loom.store.errors import MemoryExceeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Scope

    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.auth import Keys, Principal
    from loom.server.call import Call
    from loom.server.sessions import Sessions


GUESSES = 10.0
"""Wrong keys per second that one address is told of as such; a good key is let in all the same."""

_MOST = 10_000
"""How many callers are kept in mind; the one that was away longest starts with a full bucket again."""
_BURST_S = 2.0
_SMALL_NETWORK = 64
"""A caller with an address of IPv6 has a whole network of this length."""


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
        self._full_at: LruCache[str, float] = LruCache(most)

    def __len__(self) -> int:
        return len(self._full_at)

    def wait(self, who: str) -> float:
        """Return how many seconds it takes until this caller may ask; 0.0: now."""
        full_at = self._full_at.peek(who)
        # What rounding leaves is not waited for.
        left = 0.0 if full_at is None else full_at - self._now() + self._cost - self._size
        return left if left > 1e-9 else 0.0  # noqa: PLR2004 - a nanosecond

    def take(self, who: str) -> None:
        """Count a request."""
        now = self._now()
        full_at = self._full_at.peek(who)
        self._full_at.put(who, max(now if full_at is None else full_at, now) + self._cost)


class Rates:
    """Who asks, as long as that is not too often."""

    def __init__(
        self, keys: Keys, sessions: Sessions, rate: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._keys = keys
        self._sessions = sessions
        self._requests = Buckets(rate, clock) if rate is not None else None
        self._guesses = Buckets(GUESSES, clock)

    async def principal(self, headers: Headers, scope: Scope) -> Principal:
        """Return the caller, or refuse the request: 401, 403, or 429 if it is one too many."""
        key = shown_key(headers)
        if key is None:
            found = await authenticate(self._keys, self._sessions, headers, scope)
            if found.session and self._requests is not None:
                _count(self._requests, found.id, _TOO_MANY)
            else:
                self.count_address(scope)
            return found
        try:
            found = await authenticate(self._keys, self._sessions, headers, scope)
        except ApiProblem:
            self._count_guess(scope)
            raise
        if self._requests is not None:
            _count(self._requests, found.id, _TOO_MANY)
        return found

    async def signed(self, found: Awaitable[Principal], scope: Scope) -> Principal:
        """Return the caller of a signed address, or refuse the request: 401, or 429 if it is one too many."""
        try:
            caller = await found
        except ApiProblem:
            self._count_guess(scope)
            raise
        if self._requests is not None:
            _count(self._requests, caller.id, _TOO_MANY)
        return caller

    async def login(self, key: str, scope: Scope) -> Principal:
        """Return the principal of the key of a login, or refuse the key: 401, or 429 if too many were wrong."""
        found = await self._keys.find(key)
        if found is None:
            self._count_guess(scope)
            raise not_proved(key)
        if self._requests is not None:
            _count(self._requests, found.id, _TOO_MANY)
        return found

    def _count_guess(self, scope: Scope) -> None:
        # Looked up first: who guesses shall not lock out good keys behind the same address. No guess finds a
        # secret of 256 bits; what is limited is the talk about it.
        _count(self._guesses, address_of(scope), "Too many wrong keys came from this address.")

    def count_address(self, scope: Scope) -> None:
        """Count a request without a key, or refuse it."""
        if self._requests is not None:
            _count(self._requests, address_of(scope), _TOO_MANY)


_TOO_MANY = "Too many requests came from this caller."


def _count(buckets: Buckets, who: str, refusal: str) -> None:
    """Count a request, or refuse it."""
    if left := buckets.wait(who):
        raise ApiProblem("limited", f"{refusal} Ask again later.", headers={"Retry-After": str(math.ceil(left))})
    buckets.take(who)


def address_of(scope: Scope) -> str:
    """Return the address that a request counts for: of IPv6 only the network."""
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


# -- refusals ---------------------------------------------------------------------------------------------------------


REFUSED = frozenset({401, 403, 429})
"""The statuses of answers that refuse a caller, not what it asks."""

_AT_ONCE, _PER_MINUTE = 10, 10
"""Lines of one address, and entries of one key: how many at once, and then how many a minute."""
_ALL_AT_ONCE, _ALL_PER_MINUTE = 100, 600
"""Lines of all addresses together."""
_EVERYBODY = "everybody"

_log = logging.getLogger("loom.server")


class Refusals:
    """What one server does about refused requests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = _minutes(_PER_MINUTE, _AT_ONCE, clock)
        self._all = _minutes(_ALL_PER_MINUTE, _ALL_AT_ONCE, clock)
        self._entries = _minutes(_PER_MINUTE, _AT_ONCE, clock)
        self._untold = 0
        """Refusals since the last line that had none."""

    def log(self, scope: Scope, problem: ApiProblem) -> None:
        """Write a line about a refused request, unless there were too many."""
        if problem.status not in REFUSED:
            return
        address = address_of(scope)
        if self._lines.wait(address) or self._all.wait(_EVERYBODY):
            self._untold += 1
            return
        self._lines.take(address)
        self._all.take(_EVERYBODY)
        untold, self._untold = self._untold, 0
        # The route, not the path: a path may hold what is no business of the log.
        route = scope.get("state", {}).get("route", "no route")
        signed = signature_of(scope) is not None
        key = "with a signed address" if signed else shown_key_id(Headers(scope=scope))
        more = f" Not told before: {untold} more." if untold else ""
        _log.warning(
            "Refused with %d (%s): %s %s from %s, %s.%s",
            problem.status,
            problem.code,
            scope["method"] if scope["method"].isalpha() else "a method",
            route,
            address,
            key,
            more,
        )

    def may_record(self, actor: str) -> bool:
        """Tell whether one more refused act of a key goes into the record; it counts if so."""
        if self._entries.wait(actor):
            return False
        self._entries.take(actor)
        return True


def _minutes(per_minute: int, at_once: int, clock: Callable[[], float]) -> Buckets:
    return Buckets(per_minute / 60, clock, burst_s=at_once * 60 / per_minute)


# -- starts of runs ---------------------------------------------------------------------------------------------------


_LOOK_S = 1.0
"""How often the runs of a key that has reached its limit are looked at again."""


def check_open(call: Call) -> None:
    """Refuse what begins something new while the server is about to stop, or has no memory for it."""
    headers = {"Retry-After": str(call.settings.retry_after)}
    if call.server.draining:
        raise ApiProblem("draining", "The server is stopping.", headers=headers)
    try:
        call.runtime.memory.check()
    except MemoryExceeded as error:
        raise problem_of(error, call.settings.retry_after) or error from error


class Starts:
    """The runs of each key that are at work, as far as this server has begun them.

    A key counts with the one that it was rotated from.
    """

    def __init__(self, runtime: WorkerRuntime, most: int | None, retry_after: int) -> None:
        self._runtime = runtime
        self._most = most
        self._retry_after = retry_after
        self._runs: dict[str, set[str]] = {}
        self._reserved: Counter[str] = Counter()
        self._looked_at: dict[str, float] = {}

    async def reserve(self, call: Call, number: int = 1) -> None:
        """Let a request begin this many runs, or refuse it with 429. The places are its own until it is answered."""
        if self._most is None:
            return
        who = call.principal.lineage or call.principal.id
        if self._room(who) < number:
            await self._look(who)
        if self._room(who) < number:
            raise ApiProblem(
                "limited",
                f"The caller has {self._most - max(0, self._room(who))} runs at work, and may have {self._most}: begin "
                f"{'another one' if number == 1 else 'others'} when they have ended.",
                headers={"Retry-After": str(self._retry_after)},
            )
        call.reserved += number
        self._reserved[who] += number

    def settle(self, call: Call) -> None:
        """Count what a request has begun, in place of what it might have."""
        who = call.principal.lineage or call.principal.id
        self._reserved[who] -= call.reserved
        call.reserved = 0
        self._runs.setdefault(who, set()).update(call.begun)

    def _room(self, who: str) -> int:
        return (self._most or 0) - len(self._runs.get(who, ())) - self._reserved[who]

    async def _look(self, who: str) -> None:
        """Forget the runs of a key that are at work no more, at most once a second: a caller may ask more often."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_at.get(who, float("-inf")) < _LOOK_S:
            return
        self._looked_at[who] = now
        for run_id in list(self._runs.get(who, ())):
            if not await self._is_at_work(run_id):
                self._runs[who].discard(run_id)

    async def _is_at_work(self, run_id: str) -> bool:
        row = await self._runtime.store.get(run_id)
        if row is None or row.head.status != "running":
            return False
        head = row.head
        return head.idle_since is None and not head.paused and head.parked is None
