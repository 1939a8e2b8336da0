"""The threads that work on the database, so that the event loop never waits for a disk.

A caller on the event loop puts a request into a queue and has a future; the thread answers with one call back to the
loop per transaction.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from loom.store.errors import StoreUnavailable
from loom.store.loop_time import hold_until
from loom.store.sqlite.connection import Place, explained, is_still_good
from loom.store.sqlite.forks import lock_against_forks
from loom.store.sqlite.transactions import transact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.sqlite.connection import Connection
    from loom.store.sqlite.session import Session

T = TypeVar("T")


class Request(NamedTuple):
    """Something to do with a connection, and who waits for it. Without work: to stop."""

    work: Callable[[Any], object] | None
    answer: asyncio.Future[Any]


class Answer(NamedTuple):
    """What came of a request."""

    future: asyncio.Future[Any]
    result: object
    error: Exception | None = None

    def deliver(self) -> None:
        """Tell who waits, if they still do. Runs on the event loop."""
        if self.future.done():
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class Lanes:
    """Threads that take their requests from one queue."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self._path = path
        self._loop = loop
        self._hold_until = hold_until(loop)
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._threads = 0
        self._closed = False

    def submit(self, work: Callable[[Any], T]) -> asyncio.Future[T]:
        """Have something done. The future has its result; cancelling it does not stop the work."""
        answer: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            raise StoreUnavailable(f"The store {self._path} is closed.")
        if self._hold_until is not None:
            self._hold_until(answer)
        self._requests.put(Request(work, answer))
        return answer

    async def stop(self) -> None:
        """Finish what was submitted and end the threads."""
        self._closed = True
        ends = [self._loop.create_future() for _ in range(self._threads)]
        for end in ends:
            if self._hold_until is not None:
                self._hold_until(end)
            self._requests.put(Request(None, end))
        await asyncio.gather(*ends)

    def _begin(self, name: str, main: Callable[[], None]) -> None:
        self._threads += 1
        threading.Thread(target=main, name=name, daemon=True).start()

    def _call(self, callback: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The event loop was closed without closing the store: nobody is left to be told.
            if not self._loop.is_closed():
                raise


class Writer(Lanes):
    """The one thread that writes. What is queued at the same time shares a transaction."""

    def __init__(
        self,
        path: str,
        loop: asyncio.AbstractEventLoop,
        open_session: Callable[[], Session],
        on_news: Callable[[list[str]], None],
    ) -> None:
        super().__init__(path, loop)
        self._open_session = open_session
        self._on_news = on_news
        self._session: Session | None = None
        self._begin("loom sqlite writer", self._main)

    def _main(self) -> None:
        end: Request | None = None
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
        self._call(Answer(end.answer, None).deliver)

    def _next_batch(self) -> list[Request]:
        """Wait for a request, and take those that came with it. The request to stop is always the last."""
        batch = [self._requests.get()]
        while True:
            try:
                batch.append(self._requests.get_nowait())
            except queue.Empty:
                return batch

    def _transact(self, batch: Sequence[Request]) -> tuple[list[Answer], list[str]]:
        """The answers, and the runs of which there are news."""
        works = [request.work for request in batch if request.work is not None]
        try:
            if self._session is None:
                self._session = self._open_session()
            results, news = transact(self._session, works)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            answer = self._explain(error)
            if len(batch) == 1:
                return [Answer(batch[0].answer, None, answer)], []
        else:
            return [Answer(one.answer, result) for one, result in zip(batch, results, strict=True)], news
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

    def _deliver(self, answers: Sequence[Answer], news: list[str]) -> None:
        for answer in answers:
            answer.deliver()
        if news:
            self._on_news(news)


class Readers(Lanes):
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
        place = Place(self._path)
        in_sqlite = lock_against_forks()
        while True:
            request = self._requests.get()
            if request.work is None:
                break
            with in_sqlite:
                try:
                    if connection is not None and place.is_left():
                        connection.close()
                        connection = None
                    if connection is None:
                        connection, place = self._open_connection(), Place(self._path)
                    answer = Answer(request.answer, request.work(connection))
                except Exception as error:  # noqa: BLE001 - the caller gets it
                    if connection is not None and not is_still_good(error):
                        connection.close()
                        connection = None
                    answer = Answer(request.answer, None, explained(error, self._path))
            self._call(answer.deliver)
            del answer, request  # the next one may be long in coming
        if connection is not None:
            with in_sqlite:
                connection.close()
        self._call(Answer(request.answer, None).deliver)
