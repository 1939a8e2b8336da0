"""Answers to queries: views of a run's state and journal. A query changes nothing, and nothing leaves with it.

May import loom.core, loom.store, temporalio's messages and the modules beside it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import Payload

from loom.core.persistent import EMPTY_MAP
from loom.store import codec
from loom.temporal import names
from loom.temporal.payloads import (
    MAX_PAYLOAD,
    ChunkQuery,
    Chunks,
    ExecutionQuery,
    ExecutionView,
    StoreQuery,
    StoreView,
    payload_of,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.store.records import Chunk
    from loom.temporal.hosted import HostedRun
    from loom.temporal.payloads import Opening

_STACK_TRACE, _METADATA = "__stack_trace", "__temporal_workflow_metadata"


class UnknownQuery(LookupError):
    """There is no query of this name."""


def answer(name: str, arguments: Sequence[Payload], host: HostedRun | None, opening: Opening, previous: str) -> Payload:
    """What a query is answered with. `previous` is the id of the execution before this one."""
    if name == names.QUERY_ORIGIN:
        return payload_of(opening)
    if name == _METADATA:
        return _metadata(opening)
    if host is None:
        raise LookupError(f"Run {opening.card.run_id!r} has not begun: its code is being asked for.")
    if name == names.QUERY_CHUNKS:
        return payload_of(_chunks(host, value_of(arguments[0], ChunkQuery), previous))
    found = _VIEWS.get(name)
    if found is None:
        known = ", ".join(sorted([*_VIEWS, names.QUERY_CHUNKS, names.QUERY_ORIGIN]))
        raise UnknownQuery(f"A Loom run has no query {name!r}. It knows: {known}.")
    return found(host, arguments)


def _row(host: HostedRun, _arguments: Sequence[Payload]) -> Payload:
    return payload_of(host.row())


def _state(host: HostedRun, _arguments: Sequence[Payload]) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=codec.encode_state(host.core.state))


def _chunks(host: HostedRun, query: ChunkQuery, previous: str) -> Chunks:
    """A part of the journal, in chunks as the store has them, as far as an answer may be large."""
    journal = host.journal
    taken: list[Chunk] = []
    size = 0

    def is_before(last_tick: int, last_cursor: int) -> bool:
        return last_tick <= query.first_tick if query.cursor is None else last_cursor <= query.cursor

    for chunk in journal.chunks(is_before):
        if query.cursor is not None and not chunk.events:
            continue
        size += len(chunk.data)
        if taken and (len(taken) >= query.limit or size > query.max_bytes):
            break
        taken.append(chunk)
    return Chunks(tuple(taken), journal.first_tick, journal.first_cursor, journal.ticks, journal.events, previous)


def _execution(host: HostedRun, arguments: Sequence[Payload]) -> Payload:
    query = value_of(arguments[0], ExecutionQuery)
    now = host.core.look
    worker = now.workers.get(query.step)
    execution = worker.execution(query.item) if worker is not None else None
    # A cancelled or parked run keeps its work in its state, but nobody wants it done.
    if execution is None or host.core.is_over or execution.seq != query.seq or not execution.live:
        return payload_of(ExecutionView())
    answers = now.waiting.answers.get(query.item, EMPTY_MAP)
    found = {key: answers[key] for key in sorted(answers)}
    return payload_of(ExecutionView(execution, found, query.seq in host.lock))


def _store(host: HostedRun, arguments: Sequence[Payload]) -> Payload:
    query = value_of(arguments[0], StoreQuery) if arguments else StoreQuery()
    if query.seq and host.lock.holder != query.seq:
        return payload_of(StoreView(granted=False))
    now = host.core.look
    values = {key: now.store[key] for key in sorted(now.store)}
    answer = payload_of(StoreView(True, values, now.store_type, now.store_version))
    size = answer.ByteSize()
    return answer if size <= MAX_PAYLOAD else payload_of(StoreView(too_large=size))


def _seen(host: HostedRun, arguments: Sequence[Payload]) -> Payload:
    return payload_of(host.has_seen(json.loads(arguments[0].data)))


def _trace(host: HostedRun, _arguments: Sequence[Payload]) -> Payload:
    """What a run does, where Temporal's tools show the stack of a workflow."""
    now, lines = host.core.state, []
    for step in now.active_steps():
        lines.append(f"step {step} is at work")
    for report in now.waiter_reports() if host.core.is_blocked else ():
        lines.append(f"step {report.step} waits for {report.event_type}")
    return _text("\n".join(lines) or "nothing is at work")


def _metadata(opening: Opening) -> Payload:
    definition = {"type": opening.card.workflow, "queryDefinitions": [{"name": name} for name in sorted(_VIEWS)]}
    return _text({"definition": definition})


def _text(value: object) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(value).encode())


_VIEWS: dict[str, Callable[[HostedRun, Sequence[Payload]], Payload]] = {
    names.QUERY_ROW: _row,
    names.QUERY_STATE: _state,
    names.QUERY_EXECUTION: _execution,
    names.QUERY_STORE: _store,
    names.QUERY_SEEN: _seen,
    _STACK_TRACE: _trace,
}
