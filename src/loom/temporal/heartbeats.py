"""Heartbeats of activities, whatever their bodies do: without them the cluster takes a worker for dead.

An activity beats on the event loop. If a body blocks that for long, a thread beats for all of them. May import
temporalio.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError
from temporalio.service import RPCError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = logging.getLogger("loom.temporal")

_BEATS = 3
"""How many heartbeats fit into the time after which the cluster takes a silent worker for dead."""
_LATE = 1.5
"""After so many intervals without a heartbeat the event loop is taken for blocked."""
_PATIENCE_S = 3600.0
"""An event loop that is blocked for so long will not go on: others shall have its work."""


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
        """Let the next attempt know something, from the next heartbeat on."""
        self.details = details
        activity.heartbeat(*details)

    @property
    def is_late(self) -> bool:
        """Whether the event loop has not let it beat, and may yet go on."""
        return _LATE * self.interval < monotonic() - self.last < _PATIENCE_S

    def stop(self) -> None:
        """The activity is over."""
        self._due.cancel()


class Heartbeats:
    """The hearts of all activities of a worker, and the thread that looks after them while there are any."""

    def __init__(self, beat: Callable[..., Awaitable[None]] | None = None) -> None:
        self._beat = beat
        """Beats for the activity of a task token, with details, on any event loop."""
        self._hearts: dict[Heart, None] = {}
        self._lock = threading.Lock()
        self._watched = False

    def begin(self) -> Heart | None:
        """Let the activity of this context beat, if the cluster waits for that."""
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
        """The activity is over."""
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
        """The hearts that there are. If there are none, nobody looks any more."""
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
