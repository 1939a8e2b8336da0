"""What the readers of runs share: wake-ups, ends of runs told last, and decoded chunks of their journals."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from loom.core.records import EventRecord
from loom.effects.off_loop import OFF_LOOP_BYTES, aside
from loom.runtime.lru_cache import LruCache
from loom.store import codec

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.records import Published
    from loom.store.records import Chunk, RunRow


News = asyncio.Future["RunRow | None"]
"""Done at the next news of a run. If that is its end in this process, it has the row that was stored then."""


class Watchers:
    """Futures by run. Ask for one before you look, await it if there was nothing new: so no news is missed."""

    __slots__ = ("_waiting", "on_any")

    def __init__(self) -> None:
        self.on_any: Callable[[], object] | None = None
        """Called with every news of any run, while a feed of changes is open."""
        self._waiting: dict[str, dict[News, None]] = {}
        """By run, in the order in which they came."""

    def subscribe(self, run_id: str) -> News:
        """A future that is done at the next news of the run."""
        future: News = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, {})[future] = None
        return future

    def forget(self, run_id: str, future: News) -> None:
        """Nobody awaits it any more."""
        futures = self._waiting.get(run_id)
        if futures is not None:
            futures.pop(future, None)
            if not futures:
                del self._waiting[run_id]

    def wake(self, run_id: str, ended: RunRow | None = None) -> None:
        """There is news of the run."""
        if self.on_any is not None:
            self.on_any()
        for future in self._waiting.pop(run_id, ()):
            if not future.done():
                future.set_result(ended)

    def wake_all(self) -> None:
        """There may be news of any run."""
        for run_id in list(self._waiting):
            self.wake(run_id)


class RecentEnds:
    """What the last runs have ended with here, for those who waited for it: they need not read what was just written.

    It is found by the row of the run, so it is what the store would give: an event on a stream never changes.
    """

    MOST, HEAVIEST = 256, 16 * 1024

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, int, EventRecord]] = {}

    def keep(self, row: RunRow, last: Published | None) -> None:
        """Note the last event of a run, unless it is large, or not as its stored form would be."""
        if not isinstance(last, EventRecord) or not isinstance(last.body, str) or len(last.body) > self.HEAVIEST:
            return
        self._kept[row.run_id] = (row.created_at, row.head.events, last)
        if len(self._kept) > self.MOST:
            del self._kept[next(iter(self._kept))]

    def find(self, row: RunRow) -> EventRecord | None:
        """Return the last event of a run that ended here a moment ago; None if it is not known."""
        created_at, events, last = self._kept.get(row.run_id, (None, None, None))
        return last if (created_at, events) == (row.created_at, row.head.events) else None


KEPT_BYTES = 4 * 1024 * 1024
"""How much is kept for further readers, as it is stored; decoded it takes a few times as much. The last one always."""


class Decoded(NamedTuple):
    """What a chunk put on the stream."""

    at: float | None
    """The time of its last tick; None if it has no ticks."""
    published: list[Published]
    """Shared by all readers: nobody changes it."""


class DecodedChunks:
    """The chunks that were read last, by run and first event. Many readers of one stream read the same ones.

    A chunk never changes, but another run may get the id of a deleted one: so what is kept is compared with what is
    stored.
    """

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: LruCache[tuple[str, int], tuple[bytes, asyncio.Future[Decoded] | Decoded]]
        self._kept = LruCache(max_weight=KEPT_BYTES)

    async def decode(self, run_id: str, chunk: Chunk) -> Decoded:
        """Give what a chunk holds; `CorruptRecord` with the place of what cannot be read.

        Readers that ask at the same time wait for one decoding.
        """
        key = run_id, chunk.first_cursor
        data, found = self._kept.get(key) or (None, None)
        if found is not None and data == chunk.data:
            return found if isinstance(found, Decoded) else await asyncio.shield(found)
        if len(chunk.data) <= OFF_LOOP_BYTES:
            decoded = _decode(run_id, chunk)
            self._kept.put(key, (chunk.data, decoded), len(chunk.data))
            return decoded
        # A task of its own: if this reader leaves, the others still get it.
        work = asyncio.create_task(aside("convert", _decode, run_id, chunk), name="loom chunk")
        self._kept.put(key, (chunk.data, work), len(chunk.data))
        work.add_done_callback(lambda done: self._done(key, chunk.data, done))
        return await asyncio.shield(work)

    def _done(self, key: tuple[str, int], data: bytes, done: asyncio.Future[Decoded]) -> None:
        """Keep what was decoded. What could not be is told to those who wait, and tried again for the next."""
        has_failed = done.cancelled() or done.exception() is not None
        if (self._kept.peek(key) or (None, None))[1] is not done:
            return
        if has_failed:
            self._kept.drop(key)
        else:
            self._kept.put(key, (data, done.result()), len(data))


def _decode(run_id: str, chunk: Chunk) -> Decoded:
    at, published = codec.decode_stream(run_id, chunk)
    return Decoded(at, published)
