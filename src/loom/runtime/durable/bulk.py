"""Acts on many stored runs: cancel, retry, resume, pause and delete.

The ids of the runs that match are read first, so that runs which start later are not touched. Each run is then read
again and told by itself, a few at a time: a process has no transaction over thousands of runs, and what is done stays
done. A run that refuses is counted and named, and the others go on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

import msgspec

from loom.api.bulk import Bulk, BulkFailure
from loom.runtime.durable.names import OWN, can_match
from loom.store.errors import RunActive, RunFinished, RunNotFound, StoreError, StoreUnavailable
from loom.store.records import place_of
from loom.store.run_filters import run_query

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from loom.api.bulk import BulkAction
    from loom.api.requests import RunFilters
    from loom.runtime.durable.run_client import RunClient
    from loom.store.records import RunQuery, RunRow

_PAGE = 200
_AT_ONCE = 32
"""How many runs are told at once: their commits share transactions."""
_REPORT_S = 0.5
"""Seconds between two reports of progress."""
_SAMPLE = 20
_SHOWN_FAILURES = 100
_CODES: dict[type[StoreError], str] = {
    RunNotFound: "run-not-found",
    RunFinished: "run-finished",
    RunActive: "run-active",
}


class BulkGuard(Protocol):
    """What the caller of a bulk has to say to each run."""

    def may_act_on(self, row: RunRow) -> bool:
        """Tell whether the caller may act on this run; one that the caller may not see is as good as gone."""
        ...

    def goes_on(self) -> bool:
        """Tell whether the work goes on; False stops it between two runs."""
        ...

    async def acted(self, run_id: str) -> None:
        """Hear of a run for which it was done."""
        ...


class Unguarded:
    """Allows all, and records nothing: the guard of a process that has the store itself."""

    def may_act_on(self, row: RunRow) -> bool:
        """Allow it."""
        del row
        return True

    def goes_on(self) -> bool:
        """Go on to the end."""
        return True

    async def acted(self, run_id: str) -> None:
        """Record nothing."""


def check_filter(action: BulkAction, *, is_empty: bool) -> None:
    """Raise `ValueError` if the filter means every run, and the act cannot be taken back."""
    if is_empty and action == "delete":
        raise ValueError("A filter is needed to delete runs, such as their status: without one all would go.")


async def matching(client: RunClient, query: RunQuery) -> list[str]:
    """List the ids of all runs that match. Loom's own are left out: schedules and actors have calls of their own."""
    found: list[str] = []
    if not can_match(query):
        return found
    query = msgspec.structs.replace(query, limit=_PAGE, after=None)
    while True:
        rows = await client.store.find(query)
        found += [row.run_id for row in rows if not row.workflow.startswith(OWN)]
        if len(rows) < _PAGE:
            return found
        query = msgspec.structs.replace(query, after=place_of(rows[-1], query))


def run_bulk(
    client: RunClient, action: BulkAction, filters: RunFilters, *, dry_run: bool, reason: str
) -> AsyncIterator[Bulk]:
    """Do it for a caller with all rights."""
    check_filter(action, is_empty=not any(value not in (None, {}, []) for value in filters.values()))
    query = run_query(filters, client.now(), _PAGE)
    return BulkWork(client, action, reason=reason).progress(query, dry_run=dry_run)


class BulkWork:
    """One act on many runs."""

    def __init__(
        self, client: RunClient, action: BulkAction, *, reason: str = "", guard: BulkGuard | None = None
    ) -> None:
        self._client = client
        self._action = action
        self._guard = guard or Unguarded()
        acts: dict[BulkAction, Callable[[str], Awaitable[object]]] = {
            "cancel": lambda run_id: client.cancel(run_id, reason=reason),
            "retry": client.retry,
            "resume": client.resume,
            "pause": client.pause,
            "delete": client.purge,
        }
        self._act = acts[action]
        self._run_ids: list[str] = []
        self._done = 0
        self._failed: list[BulkFailure] = []
        self._failed_count = 0

    async def progress(self, query: RunQuery, *, dry_run: bool = False) -> AsyncIterator[Bulk]:
        """Do it, and tell how far it is: at first what matched, and at last how it ended."""
        await self._client.ready()
        self._run_ids = await matching(self._client, query)
        if dry_run:
            yield self._told(dry_run=True, finished=True)
            return
        yield self._told()
        now = asyncio.get_running_loop().time
        told_at, position = now(), 0
        while position < len(self._run_ids) and self._guard.goes_on():
            await asyncio.gather(*map(self._one, self._run_ids[position : position + _AT_ONCE]))
            position += _AT_ONCE
            if now() - told_at >= _REPORT_S:
                told_at = now()
                yield self._told()
        yield self._told(finished=position >= len(self._run_ids))

    def _told(self, *, dry_run: bool = False, finished: bool = False) -> Bulk:
        return Bulk(
            action=self._action,
            dry_run=dry_run,
            matched=len(self._run_ids),
            done=self._done,
            failed=list(self._failed),
            failed_count=self._failed_count,
            sample=self._run_ids[:_SAMPLE],
            finished=finished,
        )

    async def _one(self, run_id: str) -> None:
        try:
            if not self._guard.may_act_on(await self._client.row(run_id)):
                raise RunNotFound(run_id)
            await self._act(run_id)
        except StoreUnavailable:
            raise  # so would all others
        except RunNotFound as error:
            if self._action != "delete":  # else it went with its parent
                self._fail(run_id, error)
                return
        except StoreError as error:
            self._fail(run_id, error)
            return
        self._done += 1
        await self._guard.acted(run_id)

    def _fail(self, run_id: str, error: StoreError) -> None:
        self._failed_count += 1
        if len(self._failed) < _SHOWN_FAILURES:
            code = next((code for kind, code in _CODES.items() if isinstance(error, kind)), "not-supported")
            self._failed.append(BulkFailure(run_id=run_id, code=code, message=str(error)))
