"""Laws of feeds: however a reader pauses, and whatever changes between, it ends with the list that a query gives."""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import given

from loom.runtime.durable.change_batch import FeedBatch, FeedItem, FeedPlace, FeedView, read_place
from loom.store.changes import MOST_CHANGES
from loom.store.memory import MemoryStore
from loom.store.operations import CommitRun, PurgeRuns, SetTags, StartRun
from loom.store.records import RunHead, RunQuery, matches

_IDS = ("a", "b", "c")
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("start", "commit", "idle", "end", "tag", "purge")), st.sampled_from(_IDS)),
        st.tuples(st.sampled_from(("look", "tell")), st.just("")),
    ),
    max_size=40,
)
_QUERIES = st.sampled_from(
    (RunQuery(), RunQuery(status="running"), RunQuery(idle=True), RunQuery(tags={"t": "1"}), RunQuery(id_prefix="a"))
)


async def _write(store: MemoryStore, fence: int, what: str, run_id: str, number: int) -> None:
    row = await store.get(run_id)
    if what == "start":
        await store.apply([StartRun(run_id, "w", b"", float(number), owner=fence)])
    elif what == "tag":
        await store.apply([SetTags(run_id, {"t": str(number % 2)})])
    elif what == "purge":
        await store.apply([PurgeRuns(run_id=run_id)])
    elif row is not None:
        status: Any = "completed" if what == "end" else "running"
        # Clocks may go back: times have no part in it.
        head = RunHead(status, row.head.ticks, 0, float(-number), idle_since=1.0 if what == "idle" else None)
        await store.apply([CommitRun(run_id, fence, head)])


@given(_STEPS, _QUERIES)
def test_a_reader_ends_with_the_list_of_its_query(steps: list[tuple[str, str]], query: RunQuery) -> None:
    async def lived() -> None:
        store = MemoryStore()
        await store.open()
        fence = (await store.join("owner", 1e9)).fence
        reader, view = store.change_reader(), FeedView(query)
        await reader.look()
        rows: dict[str, Any] = {}
        waiting: FeedBatch | None = None
        for number, (what, run_id) in enumerate([*steps, ("look", ""), ("tell", "")]):
            if what == "look":
                look = await reader.look()
                items = {
                    each.run_id: FeedItem(each.run_id, each.row if view.fits(each.row) else None)  # type: ignore[arg-type]
                    for each in look.changed
                }
                batch = FeedBatch("", look.position, items)
                waiting = batch if waiting is None else waiting.followed_by(batch)
            elif what == "tell" and waiting is not None:
                for item in waiting.items.values():
                    rows.pop(item.run_id, None)
                    if item.run is not None:
                        rows[item.run_id] = item.run
                waiting = None
            elif what != "tell":
                await _write(store, fence, what, run_id, number)
        assert rows == {row.run_id: row for row in await store.find(query)}
        assert all(matches(row, query) for row in rows.values())
        await store.close()

    asyncio.run(lived())


_BATCHES = st.lists(
    st.tuples(st.sets(st.integers(0, 6), max_size=4), st.booleans(), st.booleans()), min_size=1, max_size=8
)


@given(_BATCHES)
def test_batches_are_coalesced_to_the_newest_of_each_run(given_batches: list[tuple[set[int], bool, bool]]) -> None:
    batches = [
        FeedBatch(
            str(number),
            str(number + 1),
            {str(run): FeedItem(str(run), None, weight=number) for run in sorted(runs)},
            is_reset=is_reset,
        )
        for number, (runs, is_reset, _) in enumerate(given_batches)
    ]
    whole = batches[0]
    for batch in batches[1:]:
        whole = whole.followed_by(batch)
    assert (whole.before, whole.cursor) == ("0", str(len(batches)))
    if len(batches) > 1 and any(batch.is_reset for batch in batches):
        assert (whole.is_reset, whole.items) == (True, {})
        return
    newest = {run: number for number, (runs, _, _) in enumerate(given_batches) for run in runs}
    assert {int(run): item.weight for run, item in whole.items.items()} == newest
    assert [each.id for each in whole.told()][-1:] == [whole.cursor] * bool(list(whole.told()))


def test_a_reader_that_takes_nothing_has_bounded_memory() -> None:
    batch = FeedBatch("0", "1", {str(run): FeedItem(str(run), None) for run in range(MOST_CHANGES)})
    assert not batch.followed_by(batch).is_reset
    more = FeedBatch("1", "2", {"one more": FeedItem("one more", None)})
    assert (batch.followed_by(more).is_reset, batch.followed_by(more).items) == (True, {})
    heavy = FeedBatch("0", "1", {"a": FeedItem("a", None, weight=9 << 20)})
    assert more.followed_by(heavy).is_reset


@given(st.text(max_size=80))
def test_any_text_is_a_cursor_or_none(text: str) -> None:
    place = read_place(text)
    assert place is None or isinstance(place.version, int)


@given(st.text(max_size=20), st.integers(0, 2**60), st.text(max_size=60))
def test_a_cursor_is_read_as_it_was_written(epoch: str, version: int, position: str) -> None:
    place = FeedPlace(epoch, version, position)
    try:
        msgspec.json.encode(place)
    except UnicodeEncodeError:
        return
    assert read_place(place.written()) == place
