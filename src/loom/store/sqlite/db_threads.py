"""The threads that work on the file, so that the event loop never waits for a disk, and what a fork must wait for.

A caller on the event loop puts a request into a queue and gets a future; a thread answers with one call back to the
loop per transaction. One thread writes, a few read, one watches what other processes have written.

Every thread holds a lock while it is inside SQLite, and a fork of the process waits for all of them. A forked process
inherits SQLite's memory without its threads. It would have the locks of a transaction that no thread ends, so that it
could never write to the same file, and the mutexes of a thread that is gone, so that it would hang on opening one.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakSet

from loom.store.direct_future import DirectFuture
from loom.store.errors import StoreUnavailable
from loom.store.loop_time import hold_until
from loom.store.sqlite.connection import OpenedFile, explained, is_still_good
from loom.store.sqlite.transactions import transact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.sqlite.connection import Connection, WriteSession

T = TypeVar("T")


class _Request(NamedTuple):
    """Work for a thread, and the future of its caller. Without work, a request to stop."""

    work: Callable[[Any], object] | None
    answer: DirectFuture[Any]


class _Answer(NamedTuple):
    """The result or the error of a request."""

    future: DirectFuture[Any]
    result: object
    error: Exception | None = None

    def deliver(self) -> None:
        """Give it to the caller. Runs on the event loop."""
        if self.error is None:
            self.future.give(self.result)
        else:
            self.future.refuse(self.error)


class _DatabaseThreads:
    """Threads that take their requests from one queue."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._loop = loop
        self._hold_until = hold_until(loop)
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._threads = 0
        self._closed = False

    def submit(self, work: Callable[[Any], T]) -> DirectFuture[T]:
        """Queue work. The future gets its result; cancelling the future does not stop the work."""
        if self._closed:
            raise StoreUnavailable(f"The store {self._path} is closed.")
        answer: DirectFuture[T] = DirectFuture(loop=self._loop)
        if self._hold_until is not None:
            self._hold_until(answer)
        self._requests.put(_Request(work, answer))
        return answer

    async def stop(self) -> None:
        """Finish what was submitted and end the threads."""
        self._closed = True
        ends = [DirectFuture[None](loop=self._loop) for _ in range(self._threads)]
        for end in ends:
            if self._hold_until is not None:
                self._hold_until(end)
            self._requests.put(_Request(None, end))
        await asyncio.gather(*ends)

    def _begin(self, name: str, main: Callable[[], None]) -> None:
        self._threads += 1
        threading.Thread(target=main, name=name, daemon=True).start()

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The event loop was closed without closing the store: there is no caller left.
            if not self._loop.is_closed():
                raise


class WriterThread(_DatabaseThreads):
    """The one thread that writes. What is queued at the same time shares a transaction."""

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        open_session: Callable[[], WriteSession],
        on_notification: Callable[[list[str]], None],
    ) -> None:
        super().__init__(path, loop)
        self._open_session = open_session
        self._on_notification = on_notification
        self._session: WriteSession | None = None
        self._begin("loom sqlite writer", self._main)

    def _main(self) -> None:
        end: _Request | None = None
        in_sqlite = lock_against_forks()
        while end is None:
            batch = self._next_batch()
            if batch[-1].work is None:
                end = batch.pop()
            if batch:
                with in_sqlite:
                    done = self._transact(batch)
                self._call(self._deliver, *done)
                del done  # the next one may be long in coming
                if self._session is not None and self._session.is_swollen:
                    with in_sqlite:
                        self._drop_session()
            batch.clear()  # the next one may be long in coming
        with in_sqlite:
            self._drop_session()
        self._call(_Answer(end.answer, None).deliver)

    def _next_batch(self) -> list[_Request]:
        """Wait for a request, and take all that are queued with it. The request to stop is always the last."""
        batch = [self._requests.get()]
        while True:
            try:
                batch.append(self._requests.get_nowait())
            except queue.Empty:
                return batch

    def _transact(self, batch: Sequence[_Request]) -> tuple[list[_Answer], list[str]]:
        """Do requests in one transaction. Return the answers, and the runs to notify of."""
        works = [request.work for request in batch if request.work is not None]
        try:
            if self._session is None:
                self._session = self._open_session()
            results, notified = transact(self._session, works)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            answer = self._explain(error)
            if len(batch) == 1:
                return [_Answer(batch[0].answer, None, answer)], []
        else:
            return [_Answer(one.answer, result) for one, result in zip(batch, results, strict=True)], notified
        # Each alone, so that only those fail that must.
        parts = [self._transact([request]) for request in batch]
        return [answer for answers, _ in parts for answer in answers], [run for _, runs in parts for run in runs]

    def _explain(self, error: Exception) -> Exception:
        is_unknown = self._session is not None and self._session.outcome_unknown
        if not is_still_good(error):
            self._drop_session()
        return explained(error, self._path, outcome_unknown=is_unknown)

    def _drop_session(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            session.connection.close()

    def _deliver(self, answers: Sequence[_Answer], notified: list[str]) -> None:
        """Tell of changes, then answer the callers, which may go on within this call."""
        try:
            if notified:
                self._on_notification(notified)
        finally:
            self._answer_all(answers)

    def _answer_all(self, answers: Sequence[_Answer]) -> None:
        for index, answer in enumerate(answers):
            try:
                answer.deliver()
            except BaseException:
                # What ends the process in one caller does not keep the others from their answers.
                self._loop.call_soon(self._answer_all, answers[index + 1 :])
                raise


class ReaderPool(_DatabaseThreads):
    """A few threads that read, each with its own connection."""

    def __init__(
        self, path: str, loop: asyncio.AbstractEventLoop, open_connection: Callable[[], Connection], count: int
    ) -> None:
        super().__init__(path, loop)
        self._open_connection = open_connection
        for number in range(count):
            self._begin(f"loom sqlite reader {number + 1}", self._main)

    def _main(self) -> None:
        connection: Connection | None = None
        file = OpenedFile(self._path)
        in_sqlite = lock_against_forks()
        while True:
            request = self._requests.get()
            if request.work is None:
                break
            with in_sqlite:
                try:
                    if connection is not None and file.is_replaced():
                        connection.close()
                        connection = None
                    if connection is None:
                        connection, file = self._open_connection(), OpenedFile(self._path)
                    answer = _Answer(request.answer, request.work(connection))
                except Exception as error:  # noqa: BLE001 - the caller gets it
                    if connection is not None and not is_still_good(error):
                        connection.close()
                        connection = None
                    answer = _Answer(request.answer, None, explained(error, self._path))
            self._call(answer.deliver)
            del answer, request  # the next one may be long in coming
        if connection is not None:
            with in_sqlite:
                connection.close()
        self._call(_Answer(request.answer, None).deliver)


INTERVAL = 0.05
"""Seconds between two looks at the file."""

_FILE_VERSION = "PRAGMA data_version"
_LATEST_NOTIFICATION = "SELECT COALESCE(MAX(id), 0) FROM news"
_NEW_NOTIFICATIONS = """SELECT DISTINCT runs.run_id FROM news JOIN runs ON runs.id = news.run
WHERE news.id > ? AND news.id <= ? AND news.source <> ? ORDER BY news.id"""


class ChangeWatcher:
    """A thread that looks whether other processes have changed the file, and notifies of the runs that they changed.

    A look at an unchanged file reads one number in memory. A look that fails is repeated with a new connection; what
    it would have seen is seen then.
    """

    def __init__(
        self, path: str, open_connection: Callable[[], Connection], source: int, tell: Callable[[list[str]], None]
    ) -> None:
        self._path = path
        self._open_connection = open_connection
        self._source = source
        self._tell = tell
        self._stopped = threading.Event()
        self._ended: Callable[[], object] | None = None
        self._seen = 0
        self._version = -1
        self._thread = threading.Thread(target=self._main, name="loom sqlite news", daemon=True)

    def start(self, connection: Connection) -> None:
        """Begin to watch what is written from now on."""
        self._seen = connection.query(_LATEST_NOTIFICATION)[0][0]
        self._thread.start()

    def stop(self, ended: Callable[[], object]) -> None:
        """Stop soon. The thread calls `ended` as its last act."""
        self._ended = ended
        self._stopped.set()

    def _main(self) -> None:
        connection: Connection | None = None
        file = OpenedFile(self._path)
        in_sqlite = lock_against_forks()
        while not self._stopped.wait(INTERVAL):
            with in_sqlite:
                try:
                    if connection is None:
                        connection, file = self._open_connection(), OpenedFile(self._path)
                        self._version = -1
                    file.check()
                    self._look(connection)
                except sqlite3.Error:
                    # Readers and writers of the store meet the same error, and report it to their callers.
                    if connection is not None:
                        connection.close()
                        connection = None
        if connection is not None:
            with in_sqlite:
                connection.close()
        if self._ended is not None:
            self._ended()

    def _look(self, connection: Connection) -> None:
        version = connection.query(_FILE_VERSION)[0][0]
        if version == self._version:
            return
        latest = connection.query(_LATEST_NOTIFICATION)[0][0]
        found = connection.query(_NEW_NOTIFICATIONS, (self._seen, latest, self._source)) if latest > self._seen else []
        self._seen = latest
        self._version = version
        if found:
            self._tell([run_id for (run_id,) in found])


_PATIENCE_S = 5.0
"""Seconds that a fork waits for SQLite. Work that takes longer waits for a lock of another process itself."""


class _Forks:
    """The locks that every fork of this process waits for."""

    def __init__(self) -> None:
        self._locks: WeakSet[threading.Lock] = WeakSet()
        self._changing = threading.Lock()
        self._held: list[threading.Lock] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._hold, after_in_parent=self._let_go, after_in_child=self._let_go)

    def new_lock(self) -> threading.Lock:
        """Make a lock. Forks wait for it until the last reference to it is gone."""
        lock = threading.Lock()
        with self._changing:
            self._locks.add(lock)
        return lock

    def _hold(self) -> None:
        self._changing.acquire()
        deadline = time.monotonic() + _PATIENCE_S
        for lock in list(self._locks):
            if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
                self._held.append(lock)

    def _let_go(self) -> None:
        for lock in self._held:
            lock.release()
        self._held = []
        self._changing.release()


_forks = _Forks()


def lock_against_forks() -> threading.Lock:
    """Make a lock for a thread that uses SQLite. While the thread holds it, no process is forked."""
    return _forks.new_lock()
