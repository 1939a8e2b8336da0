from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing

import pytest
from cli_rig import STORE, data, good, loom, started, until_end, until_idle
from msgspec.structs import replace

from loom.core.records import EventRecord
from loom.effects.flow_codec import AnyEventCodec
from loom.runtime.connect import connect, open_store
from loom.runtime.verification import replayed
from loom.store import codec
from loom.store.records import Snapshot, StoredRun

pytestmark = pytest.mark.usefixtures("shop")


def finished() -> StoredRun:
    """An order that was approved, as it is stored."""
    started("order-1")
    good("workflow", "send", "order-1", "Approval", '{"amount": 5}')
    until_end("order-1")

    async def read() -> StoredRun | None:
        async with connect(open_store(STORE, upgrade=False)) as runtime:
            return await runtime.store.export("order-1")

    stored = asyncio.run(read())
    assert stored is not None
    return stored


def test_the_journal_gives_the_stored_state() -> None:
    stored = finished()
    found = replayed(stored, AnyEventCodec().field)
    assert found.differences == []
    assert (found.ticks, found.events) == (stored.row.head.ticks, stored.row.head.events)
    text = good("workflow", "replay", "order-1")
    assert text == f"Run order-1: {found.ticks} ticks and {found.events} events give what is stored.\n"
    assert data("workflow", "replay", "order-1")["replay"] == "same"


def test_an_idle_run_with_mail_is_replayed() -> None:
    started("order-1")
    until_idle("order-1")
    good("workflow", "send", "order-1", "Approval", '{"amount": 5}')
    assert data("workflow", "replay", "order-1")["replay"] == "same"


def test_a_snapshot_is_compared() -> None:
    stored = finished()
    whole = replayed(stored, AnyEventCodec().field).state
    right = replace(stored, snapshot=Snapshot(whole.ticks, codec.encode_state(whole)))
    assert replayed(right, AnyEventCodec().field).differences == []
    other = replace(whole, seed=whole.seed + 1)
    wrong = replace(stored, snapshot=Snapshot(whole.ticks, codec.encode_state(other)))
    assert replayed(wrong, AnyEventCodec().field).differences == [
        f"The snapshot after {whole.ticks} ticks differs in: seed."
    ]


def test_what_was_pruned_is_left_out() -> None:
    stored = finished()
    whole = replayed(stored, AnyEventCodec().field).state
    pruned = replace(
        stored,
        row=replace(stored.row, first_tick=whole.ticks),
        snapshot=Snapshot(whole.ticks, codec.encode_state(whole)),
        chunks=(),
    )
    found = replayed(pruned, AnyEventCodec().field)
    assert (found.first_tick, found.ticks, found.differences) == (whole.ticks, 0, [])


def _other_event(stored: StoredRun) -> StoredRun:
    *chunks, last = stored.chunks
    published = codec.decode_published("order-1", last)
    ending = published[-1]
    assert isinstance(ending, EventRecord)
    changed = [*published[:-1], replace(ending, body=ending.body.replace("5", "6"))]
    ticks = codec.decode_ticks("order-1", last)
    return replace(stored, chunks=(*chunks, codec.encode_chunk(ticks, changed, last.first_tick, last.first_cursor)))


def _fewer_events(stored: StoredRun) -> StoredRun:
    *chunks, last = stored.chunks
    ticks, published = codec.decode_ticks("order-1", last), codec.decode_published("order-1", last)
    return replace(
        stored, chunks=(*chunks, codec.encode_chunk(ticks, published[:-1], last.first_tick, last.first_cursor))
    )


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (lambda stored: replace(stored, chunks=(stored.chunks[0], *stored.chunks[2:])), "The journal lacks the ticks "),
        (lambda stored: replace(stored, chunks=stored.chunks[:-1]), "The row says status='completed'; replay gives "),
        (_other_event, "is stored as: StopEvent(result="),
        (_fewer_events, "events are stored; replay gives "),
    ],
)
def test_what_differs_is_named(change: Callable[[StoredRun], StoredRun], difference: str) -> None:
    found = replayed(change(finished()), AnyEventCodec().field)
    assert any(difference in text for text in found.differences), found.differences


def test_a_row_that_says_something_else_is_told_with_exit_code_1() -> None:
    finished()
    with closing(sqlite3.connect("loom.db", isolation_level=None)) as connection:
        connection.execute("UPDATE runs SET status = 'failed'")
    result = loom("workflow", "replay", "order-1")
    assert result.exit_code == 1
    assert "The row says status='failed'; replay gives 'completed'." in result.stdout
    assert result.stdout.endswith("give something else than is stored.\n")
    assert loom("workflow", "replay", "order-1", "--json").exit_code == 1


def test_a_damaged_tick_is_told() -> None:
    finished()
    with closing(sqlite3.connect("loom.db", isolation_level=None)) as connection:
        connection.execute("UPDATE chunks SET data = x'00' WHERE first_tick = 0")
    result = loom("workflow", "replay", "order-1")
    assert result.exit_code == 1
    assert "Error: Run 'order-1': " in result.stderr
