"""A stored run as its handlers see it, in any process: everything is read from the store."""

from __future__ import annotations

import asyncio
import logging
import weakref
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from loom.core.records import CancelledReport, EventRecord, FailedReport, TimedOutReport
from loom.core.state import BrokerState
from loom.effects.event_codec import exception_of, published_event
from loom.runtime.logs import about
from loom.runtime.streams import is_internal, is_last
from loom.steps.errors import ContextStateError, WorkflowCancelledByUser, WorkflowRuntimeError, WorkflowTimeoutError
from loom.steps.events import StopEvent
from loom.store.errors import RunFinished, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

    from loom.core.records import Published
    from loom.effects.stored_codec import StoredEventCodec
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.steps.events import Event
    from loom.steps.ports import Definition
    from loom.steps.state_store import InMemoryStateStore
    from loom.store.records import RunRow

_log = logging.getLogger("loom.durable")

_CHUNKS = 64
_END_OF_FLOW = {"Failed": "failed", "TimedOut": "failed", "Cancelled": "cancelled"}
"""A flow that did not succeed has a result nevertheless."""


class Handles:
    """The handles that programs hold in this process, by run: they are told when their run ends here."""

    def __init__(self) -> None:
        self._handles: dict[str, WeakSet[RunHandle]] = {}

    def __len__(self) -> int:
        return len(self._handles)

    def __iter__(self) -> Iterator[str]:
        return iter(self._handles)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._handles

    def keep(self, handle: RunHandle) -> None:
        """Know a handle for as long as a program holds it."""
        self._handles.setdefault(handle.run_id, WeakSet()).add(handle)
        weakref.finalize(handle, self._drop, handle.run_id)

    def saw(self, row: RunRow) -> None:
        """Let the handles of a run know its row, which was read or written just now."""
        for handle in self._handles.get(row.run_id, ()):
            handle.saw(row)

    def over(self, run_id: str, ending: StopEvent | BaseException) -> None:
        """Tell the handles of a run that it has ended here."""
        for handle in self._handles.get(run_id, ()):
            handle.over(ending)

    def _drop(self, run_id: str) -> None:
        # The set may still count the one that goes: only going through it tells who is left.
        if not list(self._handles.get(run_id, ())):
            self._handles.pop(run_id, None)


class RunHandle:
    """What `WorkflowHandler` and `Context` know of a run that lives in a store."""

    def __init__(
        self, runtime: WorkerRuntime, run_id: str, definition: Definition, codec: StoredEventCodec, row: RunRow | None
    ) -> None:
        self.run_id = run_id
        self.definition = definition
        self._runtime = runtime
        self._codec = codec
        self._row = row
        """The newest row of the run that this process has seen."""
        self._ending: StopEvent | BaseException | None = None
        self._starting: asyncio.Future[Any] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def saw(self, row: RunRow) -> None:
        """Note a row that this process has read or written. Ignore a row older than the newest one seen."""
        if self._row is not None and _age(row) < _age(self._row):
            return
        if row.head.status == "running":
            self._ending = None  # a failed run was retried
        self._row = row

    def over(self, ending: StopEvent | BaseException) -> None:
        """The run has ended here."""
        self._ending = ending

    def begin_with(self, start: Coroutine[Any, Any, Any]) -> None:
        """The run is not stored yet: everything else waits for that."""
        self._starting = asyncio.ensure_future(start)

    async def _started(self) -> None:
        if self._starting is not None:
            await asyncio.shield(self._starting)
            self._starting = None

    # -- what it is -----------------------------------------------------------------------------------------------

    @property
    def state(self) -> BrokerState:
        """The run as data, if it is in memory here; a released run has no active steps."""
        active = self._runtime.active_run(self.run_id)
        return active.state if active is not None else BrokerState(run_id=self.run_id)

    @property
    def is_idle(self) -> bool:
        """Whether only input from outside can move the run: from memory, else from the newest row seen here."""
        active = self._runtime.active_run(self.run_id)
        if active is not None:
            return active.is_idle
        row = self._row
        return row is not None and row.head.status == "running" and row.head.idle_since is not None

    @property
    def status(self) -> str:
        """Tell the status of the run: by its end, by its state in memory, or by the newest row that was read here."""
        if isinstance(self._ending, WorkflowCancelledByUser):
            return "cancelled"
        if isinstance(self._ending, BaseException):
            return "failed"
        active = self._runtime.active_run(self.run_id)
        if active is not None:
            return active.status
        if self._ending is None:
            return self._row.head.status if self._row is not None else "running"
        from loom.effects.flow_result import FlowResult  # brings with it what only flows need

        ended = self._ending.result
        return _END_OF_FLOW.get(ended.status, "completed") if isinstance(ended, FlowResult) else "completed"

    def state_to_save(self) -> BrokerState:
        """Stored runs need no saving."""
        raise ContextStateError("This run lives in a store: take it elsewhere with runtime.export_run(run_id).")

    @property
    def store(self) -> InMemoryStateStore[Any]:
        """The run's store while the run is in memory here."""
        active = self._runtime.active_run(self.run_id)
        if active is None:
            raise ContextStateError(
                f"Run {self.run_id} is not in memory here: read its store with await runtime.read_store(run_id)."
            )
        return active.store

    @property
    def is_done(self) -> bool:
        """Whether the run has ended: from memory, else from the newest row that was seen here."""
        if self._runtime.active_run(self.run_id) is not None:
            return False  # until its end is stored
        return self._ending is not None or (self._row is not None and self._row.head.status != "running")

    def now(self) -> float:
        """The runtime's time."""
        return self._runtime.now()

    # -- what can be asked of it ----------------------------------------------------------------------------------

    def send(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run, soon: a failure goes to the log. `await handler.send_event` tells it."""
        self._soon(self.send_durably(event, step, waiter_id))

    async def send_durably(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run and return once it is stored."""
        await self._started()
        await self._runtime.send_event(self.run_id, event, step=step, waiter_id=waiter_id)

    def request_cancel(self) -> None:
        """Ask the run to stop, without waiting."""
        self._soon(self._cancel())

    async def _cancel(self, force: bool = False) -> None:
        await self._started()
        with suppress(RunFinished):  # it has what it was asked for
            await self._runtime.cancel(self.run_id, force=force)

    async def cancel(self, timeout_s: float | None, force: bool = False) -> None:
        """Ask the run to stop and wait for its end, at most so long."""
        await self._cancel(force)
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_for_end()
        except TimeoutError:
            message = "Run %s has not ended %s s after it was cancelled."
            _log.warning(message, self.run_id, timeout_s, extra=about(self.run_id))

    def _soon(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._logged(coroutine))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _logged(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except (StoreError, WorkflowRuntimeError) as error:
            _log.error("Run %s: %s", self.run_id, error, extra=about(self.run_id))

    async def outcome(self) -> StopEvent:
        """The event that the run ended with, or the exception that it failed with."""
        ending = await self._wait_for_end()
        if isinstance(ending, BaseException):
            raise ending
        return ending

    def ending(self) -> StopEvent | BaseException | None:
        """The same, without waiting: None while the run goes on."""
        return self._ending

    async def _wait_for_end(self) -> StopEvent | BaseException:
        await self._started()
        if self._runtime.active_run(self.run_id) is not None:
            self._ending = None  # it has ended before, and was retried
        waits = 0
        while self._ending is None:
            news = self._runtime.endings.subscribe(self.run_id)
            try:
                if not await self._has_ended():
                    await self._runtime.news(news, waits)
                    waits += 1
            finally:
                self._runtime.endings.forget(self.run_id, news)
        return self._ending

    async def _has_ended(self) -> bool:
        """Whether the run is over, by what is stored. One that is in memory here says so by itself."""
        if self._runtime.active_run(self.run_id) is not None:
            return False
        row = await self._runtime.row(self.run_id)
        if row.head.status != "running":
            self._ending = await self._read_ending(row)
        return self._ending is not None

    async def _read_ending(self, row: RunRow) -> StopEvent | BaseException:
        chunks = await self._runtime.store.stream(self.run_id, max(0, row.head.events - 1), 1)
        published = (await self._runtime.decoded.decode(self.run_id, chunks[0])).published[-1] if chunks else None
        return ending_of(published, row, self._codec)

    async def read_stream(self, after: int, internal: bool) -> AsyncIterator[tuple[int, Event]]:
        """The stream from the first event behind a cursor, until it ends."""
        await self._started()
        position, waits = after + 1, 0
        while True:
            news = self._runtime.watchers.subscribe(self.run_id)
            try:
                row = await self._runtime.row(self.run_id)
                chunks = await self._runtime.store.stream(self.run_id, position, _CHUNKS)
                if not chunks:
                    if row.head.status != "running" and position >= row.head.events:
                        return
                    await self._runtime.news(news, waits)
                    waits += 1
                    continue
            finally:
                self._runtime.watchers.forget(self.run_id, news)
            waits = 0
            for chunk in chunks:
                published = (await self._runtime.decoded.decode(self.run_id, chunk)).published
                position = max(position, chunk.first_cursor)  # what lies before it may have been pruned
                for entry in islice(published, position - chunk.first_cursor, None):
                    if internal or not is_internal(entry):
                        yield position, published_event(entry, self._codec)
                    if is_last(entry):
                        return
                    position += 1


def _age(row: RunRow) -> tuple[float, int]:
    """Give what grows with every change of a run, and with another run of the same id."""
    return row.created_at, row.head.ticks


def ending_of(published: Published | None, row: RunRow, codec: StoredEventCodec) -> StopEvent | BaseException:
    """Return what a caller that awaits a run gets, from the last event of its stream."""
    match published:
        case EventRecord():
            event: Any = codec.event(published)
            if isinstance(event, StopEvent):
                return event
        case FailedReport():
            return exception_of(published.failure)
        case TimedOutReport():
            return WorkflowTimeoutError(row.head.error or "Operation timed out.")
        case CancelledReport():
            return WorkflowCancelledByUser()
        case _:
            pass
    if row.head.status == "cancelled":
        return WorkflowCancelledByUser()  # it could not be read, so its stream was left as it was
    return WorkflowRuntimeError(f"Run {row.run_id} has ended ({row.head.status}), but its stream does not say how.")
