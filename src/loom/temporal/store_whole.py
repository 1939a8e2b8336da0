"""Everything of a run on a cluster, as the record that another store can take. May import loom.store and its room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.store import codec
from loom.store.errors import CorruptRecord, StoreUnavailable
from loom.store.records import Snapshot, StoredRun, TimerRow
from loom.temporal.names import QUERY_ORIGIN, QUERY_STATE
from loom.temporal.payloads import Opening
from loom.temporal.rows import origin_of
from loom.temporal.store_cluster import NotThere

if TYPE_CHECKING:
    from loom.core.state import BrokerState
    from loom.store.records import Chunk, RunRow
    from loom.temporal.rows import Origin
    from loom.temporal.store_cluster import Cluster
    from loom.temporal.store_reading import Reading

_PAGE = 64
_TRIES = 10


def _timers(state: BrokerState) -> tuple[TimerRow, ...]:
    return tuple(TimerRow(number, timer.due, timer.purpose) for number, timer in sorted(state.timers.items()))


class Whole:
    """Puts together what executions have of a run."""

    def __init__(self, cluster: Cluster, reading: Reading) -> None:
        self._cluster = cluster
        self._reading = reading

    async def stored(self, run_id: str, *, whole: bool) -> StoredRun | None:
        """A run as a record of one moment: with its whole journal, or only with the state that stands for it."""
        try:
            origin = await self.origin(run_id)
        except NotThere:
            return None
        if origin.opening is None:
            return None
        for _ in range(_TRIES):
            row = await self._reading.row(run_id)
            if row is None:
                return None
            found = await self._at(row, origin, whole)
            if found is not None:
                return found
        raise StoreUnavailable(f"Run {run_id!r} moves too fast to be read as a whole: pause it, or try again.")

    async def _at(self, row: RunRow, origin: Origin, whole: bool) -> StoredRun | None:
        """The run as its row has it; None if it has gone on meanwhile."""
        run_id, ticks = row.run_id, row.head.ticks
        text = await self._document(row, origin)
        if not ticks:
            return StoredRun(row, origin.start, None, (), document=text)
        data = await self.state(run_id)
        state = codec.decode_state(run_id, data)
        if state.ticks != ticks:
            return None
        chunks = await self._all_chunks(run_id, ticks) if whole else ()
        if chunks is None:
            return None
        return StoredRun(
            row,
            origin.start,
            Snapshot(ticks, data),
            chunks,
            timers=_timers(state) if row.head.status == "running" else (),
            event_ids=tuple(sorted(state.seen)) if whole else (),
            document=text,
        )

    async def _document(self, row: RunRow, origin: Origin) -> bytes | None:
        """The text of a run's flow. One that was started without it was told it by a worker."""
        if row.document is None or origin.document is not None:
            return origin.document
        opening = await self._cluster.query(row.run_id, QUERY_ORIGIN, Opening)
        return opening.document.encode() if opening.document is not None else None

    async def _all_chunks(self, run_id: str, ticks: int) -> tuple[Chunk, ...] | None:
        chunks: list[Chunk] = []
        position = 0
        while position < ticks:
            more = await self._reading.chunks(run_id, position, _PAGE)
            # The journal of a run that came from elsewhere may have been pruned there.
            if not more or (chunks and more[0].first_tick != position):
                raise CorruptRecord(run_id, f"tick {position}", "the cluster does not tell it")
            chunks += more
            position = more[-1].first_tick + more[-1].ticks
        return tuple(chunks) if position == ticks else None

    async def state(self, run_id: str) -> bytes:
        """The state of a run, as the codec writes it."""
        return (await self._cluster.query_payload(run_id, QUERY_STATE)).data

    async def origin(self, run_id: str) -> Origin:
        """What a run was started with, as far as the cluster still has it. `NotThere`."""
        newest = await origin_of(self._cluster, run_id)
        if newest.opening is None or newest.opening.carried is None:
            return newest
        try:
            return await origin_of(self._cluster, run_id, newest.first)
        except NotThere:
            return newest
