"""The changes of runs for many readers in one process: one look at the store for all of them.

While there are readers, a task looks at the store again and again. What it finds is rendered once for all readers that
see it alike (a view), and coalesced for those that take it slowly. Commits of this process make it look sooner. Without
readers nothing looks. See ADR 0066.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict, deque
from contextvars import Context
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from loom.runtime.durable.change_batch import FeedBatch, FeedItem, FeedPlace, FeedView, ViewKey, read_place
from loom.runtime.durable.run_counts import CountedWorkflows
from loom.runtime.render import listed_run, next_timers
from loom.store.errors import StoreError
from loom.store.loop_time import until_look

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from loom.api.changes import RunChange
    from loom.api.counts import Counts
    from loom.api.runs import Run
    from loom.runtime.durable.run_client import RunClient
    from loom.store.changes import ChangedRun
    from loom.store.records import RunRow

_log = logging.getLogger("loom.durable")

SPACING_S = 0.1
"""Seconds between two looks at least, and longer where they take long."""
POLL_S = 0.15
"""Seconds after which the store is looked at without news: other processes may have written to it."""
_SHARE = 20
"""Looks take no more than one part in this many of the time."""
_MEASURED = 8
"""The shortest of the last looks tells what a look costs: others wait for a busy machine too."""
_MOST_KNOWN, _MOST_KNOWN_BYTES = 10_000, 16 * 1024 * 1024


class _Known(NamedTuple):
    """A run as the feed has seen it last."""

    version: int
    workflow: str
    row: RunRow | None
    """None: it was deleted."""


class _KnownRuns:
    """The runs that changed last, with the versions of the feed in which they did; bounded."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, _Known] = OrderedDict()
        """In the order of their last changes."""
        self._bytes = 0
        self.complete_after = 0
        """All changes of later versions are known."""

    def peek(self, run_id: str) -> _Known | None:
        """Return a run; None if it is not known."""
        return self._runs.get(run_id)

    def put(self, run_id: str, known: _Known) -> None:
        """Note a run that has changed."""
        self._drop(run_id)
        self._runs[run_id] = known
        self._bytes += _weight(known.row)
        while len(self._runs) > _MOST_KNOWN or self._bytes > _MOST_KNOWN_BYTES:
            oldest = next(iter(self._runs))
            self.complete_after = max(self.complete_after, self._runs[oldest].version)
            self._drop(oldest)

    def _drop(self, run_id: str) -> None:
        known = self._runs.pop(run_id, None)
        if known is not None:
            self._bytes -= _weight(known.row)

    def forget(self, version: int) -> None:
        """Forget all: up to a version, changes were missed."""
        self._runs.clear()
        self._bytes, self.complete_after = 0, version

    def since(self, version: int) -> list[tuple[str, _Known]] | None:
        """Return the runs that changed after a version, in order; None if not all are known any more."""
        if version < self.complete_after:
            return None
        found: list[tuple[str, _Known]] = []
        for run_id, known in reversed(self._runs.items()):
            if known.version <= version:
                break
            found.append((run_id, known))
        return found[::-1]


def _weight(row: RunRow | None) -> int:
    return len(row.head.waiters) if row is not None else 0


class FeedReader:
    """One reader of a feed. `next` gives what there is to tell; while the reader is away, it is coalesced."""

    def __init__(self, feed: ChangeFeed, view: _Readers) -> None:
        self._feed = feed
        self._view = view
        self._batch: FeedBatch | None = None
        self._stirred = asyncio.Event()
        self._error: StoreError | None = None

    @property
    def cursor(self) -> str:
        """The cursor that holds while there is nothing to tell."""
        return self._batch.before if self._batch is not None else self._feed.cursor

    def begin(self, first: FeedBatch) -> None:
        """Put what is to be told first before what was offered since."""
        self._batch = first if self._batch is None else first.followed_by(self._batch)
        self._stirred.set()

    def offer(self, batch: FeedBatch) -> None:
        """Add what is to be told."""
        self._batch = batch if self._batch is None else self._batch.followed_by(batch)
        self._stirred.set()

    def fail(self, error: StoreError) -> None:
        """Tell that the feed has ended."""
        self._error = error
        self._stirred.set()

    async def next(self, patience: float | None = None) -> FeedBatch | None:
        """Wait for the next batch; None after `patience` seconds without one. `StoreError` if the store has failed."""
        if not self._stirred.is_set():
            try:
                async with asyncio.timeout(patience):
                    await self._stirred.wait()
            except TimeoutError:
                return None
        if self._error is not None:
            raise self._error
        self._stirred.clear()
        batch, self._batch = self._batch, None
        return batch

    def close(self) -> None:
        """Take no more."""
        self._feed.leave(self, self._view)


class _Readers:
    """The readers of one view."""

    def __init__(self, view: FeedView) -> None:
        self.view = view
        self.readers: set[FeedReader] = set()
        self.counts: Counts | None = None
        """As they were told last."""

    def offer(self, batch: FeedBatch) -> None:
        for reader in self.readers:
            reader.offer(batch)


class ChangeFeed:
    """The changes of the runs of one runtime."""

    def __init__(self, runtime: RunClient) -> None:
        self._runtime = runtime
        self.counted = CountedWorkflows(runtime.store, runtime.now)
        self._views: dict[ViewKey, _Readers] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._place = FeedPlace("", 0, "")
        self._known = _KnownRuns()
        self._news = asyncio.Event()
        self._uncounted = asyncio.Event()
        self._marked: asyncio.Future[None] | None = None
        """Done when the first look has marked the place from which all changes are seen."""

    @property
    def cursor(self) -> str:
        """The cursor after all that was found so far."""
        return self._place.written()

    # -- readers ------------------------------------------------------------------------------------------------------

    async def changes(self, view: FeedView, after: str | None = None) -> AsyncGenerator[RunChange]:
        """Yield what one reader is told, for ever."""
        reader = await self.open(view, after)
        try:
            while True:
                batch = await reader.next()
                for change in batch.told() if batch is not None else ():
                    yield change
        finally:
            reader.close()

    async def open(self, view: FeedView, after: str | None = None) -> FeedReader:
        """Let a reader in: what has changed after a cursor, else from now on. Its first batch has the counts."""
        readers = self._views.setdefault(view.key(), _Readers(view))
        reader = FeedReader(self, readers)
        readers.readers.add(reader)
        try:
            self._begin()
            assert self._marked is not None
            await asyncio.shield(self._marked)
            begin = self._place.written()
            counts = await self.counted.get(view.counted)
            self._uncounted.set()  # these may be a little old
            first = await self._first_batch(view, after, begin)
        except BaseException:
            reader.close()
            raise
        reader.begin(FeedBatch(first.before, first.cursor, first.items, counts, first.is_reset))
        readers.counts = readers.counts or counts
        return reader

    async def _first_batch(self, view: FeedView, after: str | None, begin: str) -> FeedBatch:
        if after is None:
            return FeedBatch(begin, begin)
        place = read_place(after)
        if place is None:
            return FeedBatch(begin, begin, is_reset=True)
        known = self._known.since(place.version) if place.epoch == self._place.epoch else None
        if known is not None:
            changed = [(run_id, each.workflow, each.row) for run_id, each in known]
        else:
            look = await self._runtime.store.change_reader(place.position).look()
            if not look.is_whole:
                return FeedBatch(begin, begin, is_reset=True)
            changed = [(each.run_id, each.workflow, each.row) for each in look.changed]
        items: dict[str, FeedItem] = {}
        fitting = [row for _, _, row in changed if row is not None and view.fits(row)]
        timers = await next_timers(self._runtime, fitting)
        for run_id, workflow, row in changed:
            if view.fits(row):
                assert row is not None
                items[run_id] = await self._item(row, view, timers)
            elif view.may_show(run_id, workflow):
                items[run_id] = FeedItem(run_id, None)
        return FeedBatch(after, begin, items)

    def leave(self, reader: FeedReader, readers: _Readers) -> None:
        """Let a reader go; with the last one the looks end."""
        readers.readers.discard(reader)
        if not readers.readers:
            key = readers.view.key()
            if self._views.get(key) is readers:
                del self._views[key]
        if not self._views:
            self._end()

    def _begin(self) -> None:
        if self._tasks:
            return
        loop = asyncio.get_running_loop()
        self._marked = loop.create_future()
        self._marked.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._place = FeedPlace(secrets.token_hex(4), 0, "")
        self._known.forget(0)
        self._runtime.watchers.on_any = self._news.set
        # In a context of their own: that of a request belongs to the request.
        self._tasks = [
            loop.create_task(self._follow(), name="loom changes", context=Context()),
            loop.create_task(self._follow_counts(), name="loom counts", context=Context()),
        ]

    def _end(self) -> None:
        tasks, self._tasks = self._tasks, []
        self._runtime.watchers.on_any = None
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()

    def close(self) -> None:
        """End all readers: the runtime is closed."""
        self._fail(StoreError("The runtime was closed: changes can be read where it is open."))

    def _fail(self, error: StoreError) -> None:
        views, self._views = self._views, {}
        self._end()
        if self._marked is not None and not self._marked.done():
            self._marked.set_exception(error)
        for readers in views.values():
            for reader in readers.readers:
                reader.fail(error)

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Look for changes until the last reader has left, or the store fails."""
        try:
            await self._look_again_and_again()
        except StoreError as error:
            _log.warning("The feed of changes was broken: %s", error)
            self._fail(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the readers are told
            _log.exception("The feed of changes has failed.")
            self._fail(StoreError(f"The feed of changes has failed: {type(error).__name__}."))

    async def _look_again_and_again(self) -> None:
        source = self._runtime.store.change_reader()
        look = await source.look()
        self._place = self._place._replace(position=look.position)
        assert self._marked is not None
        if not self._marked.done():
            self._marked.set_result(None)
        took = deque([0.0], maxlen=_MEASURED)
        while True:
            await asyncio.sleep(max(SPACING_S, source.pause, _SHARE * min(took)))
            if not source.pause:
                await until_look(POLL_S - SPACING_S, self._news.wait())
            self._news.clear()
            began = monotonic()
            look = await source.look()
            if not look.is_whole:
                self._reset(look.position)
            elif look.changed:
                await self._publish(look.changed, look.position)
            else:
                self._place = self._place._replace(position=look.position)
            took.append(monotonic() - began)

    def _reset(self, position: str) -> None:
        """Tell all readers that changes were missed, or were too many."""
        before, version = self._place.written(), self._place.version + 1
        self._place = self._place._replace(version=version, position=position)
        self._known.forget(version)
        self._uncounted.set()
        batch = FeedBatch(before, self._place.written(), is_reset=True)
        for readers in self._views.values():
            readers.offer(batch)

    async def _publish(self, changed: list[ChangedRun], position: str) -> None:
        """Offer changes to the readers that may see them."""
        before, version = self._place.written(), self._place.version + 1
        found = [(each, self._known.peek(each.run_id)) for each in changed]
        timers = await next_timers(self._runtime, [each.row for each in changed if each.row is not None])
        rendered: dict[str, FeedItem] = {}
        offers: dict[_Readers, dict[str, FeedItem]] = {}
        # Readers that come while rows are rendered began before these changes, so they get them too.
        while missing := [readers for readers in self._views.values() if readers not in offers]:
            for readers in missing:
                offers[readers] = await self._items(readers.view, found, rendered, timers)
        for each in changed:
            self._known.put(each.run_id, _Known(version, each.workflow, each.row))
        self._place = self._place._replace(version=version, position=position)
        self._uncounted.set()
        for readers, items in offers.items():
            if items:
                readers.offer(FeedBatch(before, self._place.written(), items))

    async def _items(
        self,
        view: FeedView,
        found: Iterable[tuple[ChangedRun, _Known | None]],
        rendered: dict[str, FeedItem],
        timers: Mapping[str, float],
    ) -> dict[str, FeedItem]:
        items: dict[str, FeedItem] = {}
        for (run_id, workflow, row), known in found:
            if row is not None and view.fits(row):
                # Who may see all workflows sees the same as others who may; what others see depends on parents too.
                shared = view.allowed is None or row.parent is None
                item = rendered.get(run_id) if shared else None
                if item is None:
                    item = await self._item(row, view, timers)
                    if shared:
                        rendered[run_id] = item
                items[run_id] = item
            elif view.may_show(run_id, workflow) and (known is None or view.fits(known.row)):
                items[run_id] = FeedItem(run_id, None)
        return items

    async def _item(self, row: RunRow, view: FeedView, timers: Mapping[str, float]) -> FeedItem:
        run = await self._seen(await listed_run(self._runtime, row, with_result=False, timers=timers), view)
        return FeedItem(row.run_id, run, len(row.head.waiters))

    async def _seen(self, run: Run, view: FeedView) -> Run:
        """Hide a parent of a workflow that the reader may not see."""
        if view.allowed is None or run.parent_id is None:
            return run
        known = self._known.peek(run.parent_id)
        parent = known.row if known is not None else await self._runtime.store.get(run.parent_id)
        return run if parent is not None and parent.workflow in view.allowed else replace(run, parent_id=None)

    # -- counting -----------------------------------------------------------------------------------------------------

    async def _follow_counts(self) -> None:
        """Tell counts when runs have changed, as seldom as counting allows."""
        try:
            while True:
                await self._uncounted.wait()
                self._uncounted.clear()
                await asyncio.sleep(self.counted.wait_s)
                for readers in list(self._views.values()):
                    self._tell_counts(readers, await self.counted.get(readers.view.counted))
        except StoreError as error:
            self._fail(error)

    def _tell_counts(self, readers: _Readers, counts: Counts) -> None:
        if readers.counts is None or replace(counts, at=readers.counts.at) != readers.counts:
            readers.counts = counts
            readers.offer(FeedBatch(self._place.written(), self._place.written(), counts=counts))
