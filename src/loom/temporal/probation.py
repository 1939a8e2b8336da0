"""Steps that may have killed their worker: one at a time on probation, and given up as poison.

The count is that of attempts at an activity after lost heartbeats. It rides in the details of its heartbeats, which the
cluster keeps for the next attempt; so nothing is written for a step whose first attempt ends. What the counts mean is
said by `loom.store.deaths`, as it is for other stores.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from temporalio.api.enums.v1 import TimeoutType
from temporalio.client import AsyncActivityCancelledError
from temporalio.service import RPCError

from loom.runtime.durable.probation import MAX_DEATHS, probation_s
from loom.store.deaths import POISON, Deaths, after_death

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from temporalio import activity
    from temporalio.client import Client

    from loom.temporal.heartbeats import Heart

_log = logging.getLogger("loom.temporal")

_FIELDS = 4


def asks_cluster(client: Client) -> Callable[[activity.Info], Awaitable[bool]]:
    """What tells whether the attempt before one has ended because its heartbeats were lost."""

    async def was_lost(info: activity.Info) -> bool:
        assert info.workflow_id is not None
        handle = client.get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
        try:
            described = (await handle.describe()).raw_description
        except RPCError as error:
            _log.warning("Why an attempt before this one has ended is not known: %s", error)
            return False
        for pending in described.pending_activities:
            if pending.activity_id == info.activity_id:
                kind = pending.last_failure.timeout_failure_info.timeout_type
                return bool(kind == TimeoutType.TIMEOUT_TYPE_HEARTBEAT)
        return False

    return was_lost


class Trials:
    """The suspects among the steps of one worker. A death of the worker counts for the one that is on probation."""

    def __init__(
        self,
        base_s: float,
        was_lost: Callable[[activity.Info], Awaitable[bool]] | None,
        record: Callable[..., Awaitable[None]] | None,
    ) -> None:
        self._base_s = base_s
        self._was_lost = was_lost
        self._record = record
        self._turn = asyncio.Lock()

    async def deaths_of(self, info: activity.Info) -> Deaths | None:
        """The deaths of workers that an attempt at a step comes after; None if it is not known to come after any."""
        if info.attempt == 1 or self._was_lost is None:
            return None
        before = _read(info.heartbeat_details)
        if await self._was_lost(info):
            return after_death(before, info.started_time.timestamp())
        return before

    @asynccontextmanager
    async def on_probation(self, heart: Heart | None, deaths: Deaths | None) -> AsyncIterator[None]:
        """Run a step in the block: alone among the suspects, if it is one, until its probation is over."""
        if deaths is None or heart is None or self._record is None:
            yield
            return
        await self._note(heart, deaths, on_trial=False)
        if not deaths.suspect:
            yield
            return
        is_over, has_turn = asyncio.Event(), asyncio.Event()
        trial = asyncio.create_task(self._try(heart, deaths, has_turn, is_over))
        try:
            await has_turn.wait()
            if trial.done():
                trial.result()  # it has failed
            yield
        finally:
            if has_turn.is_set():
                is_over.set()
            else:
                trial.cancel()
            await asyncio.wait([trial])

    async def _try(self, heart: Heart, deaths: Deaths, has_turn: asyncio.Event, is_over: asyncio.Event) -> None:
        """Hold the turn of a suspect until its step is over, or has lived through its probation.

        The cluster knows before the next suspect begins: else a death that the next one causes would count for both.
        """
        async with self._turn:
            try:
                await self._note(heart, deaths, on_trial=True)
            finally:
                has_turn.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(is_over.wait(), probation_s(self._base_s, deaths.marks))
            await self._note(heart, deaths, on_trial=False)

    async def _note(self, heart: Heart, deaths: Deaths, *, on_trial: bool) -> None:
        """Let the cluster know before the body begins. A heartbeat that waits to be sent says the same."""
        assert self._record is not None
        details = _details(deaths, on_trial=on_trial)
        heart.tell(*details)
        try:
            await self._record(heart.token, *details)
        except (RPCError, AsyncActivityCancelledError) as error:
            # What the cluster says to an activity, the activity hears when it beats by itself.
            _log.warning("The deaths of %s could not be noted: %s", heart.name, error)


def is_poison(deaths: Deaths | None) -> bool:
    """Say whether a step has killed too many workers to be tried again."""
    return deaths is not None and deaths.own >= MAX_DEATHS


def reason_of(what: str, deaths: Deaths) -> str:
    """Why the run of such a step is parked, or cannot begin."""
    return (
        f"{POISON}: {deaths.own} workers have died while {what} was on probation, {deaths.marks} while it was at work."
    )


def _details(deaths: Deaths, *, on_trial: bool) -> tuple[Any, ...]:
    return deaths.marks, deaths.own, deaths.at, on_trial


def _read(details: Any) -> Deaths | None:
    """What the last heartbeat said; None if it was none of these."""
    if len(details) != _FIELDS:
        return None
    marks, own, at, on_trial = details
    return Deaths(marks, own, at, suspect=marks > 1, trial=1 if on_trial else None)
