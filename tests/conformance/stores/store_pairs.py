"""The same operation for two stores, and what must be equal of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace
from store_samples import comparable, timer

from loom.store.memory_tables import KeptRun, Tables
from loom.store.operations import (
    ClaimRun,
    ClaimRuns,
    CommitRun,
    ImportRun,
    Operation,
    ParkRun,
    Posted,
    PostMessage,
    PurgeRuns,
    ReleaseRun,
    StartRun,
)
from loom.store.ports import Store
from loom.store.records import Chunk, InboxMessage, RunHead, RunQuery, RunRow, Snapshot, StoredRun

RUN_IDS = ("a", "b", "ä", "child")
WORKFLOWS = ("w", "v")
TYPES = ("A", "m.A", "B")
TAGS = st.dictionaries(st.sampled_from(["k", "l"]), st.sampled_from(["1", "2"]), max_size=2)
DIGESTS = ("d1", "d2")
STRANGER = 1000
"""Added to a fence, it gives one that nobody has."""

some_run = st.sampled_from(RUN_IDS)
some_time = st.integers(0, 40).map(float)
# The text differs at times under the same digest: the first one stays.
some_document = st.none() | st.tuples(st.sampled_from(DIGESTS), st.sampled_from([b"{}", b"[]"]))
some_mac = st.sampled_from([None, b"k1:one", b"k1:two"])


class Side(NamedTuple):
    """What an operation must name differently in each of the stores."""

    fence: int
    inbox: dict[str, list[int]]


class Maker:
    """Draws operations. `tables` has what an operation will find, `clock` gives every commit a time of its own."""

    def __init__(self, draw: Callable[[Any], Any], tables: Callable[[], Tables], clock: Callable[[], float]) -> None:
        self._draw = draw
        self._tables = tables
        self._clock = clock

    def operation(self) -> Callable[[Side], Operation]:
        """One operation, to be made for each side."""
        makers = (self._start, self._post, self._commit, self._commit, self._commit, self._owning, self._rare)
        made: Callable[[Side], Operation] = self._draw(st.sampled_from(makers))()
        return made

    def _start(self) -> Callable[[Side], Operation]:
        run_id, at, owned = self._draw(some_run), self._draw(some_time), self._draw(st.booleans())
        workflow, tags = self._draw(st.sampled_from(WORKFLOWS)), self._draw(TAGS)
        event_id = self._draw(st.sampled_from([None, "e1", "e2"]))
        message = PostMessage(run_id, b"first", self._clock(), event_id=event_id) if self._draw(st.booleans()) else None
        asked = StartRun(run_id, workflow, b"in", at, tags=tags, document=self._draw(some_document), message=message)
        asked = replace(asked, mac=self._draw(some_mac))
        return lambda side: replace(asked, owner=side.fence if owned else None)

    def _post(self) -> Callable[[Side], Operation]:
        message = PostMessage(
            self._draw(some_run),
            self._draw(st.binary(max_size=3)),
            self._clock(),
            event_id=self._draw(st.sampled_from([None, "e1", "e2"])),
            limit=self._draw(st.sampled_from([None, 0, 2, 3])),
            reopens=self._draw(st.integers(0, 4)) == 0,
            reopened=self._draw(st.none() | st.tuples(st.integers(0, 3), some_mac)),
        )
        return lambda side: message

    def _commit(self) -> Callable[[Side], Operation]:
        draw = self._draw
        run_id = draw(some_run)
        run: KeptRun | None = self._tables().runs.get(run_id)
        ticks, events = draw(st.integers(0, 3)), draw(st.integers(0, 2))
        before = (run.row.head.ticks, run.row.head.events) if run is not None else (0, 0)
        chunk = Chunk(before[0], ticks, before[1], events, draw(st.binary(max_size=4))) if ticks or events else None
        head = self._head(before[0] + ticks, before[1] + events)
        snapshot = Snapshot(draw(st.integers(0, head.ticks)), b"state") if draw(st.integers(0, 3)) == 0 else None
        taken, stranger = draw(st.integers(0, 2)), STRANGER * draw(st.sampled_from([0, 0, 0, 1]))
        commit = CommitRun(
            run_id,
            0,
            head,
            waiting_changed=draw(st.booleans()),
            chunk=chunk,
            timers_set=tuple(timer(seq, self._clock()) for seq in draw(st.sets(st.integers(1, 3)))),
            timers_gone=tuple(draw(st.sets(st.integers(1, 3), max_size=2))),
            snapshot=snapshot,
            sent=tuple(draw(st.lists(self._sent(), max_size=2))),
            prune=draw(st.integers(0, snapshot.ticks)) if snapshot is not None else 0,
            document=draw(some_document),
        )
        return lambda side: replace(
            commit, fence=side.fence + stranger, messages_taken=tuple(side.inbox.get(run_id, ())[:taken])
        )

    def _head(self, ticks: int, events: int) -> RunHead:
        draw = self._draw
        status = draw(st.sampled_from(["running"] * 6 + ["completed", "failed", "cancelled"]))
        if status != "running":
            return RunHead(status, ticks, events, self._clock(), needs_worker=False, mac=draw(some_mac))
        return RunHead(
            "running",
            ticks,
            events,
            self._clock(),
            idle_since=draw(st.none() | some_time),
            needs_worker=draw(st.booleans()),
            waiters=draw(st.sampled_from([b"[]", b"[1]"])),
            waiting_for=tuple(sorted(draw(st.sets(st.sampled_from(TYPES))))),
            kept=draw(st.integers(0, 2)),
            paused=draw(st.booleans()),
            parked=draw(st.sampled_from([None, None, None, "why"])),
            mac=draw(some_mac),
        )

    def _sent(self) -> st.SearchStrategy[StartRun | PostMessage]:
        starts = st.builds(
            StartRun, some_run, st.sampled_from(WORKFLOWS), st.just(b"in"), some_time, document=some_document
        )
        ids = st.sampled_from([None, "e1", "e3"])
        return starts | st.builds(PostMessage, some_run, st.binary(max_size=2), some_time, event_id=ids)

    def _owning(self) -> Callable[[Side], Operation]:
        draw = self._draw
        run_id, stranger, kind = draw(some_run), STRANGER * draw(st.sampled_from([0, 0, 1])), draw(st.integers(0, 2))
        if kind == 0:
            return lambda side: ReleaseRun(run_id, side.fence + stranger)
        if kind == 1:
            return lambda side: ClaimRun(run_id, side.fence)
        return lambda side: ParkRun(run_id, side.fence + stranger, "parked")

    def _rare(self) -> Callable[[Side], Operation]:
        draw = self._draw
        if draw(st.booleans()):
            now, limit = self._clock() - draw(st.integers(0, 9)), draw(st.integers(1, 4))
            workflows = tuple(sorted(draw(st.sets(st.sampled_from(WORKFLOWS)))))
            return lambda side: ClaimRuns(side.fence, workflows, now, limit)
        if draw(st.booleans()):
            run_id = draw(st.none() | some_run)
            before = draw(st.none() | st.integers(0, 9).map(lambda back: self._clock() - back))
            purge = PurgeRuns(run_id, before, limit=draw(st.integers(1, 3)))
            return lambda side: purge
        stored = self._tables().stored(draw(some_run), whole=True)
        if stored is None:
            return self._post()
        copy = ImportRun(replace(stored, row=replace(stored.row, run_id=draw(some_run), forked_from=stored.row.run_id)))
        return lambda side: copy


some_query = st.builds(
    RunQuery,
    status=st.sampled_from([None, "running", "failed"]),
    workflow=st.sampled_from([None, "w"]),
    idle=st.sampled_from([None, True, False]),
    idle_before=st.none() | some_time,
    waiting_for=st.sampled_from([None, "A", "B"]),
    tags=TAGS,
    parent=st.none(),
    paused=st.sampled_from([None, True, False]),
    parked=st.sampled_from([None, True, False]),
    after=st.none() | st.tuples(some_time, some_run),
    limit=st.integers(1, 5),
)


def plain_result(result: Any) -> Any:
    """A result without what only some outcomes have."""
    if isinstance(result, Posted):
        return result.outcome, result.status, result.kept if result.outcome == "full" else None
    return result


def plain_row(row: RunRow | None) -> RunRow | None:
    """A row without its owner, whose number is the store's."""
    if row is None:
        return None
    head = replace(row.head, waiting_for=tuple(sorted(row.head.waiting_for)))
    return replace(row, head=head, owner=None if row.owner is None else 1)


def plain_run(stored: StoredRun | None, *, is_whole: bool) -> StoredRun | None:
    """A run without what a store may choose. Chunks without ticks beside the snapshot may be given by `load` or not."""
    if stored is None:
        return None
    stored = comparable(stored)
    row = plain_row(stored.row)
    assert row is not None
    if not is_whole:
        ticking = tuple(chunk for chunk in stored.chunks if chunk.ticks)
        stored = replace(stored, chunks=ticking, event_ids=())
    return replace(stored, row=row)


def plain_messages(messages: list[InboxMessage]) -> list[bytes]:
    return [entry.data for entry in messages]


async def everything(store: Store, place: int) -> dict[str, Any]:
    """All that can be read of a store, with journals and streams from some place on."""
    seen: dict[str, Any] = {"counts": {name: count for name, count in (await store.counts()).items() if count}}
    seen["documents"] = {digest: await store.document(digest) for digest in DIGESTS}
    for run_id in RUN_IDS:
        seen[run_id] = (
            plain_row(await store.get(run_id)),
            plain_run(await store.export(run_id), is_whole=True),
            plain_run(await store.load(run_id), is_whole=False),
            plain_messages(await store.inbox(run_id, 0)),
            [chunk for chunk in await store.chunks(run_id, place, 1000) if chunk.ticks],
            await store.stream(run_id, place, 2),
        )
    return seen
