"""The checkers of a simulation: they stand outside and look at every write, and at everything when it is over.

May import loom.core, loom.runtime and loom.store.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from loom.core.reducer import replay
from loom.runtime.durable.takeup import restored
from loom.store import codec
from loom.store.chain import Links, check_whole
from loom.store.errors import BrokenJournal
from loom.store.memory import MemoryStore
from loom.store.memory_transaction import Transaction
from loom.store.operations import CommitRun, Posted, PostMail, ReleaseRun, Started, StartRun
from loom.testing.simulation_mirror import RunMirror, differences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loom.runtime.durable.runtime import DurableRuntime
    from loom.store.memory import MemoryDatabase
    from loom.store.memory_tables import Tables
    from loom.store.operations import Operation, Result
    from loom.store.records import StoredRun

_TRACE = 60
_LOOK_EVERY = 8


class Checker:
    """Looks at every write of all workers. What breaks a promise is in `problems`."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.runs: dict[str, RunMirror] = {}
        self.ticks = self.writes = 0
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._trace: deque[tuple[float, str, Operation, Result]] = deque(maxlen=_TRACE)
        self._clock = clock
        self._digest = hashlib.blake2b(digest_size=16)
        self._event_ids: set[tuple[str, str]] = set()

    @property
    def digest(self) -> str:
        """A fingerprint of everything that was written, and when."""
        return self._digest.hexdigest()

    @property
    def trace(self) -> list[str]:
        """The last writes, for people."""
        return [f"{at:.6f} {worker} {_line(operation, result)}" for at, worker, operation, result in self._trace]

    def problem(self, text: str) -> None:
        """Something is not as promised."""
        self.problems.append(f"at {self._clock():.3f}, write {self.writes}: {text}")

    def wrote(
        self, worker: WorkerStore, group: Sequence[Operation], results: list[Result], before: Tables, after: Tables
    ) -> None:
        """A worker has written."""
        self.writes += 1
        at = self._clock()
        self._digest.update(f"{at} {worker.name}".encode())
        for operation, result in zip(group, results, strict=True):
            self.counts[type(operation).__name__] += 1
            self._digest.update(f"{type(operation).__name__} {getattr(operation, 'run_id', '')} {result}".encode())
            if result != []:
                self._trace.append((at, worker.name, operation, result))
            now = after if len(group) == 1 else _after(operation, before)
            self._look(worker, operation, result, before, now)
            before = now

    def _look(self, worker: WorkerStore, operation: Operation, result: Result, before: Tables, after: Tables) -> None:
        if isinstance(operation, StartRun):
            if isinstance(result, Started) and result.created:
                self.runs[operation.run_id] = RunMirror(operation.run_id)
                if operation.mail is not None:
                    self._posted(operation.mail, Posted("posted"))
        elif isinstance(operation, PostMail):
            self._posted(operation, result)
        elif isinstance(operation, CommitRun):
            if result:
                self._committed(worker, operation, before, after)
            elif (owner := before.runs[operation.run_id].row.owner) == operation.fence:
                self.problem(f"run {operation.run_id}: a commit of its owner {owner} was refused")
        elif isinstance(operation, ReleaseRun):
            was = before.runs.get(operation.run_id)
            if was is not None and was.mail and was.row.owner == operation.fence and result:
                self.problem(f"run {operation.run_id} was released, but has mail")

    def _posted(self, operation: PostMail, result: Result) -> None:
        assert isinstance(result, Posted)
        if operation.event_id is None:
            return
        known = (operation.run_id, operation.event_id) in self._event_ids
        if result.outcome == "posted":
            self._event_ids.add((operation.run_id, operation.event_id))
        if known != (result.outcome == "repeated"):
            self.problem(f"run {operation.run_id}: event {operation.event_id} was {result.outcome}, known: {known}")

    def _committed(self, worker: WorkerStore, operation: CommitRun, before: Tables, after: Tables) -> None:
        run_id = operation.run_id
        mirror = self.runs[run_id]
        was, now = before.runs.get(run_id), after.runs[run_id]
        assert was is not None  # a run is started in a group before its commits
        if operation.chunk is not None:
            self.ticks += operation.chunk.ticks
            self._digest.update(operation.chunk.data)
        document = after.text(now.row.document)
        if document is not None:
            mirror.follow(document)
        for text in mirror.committed(operation, was, now):
            self.problem(f"run {run_id}: {text}")
        for sent in operation.sent:
            self.counts[f"sent {type(sent).__name__}"] += 1
            if isinstance(sent, StartRun) and sent.run_id not in before.runs:
                self.runs.setdefault(sent.run_id, RunMirror(sent.run_id))
        if operation.snapshot is not None:
            self.counts["snapshot"] += 1
        if self.counts["CommitRun"] % _LOOK_EVERY == 0 or operation.head.status != "running":
            self._compare(worker, mirror)

    def _compare(self, worker: WorkerStore, mirror: RunMirror) -> None:
        """The run in its owner's memory is the run in the journal."""
        resident = worker.runtime.resident(mirror.run_id) if worker.runtime is not None else None
        if resident is not None and resident.state.ticks == mirror.state.ticks and resident.state != mirror.state:
            self.problem(f"run {mirror.run_id}: replay is not live: {differences(mirror.state, resident.state)}")

    # -- at the end ---------------------------------------------------------------------------------------------------

    def finish(self, tables: Tables) -> None:
        """Look at everything that is stored."""
        for run_id, mirror in self.runs.items():
            kept = tables.runs.get(run_id)
            if kept is None:
                self.problem(f"run {run_id} was accepted, but is not there any more")
                continue
            for text in self._stored(mirror, tables):
                self.problem(f"run {run_id}: {text}")

    def _stored(self, mirror: RunMirror, tables: Tables) -> Iterator[str]:
        kept, run_id = tables.runs[mirror.run_id], mirror.run_id
        row = kept.row
        if row.head.status == "running":
            yield f"it has not ended: {row}, timers {kept.timers}, mail {kept.mail}"
        if row.first_tick == 0:
            ticks = [tick for chunk in kept.journal.from_tick(-1) for tick in codec.decode_ticks(run_id, chunk)]
            again = replay(ticks, mirror.planner, None, mirror.read_field)
            if again != mirror.state:
                yield f"the journal from its start gives another state: {differences(again, mirror.state)}"
            stream = [
                entry for chunk in kept.journal.from_cursor(0, len(ticks) + 1) for entry in _entries(run_id, chunk)
            ]
            if stream != mirror.published:
                yield "the stream that is stored is not the one that was written"
        part = kept.stored(whole=False)
        short = restored(run_id, part.snapshot, part.chunks, mirror.planner, mirror.read_field)
        if short != mirror.state:
            yield f"the snapshot and the ticks behind it give another state: {differences(short, mirror.state)}"
        yield from _broken_links(kept.stored(whole=True))


def _broken_links(run: StoredRun) -> Iterator[str]:
    try:
        check_whole(run)
        if Links().check(run).unchained:
            yield "there are chunks without a link"
    except BrokenJournal as error:
        yield str(error)


def _after(operation: Operation, before: Tables) -> Tables:
    """The tables between two operations of a group, which nobody else ever sees."""
    single = Transaction(before)
    single.apply([operation])
    return single.finish()


def _entries(run_id: str, chunk: Any) -> list[Any]:
    return codec.decode_published(run_id, chunk)


def _line(operation: Operation, result: Result) -> str:
    """One operation, for people."""
    name, run_id = type(operation).__name__, getattr(operation, "run_id", "")
    if isinstance(operation, CommitRun):
        chunk = operation.chunk
        ticks = [type(tick).__name__[4:] for tick in codec.decode_ticks(run_id, chunk)] if chunk is not None else []
        at = chunk.first_tick if chunk is not None else "-"
        refused = "" if result else " REFUSED"
        return f"commit {run_id} {at}: {' '.join(ticks)} [{operation.head.status}]{refused}"
    shown: Any = result
    if isinstance(result, Started):
        shown = "created" if result.created else "known"
    elif isinstance(result, Posted):
        shown = result.outcome
    return f"{name} {run_id} -> {shown}"


class WorkerStore(MemoryStore):
    """The store of one worker, watched."""

    def __init__(self, name: str, database: MemoryDatabase, checker: Checker, clock: Callable[[], float]) -> None:
        super().__init__(database, clock=clock)
        self.name = name
        self.runtime: DurableRuntime | None = None
        """Who writes here."""
        self._checker = checker

    @override
    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        """As every store, before the eyes of the checker."""
        before = self.database.tables
        results = await super().apply(group)
        try:
            self._checker.wrote(self, group, results, before, self.database.tables)
        except Exception as error:  # noqa: BLE001 - whoever writes shall not be disturbed by whoever looks
            self._checker.problem(f"what was written cannot be read: {error!r}")
        return results
