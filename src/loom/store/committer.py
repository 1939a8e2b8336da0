"""Group commit: operations of many runs share one transaction.

A group is written at the end of the turn of the event loop in which something was submitted, so that all runs of that
turn share it. Starting within `submit` itself would save that turn, but would send the first run of every turn alone:
200 transactions instead of 100 where 100 runs commit 100 times each.

No task is needed for a commit: the store calls back, and so does the committer (`DirectFuture`).
"""

from __future__ import annotations

import asyncio
import contextvars
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from loom.store.direct_future import DirectFuture, call_when_done
from loom.store.errors import KeyUnavailable, PartlyApplied, PayloadUnavailable, StoreUnavailable
from loom.store.operations import Posted, Started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.store.operations import Operation, Result
    from loom.store.ports import RunWrites

MAX_GROUP = 512
"""More operations than this in one transaction make it longer, not cheaper."""

_ENOUGH_FAILURES = 2
"""This many operations in a row that fail alone tell that the store is gone, not that they are at fault."""


class CommitWatch(Protocol):
    """An observer that counts transactions."""

    def written(self, operations: int, seconds: float) -> None:
        """Count a transaction that is durable."""
        ...

    def failed(self, operations: int) -> None:
        """Count a transaction that was not written, or whose outcome is unknown."""
        ...


class _Pending(NamedTuple):
    operation: Operation
    answer: DirectFuture[Result]


class Committer:
    """Writes what is submitted, in its order. While one group is being written, the next one gathers.

    If a group fails, its operations are tried again one by one, so that only those fail that cannot be written. If it
    is not known whether it was written, all of them fail. A store without transactions says what became of each. The
    committer belongs to the event loop on which it was made.
    """

    def __init__(self, store: RunWrites, *, max_group: int = MAX_GROUP, watch: CommitWatch | None = None) -> None:
        self._store = store
        self._watch = watch
        self._max_group = max_group
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        """What groups are written in: a store must not see the context of a body that has submitted."""
        self._waiting: list[_Pending] = []
        self._group: list[_Pending] = []
        """The group that is being written."""
        self._began_at = 0.0
        self._is_due = False
        """Whether a group will be written at the end of this turn of the event loop."""
        self._closed = False
        self._all_written: asyncio.Future[None] = self._loop.create_future()
        """Done when the committer is closed and has nothing left to write."""
        self.failing: str | None = None
        """Why the last transaction was not written, if the store was to blame; None if it was written. One that had
        nothing to write, such as a claim that finds no run, says nothing about a full disk."""
        self._task = self._loop.create_task(self._live(), name="loom committer")

    def submit(self, operation: Operation) -> DirectFuture[Result]:
        """Write an operation. The future has its result once it is durable; cancelling the future changes nothing."""
        if self._closed:
            raise StoreUnavailable("The store is being closed. Nothing was written.")
        answer: DirectFuture[Result] = DirectFuture(loop=self._loop)
        self._waiting.append(_Pending(operation, answer))
        if not self._group and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._write_next, context=self._context)
        return answer

    async def close(self) -> None:
        """Accept nothing more, and wait until everything that was accepted is written or has failed."""
        self._closed = True
        self._end_if_idle()
        await asyncio.wait([self._task])

    async def _live(self) -> None:
        """Wait for the end. If the event loop ends before, every caller learns that no answer will come."""
        try:
            await self._all_written
        except asyncio.CancelledError:
            # Whether the group was written is not known, the rest was not.
            self._closed = True
            for entry in (*self._group, *self._waiting):
                entry.answer.cancel()
            self._waiting.clear()
            raise

    def _end_if_idle(self) -> None:
        if self._closed and not (self._group or self._waiting or self._all_written.done()):
            self._all_written.set_result(None)

    def _write_next(self) -> None:
        """Begin to write what has gathered, if the group before it is done."""
        self._is_due = False
        if self._group or not self._waiting:
            return
        self._group = self._waiting[: self._max_group]
        del self._waiting[: self._max_group]
        self._began_at = perf_counter()
        try:
            written = self._store.apply([entry.operation for entry in self._group])
        except Exception as error:  # noqa: BLE001 - the callers get it
            self._failed(error)
            return
        call_when_done(asyncio.ensure_future(written), self._applied)

    def _applied(self, applied: asyncio.Future[list[Result]]) -> None:
        """Answer the callers of a group. The next group is on its way before they go on."""
        if applied.cancelled():
            self._stop(asyncio.CancelledError())
        elif (error := applied.exception()) is not None:
            self._failed(error)
        else:
            self._note_written(len(self._group), applied.result())
            self._answer(applied.result())

    def _failed(self, error: BaseException) -> None:
        """Deal with a group that was not written as a whole."""
        if not isinstance(error, Exception):
            self._stop(error)
            return
        self._note_failed(len(self._group), error)
        if isinstance(error, PartlyApplied):
            self._answer(error.outcomes)
        elif len(self._group) == 1 or (isinstance(error, StoreUnavailable) and error.outcome_unknown):
            # What may be written already must not be written again.
            self._answer([error] * len(self._group))
        else:
            singly = self._loop.create_task(self._write_singly(self._group), context=self._context)
            singly.add_done_callback(self._wrote_singly)

    def _answer(self, results: Sequence[Result | BaseException]) -> None:
        group, self._group = self._group, []
        self._write_next()
        try:
            self._tell(list(zip(group, results, strict=True)))
        finally:
            self._end_if_idle()

    def _tell(self, outcomes: Sequence[tuple[_Pending, Result | BaseException]]) -> None:
        """Let callers go on. What ends the process in one of them does not keep the others from their answers."""
        for index, (entry, result) in enumerate(outcomes):
            try:
                if isinstance(result, BaseException):
                    entry.answer.refuse(result)
                else:
                    entry.answer.give(result)
            except BaseException:
                self._loop.call_soon(self._tell, outcomes[index + 1 :], context=self._context)
                raise

    def _stop(self, error: BaseException) -> None:
        """Write nothing any more: the event loop ends, or the process does."""
        self._closed = True
        left, self._group, self._waiting = (*self._group, *self._waiting), [], []
        try:
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
                for entry in left:
                    entry.answer.cancel()
            else:
                self._tell([(entry, error) for entry in left])
        finally:
            self._end_if_idle()

    def _note_written(self, operations: int, results: Sequence[Result]) -> None:
        if self.failing is not None and any(map(_has_written, results)):
            self.failing = None
        if self._watch is not None:
            self._watch.written(operations, perf_counter() - self._began_at)

    def _note_failed(self, operations: int, error: Exception) -> None:
        if self._watch is not None:
            self._watch.failed(operations)
        if _blames_store(error):
            self.failing = str(error)

    async def _write_singly(self, group: Sequence[_Pending]) -> None:
        """Try the operations of a group one by one, and answer each as soon as it is known what became of it."""
        in_a_row = 0
        for index, entry in enumerate(group):
            self._began_at = perf_counter()
            try:
                [result] = await self._store.apply([entry.operation])
            except Exception as error:  # noqa: BLE001 - its caller gets it
                self._note_failed(1, error)
                self._tell([(entry, error)])
                in_a_row = in_a_row + 1 if _blames_store(error) else 0
                if in_a_row == _ENOUGH_FAILURES:
                    self._tell([(other, error) for other in group[index + 1 :]])
                    return
            else:
                self._note_written(1, [result])
                self._tell([(entry, result)])
                in_a_row = 0

    def _wrote_singly(self, singly: asyncio.Future[None]) -> None:
        if singly.cancelled():
            self._stop(asyncio.CancelledError())
        elif (error := singly.exception()) is not None:
            self._stop(error)
        else:
            self._group = []
            self._write_next()
            self._end_if_idle()


def _blames_store(error: Exception) -> bool:
    """Say whether an error tells that the store writes nothing at present, whatever it is given."""
    if isinstance(error, PartlyApplied):
        return all(isinstance(outcome, StoreUnavailable) for outcome in error.outcomes)
    return isinstance(error, StoreUnavailable) and not isinstance(error, KeyUnavailable | PayloadUnavailable)


def _has_written(result: Result) -> bool:
    """Say whether an operation has changed anything."""
    if isinstance(result, Started):
        return result.created
    return result.outcome == "posted" if isinstance(result, Posted) else bool(result)
