"""Group commit: operations of many runs share one transaction.

One task writes for as long as the committer lives. It wakes at the end of the turn of the event loop in which something
was submitted, so that all runs of that turn share a group. Starting within `submit` itself would save 4 of the 10 us
that the way through here costs, but would send the first run of every turn alone: 200 transactions instead of 100 where
100 runs commit 100 times each.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from loom.store.errors import KeyUnavailable, PartlyApplied, StoreUnavailable
from loom.store.operations import Posted, Started

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    answer: asyncio.Future[Result]


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
        self._waiting: list[_Pending] = []
        self._wake: asyncio.Future[None] | None = None
        self._closed = False
        self.failing: str | None = None
        """Why the last transaction was not written, if the store was to blame; None if it was written. One that had
        nothing to write, such as a claim that finds no run, says nothing about a full disk."""
        self._task = self._loop.create_task(self._work(), name="loom committer")

    def submit(self, operation: Operation) -> asyncio.Future[Result]:
        """Write an operation. The future has its result once it is durable; cancelling the future changes nothing."""
        if self._closed:
            raise StoreUnavailable("The store is being closed. Nothing was written.")
        answer: asyncio.Future[Result] = self._loop.create_future()
        self._waiting.append(_Pending(operation, answer))
        self._wake_up()
        return answer

    async def close(self) -> None:
        """Accept nothing more, and wait until everything that was accepted is written or has failed."""
        self._closed = True
        self._wake_up()
        await asyncio.wait([self._task])

    def _wake_up(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():  # a task that is being cancelled has cancelled it
            wake.set_result(None)

    async def _work(self) -> None:
        group: list[_Pending] = []
        try:
            while True:
                if not self._waiting:
                    if self._closed:
                        return
                    self._wake = self._loop.create_future()
                    await self._wake
                    continue
                group = self._waiting[: self._max_group]
                del self._waiting[: self._max_group]
                await self._write(group)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            # The event loop ends: whether the group was written is not known, the rest was not.
            self._closed = True
            for entry in (*group, *self._waiting):
                entry.answer.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - everybody who waits gets it
            self._closed = True
            _fail((*group, *self._waiting), error)

    async def _write(self, group: list[_Pending]) -> None:
        results: Sequence[Result | BaseException]
        try:
            results = await self._apply(group)
        except PartlyApplied as error:
            results = error.outcomes
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait for it get it
            unknown = isinstance(error, StoreUnavailable) and error.outcome_unknown
            if len(group) == 1 or unknown:
                # What may be written already must not be written again.
                _fail(group, error)
            else:
                await self._write_singly(group)
            return
        for entry, result in zip(group, results, strict=True):
            if isinstance(result, BaseException):
                _fail([entry], result)
            elif not entry.answer.done():
                entry.answer.set_result(result)

    async def _apply(self, group: list[_Pending]) -> list[Result]:
        watch, began = self._watch, perf_counter()
        try:
            results = await self._store.apply([entry.operation for entry in group])
        except Exception as error:
            if watch is not None:
                watch.failed(len(group))
            if _blames_store(error):
                self.failing = str(error)
            raise
        if self.failing is not None and any(map(_has_written, results)):
            self.failing = None
        if watch is not None:
            watch.written(len(group), perf_counter() - began)
        return results

    async def _write_singly(self, group: list[_Pending]) -> None:
        in_a_row = 0
        for index, entry in enumerate(group):
            try:
                [result] = await self._apply([entry])
            except Exception as error:  # noqa: BLE001 - as above
                _fail([entry], error)
                in_a_row = in_a_row + 1 if isinstance(error, StoreUnavailable) else 0
                if in_a_row == _ENOUGH_FAILURES:
                    _fail(group[index + 1 :], error)
                    return
            else:
                in_a_row = 0
                if not entry.answer.done():
                    entry.answer.set_result(result)


def _blames_store(error: Exception) -> bool:
    """Say whether an error tells that the store writes nothing at present, whatever it is given."""
    if isinstance(error, PartlyApplied):
        return all(isinstance(outcome, StoreUnavailable) for outcome in error.outcomes)
    return isinstance(error, StoreUnavailable) and not isinstance(error, KeyUnavailable)


def _has_written(result: Result) -> bool:
    """Say whether an operation has changed anything."""
    if isinstance(result, Started):
        return result.created
    return result.outcome == "posted" if isinstance(result, Posted) else bool(result)


def _fail(entries: Iterable[_Pending], error: BaseException) -> None:
    for entry in entries:
        if not entry.answer.done():
            entry.answer.set_exception(error)
            # Its caller may be gone, and asyncio would log an error that was never retrieved.
            entry.answer.exception()
