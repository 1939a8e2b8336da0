"""Heartbeats of activities, and probation for steps that may have killed their worker.

Without heartbeats the cluster takes a worker for dead. An activity beats on the event loop; if a body blocks that for
long, a thread beats for all activities.

An attempt after lost heartbeats may mean that the step killed its worker. Such suspects run one at a time, and after
too many deaths the run is parked as poison. The count rides in the details of heartbeats, which the cluster keeps for
the next attempt. So nothing is written for a step whose first attempt ends. `loom.store.deaths` says what the counts
mean, as for other stores.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import asynccontextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.api.enums.v1 import TimeoutType
from temporalio.client import AsyncActivityCancelledError
from temporalio.service import RPCError

from loom.runtime.durable.probation import MAX_DEATHS, probation_s
from loom.store.deaths import POISON, Deaths, after_death

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from temporalio.client import Client

_log = logging.getLogger("loom.temporal")

# -- heartbeats -------------------------------------------------------------------------------------------------------

_BEATS = 3
"""Heartbeats per time after which the cluster takes a silent worker for dead."""
_LATE = 1.5
"""Intervals without a heartbeat after which the event loop is taken for blocked."""
_PATIENCE_S = 3600.0
"""Seconds after which a blocked event loop is given up: other workers shall have its work."""


class Heart:
    """Beats for one activity: that of the context in which it is made."""

    def __init__(self, interval: float) -> None:
        info = activity.info()
        self.interval = interval
        self.token = info.task_token
        self.name = f"'{info.activity_type}' of run {info.workflow_id}"
        self.last = monotonic()
        self.details: tuple[Any, ...] = ()
        """What every heartbeat tells the next attempt."""
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.call_later(interval, self._beat)

    def _beat(self) -> None:
        self.last = monotonic()
        activity.heartbeat(*self.details)
        self._due = self._loop.call_later(self.interval, self._beat)

    def tell(self, *details: Any) -> None:
        """Give details to the next attempt, from the next heartbeat on."""
        self.details = details
        activity.heartbeat(*details)

    @property
    def is_late(self) -> bool:
        """Say whether the event loop has not let it beat, and may yet go on."""
        return _LATE * self.interval < monotonic() - self.last < _PATIENCE_S

    def stop(self) -> None:
        """Stop beating: the activity is over."""
        self._due.cancel()


class Heartbeats:
    """The hearts of all activities of a worker, and the thread that watches them while there are any."""

    def __init__(self, beat: Callable[..., Awaitable[None]] | None = None) -> None:
        self._beat = beat
        """Beats for the activity of a task token, with details, on any event loop."""
        self._hearts: dict[Heart, None] = {}
        self._lock = threading.Lock()
        self._watched = False

    def begin(self) -> Heart | None:
        """Let the activity of this context beat. None if the cluster does not wait for heartbeats."""
        timeout = activity.info().heartbeat_timeout
        if timeout is None:
            return None
        heart = Heart(timeout.total_seconds() / _BEATS)
        with self._lock:
            self._hearts[heart] = None
            begins = self._beat is not None and not self._watched
            self._watched = self._watched or begins
        if begins:
            threading.Thread(target=self._watch, name="loom heartbeats", daemon=True).start()
        return heart

    def end(self, heart: Heart | None) -> None:
        """Stop the heart of an activity that is over."""
        if heart is not None:
            heart.stop()
            with self._lock:
                self._hearts.pop(heart, None)

    def _watch(self) -> None:
        told = False
        pause = threading.Event()
        while hearts := self._watching():
            late = [heart for heart in hearts if heart.is_late]
            if late and not told:
                _log.warning(
                    "The event loop of this worker is blocked. A step that does not await while it works shall be a "
                    "plain `def`, which has a thread of its own. At work: %s.",
                    ", ".join(sorted(heart.name for heart in hearts)),
                )
            told = bool(late)
            if late:
                asyncio.run(self._beat_for(late))
            pause.wait(min(heart.interval for heart in hearts) / 2)

    def _watching(self) -> list[Heart]:
        """Return the hearts that there are. If there are none, the thread ends."""
        with self._lock:
            self._watched = bool(self._hearts)
            return list(self._hearts)

    async def _beat_for(self, hearts: list[Heart]) -> None:
        assert self._beat is not None
        beats = [self._beat(heart.token, *heart.details) for heart in hearts]
        for result in await asyncio.gather(*beats, return_exceptions=True):
            # What the cluster says to an activity, it hears when it beats by itself again.
            if isinstance(result, BaseException) and not isinstance(result, RPCError | AsyncActivityCancelledError):
                _log.error("A heartbeat could not be sent: %s", result, exc_info=result)


# -- probation --------------------------------------------------------------------------------------------------------

_FIELDS = 4


def asks_cluster(client: Client) -> Callable[[activity.Info], Awaitable[bool]]:
    """Return a function that asks the cluster whether the attempt before has ended because its heartbeats were lost."""

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
        """Return the deaths of workers before an attempt at a step; None if none is known."""
        if info.attempt == 1 or self._was_lost is None:
            return None
        before = _read(info.heartbeat_details)
        if await self._was_lost(info):
            return after_death(before, info.started_time.timestamp())
        return before

    @asynccontextmanager
    async def on_probation(self, heart: Heart | None, deaths: Deaths | None) -> AsyncIterator[None]:
        """Run a step in the block. A suspect runs alone among the suspects until its probation is over."""
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
        """Tell the cluster before the body begins. A heartbeat that waits to be sent says the same."""
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
    """Return the reason for which the run of such a step is parked, or cannot begin."""
    return (
        f"{POISON}: {deaths.own} workers have died while {what} was on probation, {deaths.marks} while it was at work."
    )


def _details(deaths: Deaths, *, on_trial: bool) -> tuple[Any, ...]:
    return deaths.marks, deaths.own, deaths.at, on_trial


def _read(details: Any) -> Deaths | None:
    """Return the deaths that the last heartbeat had; None if it had none."""
    if len(details) != _FIELDS:
        return None
    marks, own, at, on_trial = details
    return Deaths(marks, own, at, suspect=marks > 1, trial=1 if on_trial else None)
