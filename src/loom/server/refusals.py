"""Requests that were refused for who makes them: what the log says of them, and how often the record may.

Both are bounded, for the caller decides how often it is refused. A line names the address and the id of the key
that was shown, never the key: whether there is a key of that id is not said.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from loom.server.auth import shown_key_id
from loom.server.rate import Buckets, address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Scope

    from loom.server.problems import ApiProblem

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
        key = shown_key_id(Headers(scope=scope))
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
        """Whether one more refused act of a key goes into the record; it counts if so."""
        if self._entries.wait(actor):
            return False
        self._entries.take(actor)
        return True


def _minutes(per_minute: int, at_once: int, clock: Callable[[], float]) -> Buckets:
    return Buckets(per_minute / 60, clock, burst_s=at_once * 60 / per_minute)
