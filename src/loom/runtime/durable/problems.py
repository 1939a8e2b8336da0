"""Problems of runs on their way to operators: which hooks there are on a store, and the notices that tell them.

A notice is a run of Loom's own, started in the transaction that stores the problem: so it is neither lost by a crash
nor held in memory, it is tried again by the engine with its back-off, and `loom why` says what holds it. Processes that
have a hook work for the notices of its channel. All others learn from an entry of the store that there is one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from loom.api.problems import Problem
from loom.effects.redaction import without_secrets
from loom.runtime.durable.names import NOTICE, OWN
from loom.store.codec import StartSpec, encode_start
from loom.store.operations import StartRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.api.problems import ProblemKind
    from loom.store.ports import Store
    from loom.store.records import RunHead, RunRow

CALLABLE, WEBHOOK = "on_problem", "webhook"
"""The channels: a callable of `loom.connect`, and the webhook of a server."""

_NOTICES = f"{OWN}problems."
_HOOKS = "problem-hook"
_KNOWN_S = 7 * 86_400.0
"""Seconds after which a hook that no process has named is forgotten. Problems are no longer kept for it."""
_RENEW_S = 3_600.0


def notices_of(channel: str) -> str:
    """The workflow of a channel's notices."""
    return f"{_NOTICES}{channel}"


def is_notice(workflow: str) -> bool:
    """Say whether a run is a notice: its own failure is told to nobody."""
    return workflow.startswith(_NOTICES)


def problem_of(row: RunRow, head: RunHead, kind: ProblemKind, message: str | None) -> Problem:
    """Describe a run's problem for a hook. Credentials in the message are masked, because it goes to other services."""
    return Problem(
        id=f"{row.run_id}:{head.ticks - 1}:{kind}",
        kind=kind,
        run_id=row.run_id,
        workflow=row.workflow,
        message=without_secrets(message or ""),
        at=datetime.fromtimestamp(head.updated_at, tz=UTC),
        tick=head.ticks - 1,
        tags=row.tags,
    )


class Problems:
    """The hooks of a store, as one process knows them."""

    def __init__(self, store: Store, own: Sequence[str] = (), interval_s: float = 10.0) -> None:
        self._store = store
        self._interval_s = interval_s
        self.own = tuple(own)
        """The channels that this process has a hook for."""
        self.channels = self.own
        """All channels. None: nobody wants to know, and no notices are made."""
        self._looked_at = self._renewed_at = float("-inf")

    async def look(self, now: float) -> None:
        """Learn of the hooks of other processes, and let them know of those here, now and then."""
        if 0 <= now - self._looked_at < self._interval_s:
            return
        if self.own and not 0 <= now - self._renewed_at < _RENEW_S:
            for channel in self.own:
                await self._store.put_entry(_HOOKS, channel, b"", expires_at=now + _KNOWN_S)
            self._renewed_at = now
        found = [entry.key for entry in await self._store.entries(_HOOKS)]
        self.channels = tuple(dict.fromkeys([*self.own, *found]))
        self._looked_at = now

    def notices(self, problem: Problem, at: float, downtime: float = 0.0) -> list[StartRun]:
        """The runs that tell a problem, one for each channel. The same problem gives the same runs."""
        if is_notice(problem.workflow):
            return []
        from loom.effects.flow_convert import AnyBodies  # few runs need it

        digest = blake2b(problem.id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        start = encode_start(StartSpec(inputs=AnyBodies().value({"problem": msgspec.to_builtins(problem)})))
        return [
            StartRun(f"{NOTICE}{channel}:{digest}", notices_of(channel), start, at, downtime=downtime)
            for channel in self.channels
        ]
