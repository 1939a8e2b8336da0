"""The adapter of runs that live in memory: an inbox, an alarm, and nothing to commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.adapter import TaskSet
    from loom.core.commands import CommandRunWorker
    from loom.core.records import Published
    from loom.core.run import Batch
    from loom.core.ticks import WorkflowTick

JOURNAL_TICKS = 1_000
"""Length up to which the journal of a run in memory is kept whole, in ticks, if nobody has asked for it."""
LAST_TICKS = 100
"""Ticks that are left of a longer one: the log tells from them why a run is stuck."""


class MemoryAdapter:
    """The way of one run to the outside, within one process.

    Workers, events from outside and the alarm wake the control loop through one future. So waiting needs no task.
    """

    __slots__ = (
        "_alarm",
        "_alarm_at",
        "_end_waiters",
        "_has_own_pull",
        "_has_tasks",
        "_inbox",
        "_is_recalled",
        "_journal",
        "_journal_start",
        "_loop",
        "_pull",
        "_readers",
        "_receiver",
        "get_now",
        "keeps_journal",
        "on_effect",
        "on_wake",
        "run_id",
        "stream",
        "waiter",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float], run_id: str) -> None:
        self._loop = loop
        self.run_id = run_id
        self.get_now = clock
        self._inbox: list[WorkflowTick] = []
        self._has_tasks = False
        self._has_own_pull = True
        self._is_recalled = False
        self.waiter: asyncio.Future[None] | None = None
        """What a blocked control loop waits for."""
        self.on_wake: Callable[[bool], None] | None = None
        """Called when `waiter` is done, with whether the control loop may go on at once; None if a task drives it."""
        self.on_effect: Callable[[WorkflowTick], None] | None = None
        """Takes what a step sends; None if no decorator is asked about that."""
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at: float | None = None
        self._pull: asyncio.Future[WorkflowTick] | None = None
        self._receiver: asyncio.Future[None] | None = None
        self._journal: list[WorkflowTick] = []
        self._journal_start = 0
        """How many ticks were dropped from the front of the journal."""
        self.keeps_journal = False
        """Whether a caller has asked for the journal, so that it is kept however long it gets."""
        self._readers: list[asyncio.Future[None]] | None = None
        self._end_waiters: list[asyncio.Future[None]] | None = None
        self.stream: list[Published] = []

    @property
    def journal(self) -> list[WorkflowTick]:
        """All committed ticks of the run, in order; of a long run that nobody has asked for them, the last ones."""
        return self._journal

    @property
    def journal_start(self) -> int:
        """Return how many ticks were dropped before the ones in `journal`."""
        return self._journal_start

    async def wait_receive(self) -> WorkflowTick:
        """See `InternalRunAdapter`."""
        while not self._inbox:
            # Not `_arrival`: a decorator that receives in its own way does so beside the control loop's own wait.
            self._receiver = self._loop.create_future()
            await self._receiver
        return self._inbox.pop(0)

    async def wait_for_next_task(self, tasks: TaskSet, until: float | None) -> list[WorkflowTick]:
        """See `InternalRunAdapter`."""
        if not self._has_tasks:
            self._has_tasks = True
            self._has_own_pull = tasks.pull == self.wait_receive
            tasks.on_completion(self.wake)
        while True:
            ticks = tasks.completed()
            if self._inbox or not self._has_own_pull:
                ticks += self._received(tasks)
            if ticks:
                return ticks
            if until is not None and self.get_now() >= until:
                return ticks
            await self._arrival(until)
            if self._is_recalled:
                self._is_recalled = False
                return []

    def recall(self) -> None:
        """End the wait of a blocked control loop at once, with no tick."""
        self._is_recalled = True
        self.wake(at_once=True)

    @property
    def undelivered(self) -> int:
        """Number of ticks from outside that the control loop has not taken."""
        return len(self._inbox)

    def take_inbox(self) -> list[WorkflowTick]:
        """Take the ticks from outside; none if a decorator receives in its own way."""
        if not self._has_own_pull:
            return []
        inbox, self._inbox = self._inbox, []
        return inbox

    def _received(self, tasks: TaskSet) -> list[WorkflowTick]:
        """What has come from outside. If a decorator receives in its own way, that is asked instead of the inbox."""
        if self._has_own_pull:
            return self.take_inbox()
        if self._pull is None:
            self._pull = asyncio.ensure_future(tasks.pull())
            self._pull.add_done_callback(lambda _done: self.wake())
        if not self._pull.done():
            return []
        pulled, self._pull = self._pull.result(), None
        return [pulled]

    def _arrival(self, until: float | None) -> asyncio.Future[None]:
        """A future that `wake` and the alarm set."""
        if until != self._alarm_at:
            self._set_alarm(until)
        self.waiter = waiter = self._loop.create_future()
        return waiter

    def _set_alarm(self, until: float | None) -> None:
        """Keep one alarm, and only for a time that has changed: most waits end long before it."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_at = until
        if until is not None:
            self._alarm = self._loop.call_later(max(0.0, until - self.get_now()), self._ring)

    def clock_changed(self) -> None:
        """Set the alarm anew: the clock was set, or the machine slept."""
        until = self._alarm_at
        if until is not None:
            self._set_alarm(until)

    def _ring(self) -> None:
        self._alarm = self._alarm_at = None
        self.wake()

    def wake(self, at_once: bool = False) -> None:
        """Let a blocked wait look again: soon, or at once if the caller has nothing left to do."""
        waiter = self.waiter
        if waiter is not None:
            self.waiter = None
            if not waiter.done():
                waiter.set_result(None)
                if self.on_wake is not None:
                    self.on_wake(at_once)

    async def commit(self, batch: Batch) -> None:
        """See `InternalRunAdapter`."""
        self.keep(batch)

    def keep(self, batch: Batch) -> None:
        """Keep the ticks. In memory nothing can fail."""
        self._journal += batch.ticks
        if len(self._journal) > JOURNAL_TICKS and not self.keeps_journal:
            # A journal is most of what a run in memory would keep of each step: about 0.9 KB.
            dropped = len(self._journal) - LAST_TICKS
            del self._journal[:dropped]
            self._journal_start += dropped
        if self._readers:
            self.wake_readers()

    def on_tick(self, tick: WorkflowTick) -> None:
        """See `InternalRunAdapter`."""

    def write_to_event_stream(self, cursor: int, event: Published) -> None:
        """See `InternalRunAdapter`."""
        del cursor  # the stream has no gaps: an event's place is its cursor
        self.stream.append(event)
        if self._readers:
            self.wake_readers()

    def wake_readers(self) -> None:
        """Wake all readers of the stream."""
        readers, self._readers = self._readers, None
        _wake_all(readers)

    async def news(self) -> None:
        """Block until the journal or the stream has grown, or the run has ended."""
        if self._readers is None:
            self._readers = []
        await self._join(self._readers)

    async def closed(self) -> None:
        """Block until the run has ended."""
        if self._end_waiters is None:
            self._end_waiters = []
        await self._join(self._end_waiters)

    async def _join(self, waiters: list[asyncio.Future[None]]) -> None:
        """Wait with others, and leave no trace if the wait is given up."""
        waiter = self._loop.create_future()
        waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter in waiters:
                waiters.remove(waiter)
            raise

    def mark_closed(self) -> None:
        """Wake all readers and all callers that wait for the end: the run has ended."""
        waiters, self._end_waiters = self._end_waiters, None
        self.on_wake = self.on_effect = None
        self.wake_readers()
        _wake_all(waiters)

    def send_event(self, tick: WorkflowTick) -> None:
        """See `InternalRunAdapter`."""
        if self.on_effect is not None and getattr(tick, "source", None) is not None:
            self.on_effect(tick)  # among the other effects of its step, and before the result
            return
        self._inbox.append(tick)
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)
        self.wake()

    def finalize_step(self, command: CommandRunWorker) -> None:
        """See `InternalRunAdapter`."""

    def close(self) -> None:
        """See `InternalRunAdapter`."""
        self._set_alarm(None)
        if self._pull is not None:
            self._pull.cancel()
            self._pull = None
        self.wake()
        self.wake_readers()


def _wake_all(waiters: list[asyncio.Future[None]] | None) -> None:
    """Set all of these futures."""
    for waiter in waiters or ():
        if not waiter.done():
            waiter.set_result(None)
