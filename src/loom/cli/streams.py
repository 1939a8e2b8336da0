"""The event stream of a run, read from the store as it is written there. May import loom.runtime and loom.store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from loom.cli.describe import published_type, published_words
from loom.core.records import EventRecord
from loom.runtime.endings import is_ending, is_internal
from loom.runtime.plain import fields_of, plain
from loom.store import codec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from loom.core.reports import Published
    from loom.runtime.durable.runtime import DurableRuntime

_CHUNKS = 64
_POLL_S = 0.2


async def stream(
    runtime: DurableRuntime, run_id: str, after: int, *, internal: bool, follow: bool
) -> AsyncIterator[tuple[int, Published]]:
    """Cursors and what stands there, from behind a cursor; to the last one of now, or to the end of the run."""
    position = after + 1
    while True:
        # The row first: whatever comes after it is found by the next look.
        row = await runtime.row(run_id)
        chunks = await runtime.store.stream(run_id, position, _CHUNKS)
        for chunk in chunks:
            published = codec.decode_published(run_id, chunk)
            for entry in published[position - chunk.first_cursor :]:
                if internal or not is_internal(entry):
                    yield position, entry
                position += 1
                if follow and is_ending(entry):
                    return
        if not chunks:
            if not follow or row.head.status != "running":
                return
            await asyncio.sleep(_POLL_S)


def entry_dict(cursor: int, published: Published) -> dict[str, Any]:
    """One entry of the stream for programs."""
    fields = fields_of(published) if isinstance(published, EventRecord) else plain(published)
    return {
        "cursor": cursor,
        "type": published_type(published),
        "summary": published_words(published),
        "fields": fields,
    }
