"""Chunks: the ticks of one commit and what they put on the stream, in one payload.

A payload is stored once: a published event that came with one of the chunk's ticks is written as the number of that
record among the records of these ticks. May import loom.core and loom.store.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from loom.core.records import EventRecord
from loom.core.reports import Published, Report
from loom.core.ticks import WorkflowTick
from loom.store.codec.checks import check_tick, records_of
from loom.store.codec.formats import FORMAT_VERSION, Format
from loom.store.codec.structs import encode
from loom.store.errors import CorruptRecord
from loom.store.records import Chunk

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Own(msgspec.Struct, frozen=True, tag="Event", array_like=True):
    """A published event that no tick of the chunk brought."""

    record: EventRecord


_Entry = int | _Own | Report


class _Chunk(msgspec.Struct, frozen=True, array_like=True):
    version: int
    ticks: list[WorkflowTick]
    published: list[_Entry]


_CHUNKS = Format("chunk", _Chunk)
_IN_TICKS, _IN_PUBLISHED = re.compile(r"\$\[1\]\[(\d+)\]"), re.compile(r"\$\[2\]\[(\d+)\]")


def encode_chunk(
    ticks: Sequence[WorkflowTick],
    published: Sequence[Published],
    first_tick: int,
    first_cursor: int,
    previous: bytes | None = None,
) -> Chunk:
    """What one commit adds to a run: its ticks, and the events that these put on the stream.

    `previous` is the link of the chunk before it.
    """
    records: list[EventRecord] = []
    for tick in ticks:
        records += check_tick(tick)
    numbers = {id(record.body): number for number, record in enumerate(records)}
    entries: list[_Entry] = []
    for entry in published:
        if isinstance(entry, EventRecord):
            number = numbers.get(id(entry.body))
            entries.append(number if number is not None and records[number] == entry else _Own(entry))
        else:
            entries.append(entry)
    data = encode(_Chunk(FORMAT_VERSION, list(ticks), entries))
    return Chunk(first_tick, len(ticks), first_cursor, len(published), data, previous)


def decode_ticks(run_id: str, chunk: Chunk) -> list[WorkflowTick]:
    """The ticks of a chunk; `CorruptRecord` with the number of the one that cannot be read."""
    return _read(run_id, chunk).ticks


def decode_published(run_id: str, chunk: Chunk) -> list[Published]:
    """What a chunk put on the stream; `CorruptRecord` with the cursor of what cannot be read."""
    return _published(run_id, chunk, _read(run_id, chunk))


def decode_stream(run_id: str, chunk: Chunk) -> tuple[float | None, list[Published]]:
    """The time of a chunk's last tick, None if it has none, and what it put on the stream: both by one decoding."""
    payload = _read(run_id, chunk)
    return payload.ticks[-1].at if payload.ticks else None, _published(run_id, chunk, payload)


def _published(run_id: str, chunk: Chunk, payload: _Chunk) -> list[Published]:
    records: list[EventRecord] | None = None
    published: list[Published] = []
    for position, entry in enumerate(payload.published):
        if isinstance(entry, int):
            if records is None:
                records = [record for tick in payload.ticks for record in records_of(tick)]
            if not 0 <= entry < len(records):
                place = f"event {chunk.first_cursor + position}"
                raise CorruptRecord(run_id, place, f"it refers to record {entry}, but there are {len(records)}")
            published.append(records[entry])
        else:
            published.append(entry.record if isinstance(entry, _Own) else entry)
    return published


def _read(run_id: str, chunk: Chunk) -> _Chunk:
    payload = _CHUNKS.read(run_id, chunk.data, partial(_place, chunk))
    if len(payload.ticks) != chunk.ticks or len(payload.published) != chunk.events:
        found = f"{len(payload.ticks)} ticks and {len(payload.published)} events"
        raise CorruptRecord(run_id, _place(chunk, ""), f"it holds {found}, not {chunk.ticks} and {chunk.events}")
    return payload


def _place(chunk: Chunk, error: str) -> str:
    """What of a chunk an error is about. The outermost path comes last in its words."""
    if found := _IN_TICKS.findall(error):
        return f"tick {chunk.first_tick + int(found[-1])}"
    if found := _IN_PUBLISHED.findall(error):
        return f"event {chunk.first_cursor + int(found[-1])}"
    return f"the chunk of {chunk.ticks} ticks from tick {chunk.first_tick}"
