"""Rows of the tables as records, and back."""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from loom.store.errors import CorruptRecord
from loom.store.records import Chunk, InboxMessage, RunHead, RunRow, Snapshot, TimerRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RUN_COLUMNS = """runs.run_id, runs.workflow, runs.created_at, runs.tags, runs.ended_at, runs.parent, runs.parent_ref,
runs.forked_from, runs.owner, runs.first_tick, runs.document, runs.status, runs.ticks, runs.events, runs.updated_at,
runs.idle_since, runs.needs_worker, runs.waiters, runs.waiting_for, runs.kept, runs.paused, runs.parked, runs.error,
runs.downtime, runs.link, runs.mac"""
"""The columns that `run_row` reads, in its order."""

_TAGS = msgspec.json.Decoder(dict[str, str])
_TYPES = msgspec.json.Decoder(tuple[str, ...])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT, _NAME, _NUMBER, _TIME, _NO_TIME = (str,), (str, NoneType), (int,), (float, int), (float, int, NoneType)
_KINDS: tuple[tuple[tuple[type, ...], Any], ...] = (
    (_TEXT, "?"), (_TEXT, "?"), (_TIME, 0.0), (_TEXT, "{}"), (_NO_TIME, None), (_NAME, None), (_NUMBER, 0),
    (_NAME, None), ((int, NoneType), None), (_NUMBER, 0), (_NAME, None), (_TEXT, "failed"), (_NUMBER, 0), (_NUMBER, 0),
    (_TIME, 0.0), (_NO_TIME, None), (_NUMBER, 0), ((bytes, str), b"[]"), (_TEXT, "[]"), (_NUMBER, 0), (_NUMBER, 0),
    (_NAME, None), (_NAME, None), (_TIME, 0.0),
)  # fmt: skip
"""The types of each of `RUN_COLUMNS`, up to the links, and what a list shows instead of any other value: SQLite keeps
any value in any column."""


def listed_row(values: Sequence[Any]) -> RunRow:
    """Read a run from `RUN_COLUMNS`. A damaged row is shown as parked: a list has other runs too."""
    try:
        return run_row(values)
    except CorruptRecord as error:
        sound = list(values)
        for position, (kinds, other) in enumerate(_KINDS):
            if not isinstance(sound[position], kinds):
                sound[position] = other
        sound[3], sound[17], sound[18], sound[21] = "{}", b"[]", "[]", str(error)
        return run_row(sound)


def run_row(values: Sequence[Any]) -> RunRow:
    """Read a run from `RUN_COLUMNS`; `CorruptRecord` if a column holds nonsense."""
    head = values[11:]
    try:
        tags, waiting_for = _TAGS.decode(values[3]), _TYPES.decode(head[7])
        _LIST.decode(head[6])
        for value, (kinds, _) in zip(values, _KINDS, strict=False):
            if not isinstance(value, kinds):
                raise TypeError(f"a column holds a {type(value).__name__}")
    except (msgspec.DecodeError, TypeError) as error:
        raise CorruptRecord(values[0], "its row", str(error)) from error
    return RunRow(
        run_id=values[0],
        workflow=values[1],
        created_at=values[2],
        head=RunHead(
            status=head[0],
            ticks=head[1],
            events=head[2],
            updated_at=head[3],
            idle_since=head[4],
            needs_worker=bool(head[5]),
            waiters=head[6],
            waiting_for=waiting_for,
            kept=head[8],
            paused=bool(head[9]),
            parked=head[10],
            error=head[11],
            downtime=head[12],
            link=_link(head[13]),
            mac=_link(head[14]),
        ),
        tags=tags,
        ended_at=values[4],
        parent=values[5],
        parent_ref=values[6],
        forked_from=values[7],
        owner=values[8],
        first_tick=values[9],
        document=values[10],
    )


INSERT_RUN = """INSERT INTO runs (run_id, workflow, created_at, tags, ended_at, parent, parent_ref, forked_from,
owner, first_tick, document, status, ticks, events, updated_at, idle_since, needs_worker, waiters, waiting_for, kept,
paused, parked, error, downtime, link, mac)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (run_id) DO NOTHING RETURNING id"""


def run_values(row: RunRow) -> tuple[Any, ...]:
    """Return the parameters of `INSERT_RUN`."""
    head = row.head
    return (
        row.run_id,
        row.workflow,
        row.created_at,
        text_of(row.tags),
        row.ended_at,
        row.parent,
        row.parent_ref,
        row.forked_from,
        row.owner,
        row.first_tick,
        row.document,
        head.status,
        head.ticks,
        head.events,
        head.updated_at,
        head.idle_since,
        head.needs_worker,
        head.waiters,
        text_of(head.waiting_for),
        head.kept,
        head.paused,
        head.parked,
        head.error,
        head.downtime,
        head.link,
        head.mac,
    )


def text_of(value: dict[str, str] | tuple[str, ...]) -> str:
    """Write tags or event types as JSON."""
    return msgspec.json.encode(value).decode()


def tags_of(text: str) -> dict[str, str]:
    """Read tags from JSON."""
    return _TAGS.decode(text)


def types_of(text: str) -> tuple[str, ...]:
    """Read event types from JSON."""
    return _TYPES.decode(text)


def chunk_values(run: int, chunk: Chunk) -> tuple[Any, ...]:
    """Return a row of chunks: run, first_tick, ticks, first_cursor, events, checksum, data, previous."""
    data = chunk.data
    return run, chunk.first_tick, chunk.ticks, chunk.first_cursor, chunk.events, crc32(data), data, chunk.previous


def chunks_of(run_id: str, rows: Iterable[Sequence[Any]]) -> list[Chunk]:
    """Read chunks from these columns without the run; `CorruptRecord` if one is not what was written."""
    return [
        Chunk(tick, ticks, cursor, events, _checked(run_id, f"chunk {tick}", checksum, data), _link(previous))
        for tick, ticks, cursor, events, checksum, data, previous in rows
    ]


def snapshot_values(run: int, snapshot: Snapshot) -> tuple[Any, ...]:
    """Return a row of snapshots."""
    return run, snapshot.ticks, crc32(snapshot.data), snapshot.data, snapshot.link


def snapshot_of(run_id: str, ticks: int, checksum: int, data: Any, link: bytes | None) -> Snapshot:
    """Read a snapshot; `CorruptRecord` if it is not what was written."""
    return Snapshot(ticks, _checked(run_id, f"the snapshot after {ticks} ticks", checksum, data), _link(link))


def messages_of(rows: Iterable[Sequence[Any]]) -> list[InboxMessage]:
    """Read messages from (id, data)."""
    return [InboxMessage(number, data) for number, data in rows]


def timers_of(rows: Iterable[Sequence[Any]]) -> list[TimerRow]:
    """Read timers from (seq, due, purpose)."""
    return [TimerRow(seq, due, purpose) for seq, due, purpose in rows]


def _link(value: Any) -> bytes | None:
    """Read a link or a signature. A value of another type becomes one that fits nothing."""
    return value if value is None or isinstance(value, bytes) else b""


def _checked(run_id: str, place: str, checksum: int, data: Any) -> bytes:
    if not isinstance(data, bytes) or crc32(data) != checksum:
        raise CorruptRecord(run_id, place, "its checksum is not that of its data, so the data is damaged")
    return data
