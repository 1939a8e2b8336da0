"""Golden histories as files: what a version of Loom stored of a run, and the digest of every state and command.

A digest leaves out fields that have their default values, so that a later version may add some. Maps are sorted,
and structs go by the names of their fields, so that neither hashes nor the codec have a part in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from loom.core.commands import CommandPublishEvent, WorkflowCommand
from loom.core.persistent import Fifo, Map
from loom.core.planner import Planner
from loom.core.records import Published
from loom.core.reducer import replay_steps
from loom.core.state import BrokerState
from loom.effects.flow_codec import AnyEventCodec
from loom.runtime.planners import planner_for
from loom.store import codec
from loom.store.records import Chunk, Snapshot

GOLDEN = Path(__file__).parent


class Digest(msgspec.Struct, frozen=True):
    """One tick: its kind, and the digests of the state after it and of the commands that it led to."""

    tick: str
    state: str
    commands: str


class _StoredChunk(msgspec.Struct, frozen=True):
    first_tick: int
    ticks: int
    first_cursor: int
    events: int
    data: msgspec.Raw


class _StoredSnapshot(msgspec.Struct, frozen=True):
    ticks: int
    data: msgspec.Raw


class _Facts(msgspec.Struct, frozen=True, omit_defaults=True):
    run_id: str
    workflow: str
    status: str
    start: msgspec.Raw
    snapshot: _StoredSnapshot
    document: str | None = None


class History(msgspec.Struct, frozen=True):
    """A recorded run."""

    run_id: str
    workflow: str
    status: str
    start: bytes
    snapshot: Snapshot
    """The state in the middle of the run, as it would have been stored."""
    chunks: tuple[Chunk, ...]
    document: bytes | None = None
    """What a flow's planner is made from."""


def write(folder: Path, history: History) -> None:
    """Store a history with the digests that its replay gives now. What was stored keeps its bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    snapshot = _StoredSnapshot(history.snapshot.ticks, msgspec.Raw(history.snapshot.data))
    document = history.document.decode() if history.document is not None else None
    facts = _Facts(history.run_id, history.workflow, history.status, msgspec.Raw(history.start), snapshot, document)
    chunks = [
        _StoredChunk(chunk.first_tick, chunk.ticks, chunk.first_cursor, chunk.events, msgspec.Raw(chunk.data))
        for chunk in history.chunks
    ]
    (folder / "run.json").write_bytes(msgspec.json.encode(facts) + b"\n")
    (folder / "chunks.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(chunks))
    (folder / "digests.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(digests(history)))


def read(folder: Path) -> tuple[History, list[Digest]]:
    """A history and the digests that were recorded with it."""
    facts = msgspec.json.decode((folder / "run.json").read_bytes(), type=_Facts)
    chunks = msgspec.json.Decoder(_StoredChunk).decode_lines((folder / "chunks.jsonl").read_bytes())
    history = History(
        run_id=facts.run_id,
        workflow=facts.workflow,
        status=facts.status,
        start=bytes(facts.start),
        snapshot=Snapshot(facts.snapshot.ticks, bytes(facts.snapshot.data)),
        chunks=tuple(Chunk(c.first_tick, c.ticks, c.first_cursor, c.events, bytes(c.data)) for c in chunks),
        document=facts.document.encode() if facts.document is not None else None,
    )
    return history, msgspec.json.Decoder(Digest).decode_lines((folder / "digests.jsonl").read_bytes())


def folders() -> list[Path]:
    """All recorded histories, of all versions."""
    return sorted(path.parent for path in GOLDEN.glob("*/*/run.json"))


def steps(
    history: History, state: BrokerState | None = None, planner: Planner | None = None
) -> Iterator[tuple[str, BrokerState, list[WorkflowCommand]]]:
    """Reduce the history's ticks: from the beginning, or from a state on. `planner` None means the one of the run."""
    ticks = [tick for chunk in history.chunks for tick in codec.decode_ticks(history.run_id, chunk)]
    rest = ticks[state.ticks if state is not None else 0 :]
    used = planner if planner is not None else planner_for(history.document)
    for tick, after, commands in replay_steps(rest, used, state, AnyEventCodec().field):
        yield type(tick).__name__, after, commands


def digests(history: History, state: BrokerState | None = None) -> list[Digest]:
    """What the replay of a history gives."""
    return [Digest(kind, digest(after), digest(commands)) for kind, after, commands in steps(history, state)]


def published(history: History) -> list[Published]:
    """What the replay of a history puts on the stream."""
    return [
        command.event
        for _, _, commands in steps(history)
        for command in commands
        if isinstance(command, CommandPublishEvent)
    ]


def stored_stream(history: History) -> list[Published]:
    """What was stored of the stream."""
    return [event for chunk in history.chunks for event in codec.decode_published(history.run_id, chunk)]


def digest(value: Any) -> str:
    """The digest of plain data and structs."""
    text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _fields(struct: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """The fields of a struct with their defaults."""
    return tuple(
        (field.name, field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory())
        for field in msgspec.structs.fields(struct)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Fifo):
        return [_plain(item) for item in value]
    if isinstance(value, msgspec.Struct):
        items = [(name, getattr(value, name), default) for name, default in _fields(type(value))]
        named = {name: _plain(item) for name, item, default in items if not item == default}  # noqa: SIM201
        tag = value.__struct_config__.tag
        return named if tag is None else {"": tag, **named}
    if isinstance(value, Map | dict):
        return [[key, _plain(item)] for key, item in sorted(value.items())]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
