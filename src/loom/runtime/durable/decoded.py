"""Chunks as their readers need them: decoded once for all of them, and away from the event loop if they are large."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from loom.effects.threads import OFF_LOOP_BYTES, aside
from loom.store import codec

if TYPE_CHECKING:
    from loom.core.reports import Published
    from loom.store.records import Chunk

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

    __slots__ = ("_kept", "_size")

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], tuple[bytes, asyncio.Future[Decoded] | Decoded]] = OrderedDict()
        self._size = 0

    async def decode(self, run_id: str, chunk: Chunk) -> Decoded:
        """Give what a chunk holds; `CorruptRecord` with the place of what cannot be read.

        Readers that ask at the same time wait for one decoding.
        """
        key = run_id, chunk.first_cursor
        data, found = self._kept.get(key, (None, None))
        if found is not None and data == chunk.data:
            self._kept.move_to_end(key)
            return found if isinstance(found, Decoded) else await asyncio.shield(found)
        if len(chunk.data) <= OFF_LOOP_BYTES:
            decoded = _decode(run_id, chunk)
            self._keep(key, chunk.data, decoded)
            return decoded
        # A task of its own: if this reader leaves, the others still get it.
        work = asyncio.create_task(aside("convert", _decode, run_id, chunk), name="loom chunk")
        self._keep(key, chunk.data, work)
        work.add_done_callback(lambda done: self._done(key, chunk.data, done))
        return await asyncio.shield(work)

    def _keep(self, key: tuple[str, int], data: bytes, found: asyncio.Future[Decoded] | Decoded) -> None:
        self._drop(key)
        self._kept[key] = data, found
        self._size += len(data)
        while self._size > KEPT_BYTES and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[str, int]) -> None:
        data, _ = self._kept.pop(key, (b"", None))
        self._size -= len(data)

    def _done(self, key: tuple[str, int], data: bytes, done: asyncio.Future[Decoded]) -> None:
        """Keep what was decoded. What could not be is told to those who wait, and tried again for the next."""
        has_failed = done.cancelled() or done.exception() is not None
        if self._kept.get(key, (None, None))[1] is not done:
            return
        if has_failed:
            self._drop(key)
        else:
            self._kept[key] = data, done.result()


def _decode(run_id: str, chunk: Chunk) -> Decoded:
    at, published = codec.decode_stream(run_id, chunk)
    return Decoded(at, published)
