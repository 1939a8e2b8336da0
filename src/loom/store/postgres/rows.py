"""Records as values of columns, and back."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from loom.store.deaths import Deaths
from loom.store.errors import CorruptRecord
from loom.store.records import Chunk, InboxMessage, RunHead, RunRow, Snapshot, StoredRun, TimerRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom.store.operations import CommitRun, StartRun

_to_json = msgspec.json.Encoder().encode
_tag = msgspec.json.Decoder(tuple[str, str]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def words(text: str | None) -> bytes | None:
    """Encode text for people, which may hold what PostgreSQL's text cannot: NUL and lone surrogates."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogatepass")


# --- to columns ------------------------------------------------------------------------------------------------------


def start_values(start: StartRun) -> tuple[Any, ...]:
    """Return a row of START_RUNS."""
    return (
        start.run_id,
        start.workflow,
        start.start,
        start.created_at,
        _to_json(tags_values(start.tags)).decode(),
        start.parent,
        start.parent_ref,
        start.owner,
        start.downtime,
        start.document[0] if start.document is not None else None,
        start.mac,
    )


def tags_values(tags: Mapping[str, str]) -> list[str]:
    """Return tags as an array of JSON."""
    return [_to_json(tag).decode() for tag in tags.items()]


def tags_of(values: Sequence[str]) -> dict[str, str]:
    """Read tags from an array of JSON."""
    return dict(map(_tag, values))


_NO_CHUNK = (None,) * 7


def commit_values(commit: CommitRun, waits: tuple[bytes, tuple[str, ...]] | None) -> tuple[Any, ...]:
    """Return a row of COMMIT_RUNS; without `waits` the stored waiters stay."""
    head, chunk = commit.head, commit.chunk
    waiters, waiting = (waits[0], _to_json(waits[1]).decode()) if waits is not None else (None, None)
    return (
        commit.run_id,
        commit.fence,
        head.status,
        head.ticks,
        head.events,
        head.updated_at,
        head.idle_since,
        head.needs_worker,
        waiters,
        waiting,
        head.kept,
        head.paused,
        words(head.parked),
        words(head.error),
        head.downtime,
        head.link,
        head.mac,
        *(_NO_CHUNK if chunk is None else chunk_values(chunk)),
    )


def chunk_values(chunk: Chunk) -> tuple[Any, ...]:
    """Return a row of WRITE_CHUNKS without the run."""
    data = chunk.data
    return chunk.first_tick, chunk.ticks, chunk.first_cursor, chunk.events, zlib.crc32(data), data, chunk.previous


def snapshot_values(snapshot: Snapshot) -> tuple[Any, ...]:
    """Return a row of WRITE_SNAPSHOTS without the run."""
    return snapshot.ticks, zlib.crc32(snapshot.data), snapshot.data, snapshot.link


def import_values(row: RunRow) -> tuple[Any, ...]:
    """Return the values of IMPORT_RUN."""
    head = row.head
    return (
        row.run_id,
        row.workflow,
        head.status,
        row.created_at,
        head.updated_at,
        row.ended_at,
        head.idle_since,
        head.needs_worker,
        head.paused,
        words(head.parked),
        words(head.error),
        head.ticks,
        head.events,
        head.kept,
        head.downtime,
        row.first_tick,
        row.parent,
        row.parent_ref,
        row.forked_from,
        tags_values(row.tags),
        head.waiters,
        list(head.waiting_for),
        row.document,
        head.link,
        head.mac,
    )


# --- from columns ----------------------------------------------------------------------------------------------------


def listed_row(row: Mapping[str, Any]) -> RunRow:
    """Read a run from the columns of `runs`. A damaged row is shown as parked: a list has other runs too."""
    try:
        return run_row(row)
    except CorruptRecord as error:
        return run_row({**row, "tags": [], "waiters": b"[]", "parked": words(str(error))})


def run_row(row: Mapping[str, Any]) -> RunRow:
    """Read a run from the columns of `runs`; `CorruptRecord` if a column holds nonsense."""
    try:
        tags = tags_of(row["tags"])
        _list(row["waiters"])
    except msgspec.DecodeError as error:
        raise CorruptRecord(row["run_id"], "its row", str(error)) from error
    head = RunHead(
        row["status"],
        row["ticks"],
        row["events"],
        row["updated_at"],
        idle_since=row["idle_since"],
        needs_worker=row["needs_worker"],
        waiters=row["waiters"],
        waiting_for=tuple(row["waiting_for"]),
        kept=row["kept"],
        paused=row["paused"],
        parked=_text(row["parked"]),
        error=_text(row["error"]),
        downtime=row["downtime"],
        link=row["link"],
        mac=row["mac"],
    )
    return RunRow(
        row["run_id"],
        row["workflow"],
        row["created_at"],
        head,
        tags=tags,
        ended_at=row["ended_at"],
        parent=row["parent"],
        parent_ref=row["parent_ref"],
        forked_from=row["forked_from"],
        owner=row["owner"],
        first_tick=row["first_tick"],
        document=row["document"],
    )


def chunk(run_id: str, values: Any) -> Chunk:
    """A chunk from (first_tick, ticks, first_cursor, events, checksum, data, previous), if it is whole."""
    first_tick, ticks, first_cursor, events, checksum, data, previous = values
    _check(run_id, f"the chunk from tick {first_tick}", checksum, data)
    return Chunk(first_tick, ticks, first_cursor, events, data, previous)


def _check(run_id: str, place: str, checksum: int, data: bytes) -> None:
    if zlib.crc32(data) != checksum:
        raise CorruptRecord(run_id, place, "its checksum is wrong.")


def stored_run(row: Mapping[str, Any]) -> StoredRun:
    """A run from the columns of `load` and `export`."""
    run_id = row["run_id"]
    snapshot = None
    if row["snapshot_data"] is not None:
        _check(run_id, "the snapshot", row["snapshot_checksum"], row["snapshot_data"])
        snapshot = Snapshot(row["snapshot_ticks"], row["snapshot_data"], row["snapshot_link"])
    return StoredRun(
        run_row(row),
        row["start"],
        snapshot,
        tuple(chunk(run_id, values) for values in row["chunks"]),
        tuple(InboxMessage(*values) for values in row["mail"]),
        tuple(TimerRow(*values) for values in row["timers"]),
        tuple(row["event_ids"]),
        row["document_data"],
        Deaths(*row["deaths"][0]) if row["deaths"] else msgspec.UNSET,
    )
