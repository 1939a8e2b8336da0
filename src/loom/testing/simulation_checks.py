"""Checkers of a simulation: they see every write from outside, and everything when it is over.

Each run has a mirror that is rebuilt from the committed bytes, never from what the runtime has in memory. The mirror
reports every promise that a commit breaks.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from loom.core.commands import CommandPublishEvent, CommandRunWorker
from loom.core.invariants import TracedDraft, violations, wrong_moves
from loom.core.records import SupersededReport
from loom.core.reducer import replay, transition
from loom.core.state import BrokerState
from loom.core.ticks import (
    Source,
    TickEditStore,
    TickPublishEvent,
    TickRetryRun,
    TickSkip,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
)
from loom.effects.flow_codec import FLOW_CODEC, AnyEventCodec
from loom.flows.invariants import flow_violations
from loom.flows.planner import FlowPlanner
from loom.runtime.durable.recovery import restored
from loom.runtime.planners import planner_for
from loom.runtime.run_head import status_of
from loom.store import codec
from loom.store.errors import BrokenJournal
from loom.store.hash_chain import Links, check_whole
from loom.store.memory import MemoryStore
from loom.store.memory_tables import Transaction
from loom.store.operations import CommitRun, Posted, PostMessage, ReleaseRun, Started, StartRun
from loom.store.records import TimerRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loom.core.records import Published
    from loom.core.ticks import WorkflowTick
    from loom.runtime.durable.runtime import DurableRuntime
    from loom.store.memory import MemoryDatabase
    from loom.store.memory_tables import KeptRun, Tables
    from loom.store.operations import Operation, Result
    from loom.store.records import StoredRun


_TRACE = 60
_LOOK_EVERY = 8


class Checker:
    """Sees every write of all workers, and collects broken promises in `problems`."""

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
        """The last writes, a line each."""
        return [f"{at:.6f} {worker} {_line(operation, result)}" for at, worker, operation, result in self._trace]

    def problem(self, text: str) -> None:
        """Note a broken promise."""
        self.problems.append(f"at {self._clock():.3f}, write {self.writes}: {text}")

    def wrote(
        self, worker: WorkerStore, group: Sequence[Operation], results: list[Result], before: Tables, after: Tables
    ) -> None:
        """Check a group that a worker has written."""
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
                if operation.message is not None:
                    self._posted(operation.message, Posted("posted"))
        elif isinstance(operation, PostMessage):
            self._posted(operation, result)
        elif isinstance(operation, CommitRun):
            if result:
                self._committed(worker, operation, before, after)
            elif (owner := before.runs[operation.run_id].row.owner) == operation.fence:
                self.problem(f"run {operation.run_id}: a commit of its owner {owner} was refused")
        elif isinstance(operation, ReleaseRun):
            was = before.runs.get(operation.run_id)
            if was is not None and was.inbox and was.row.owner == operation.fence and result:
                self.problem(f"run {operation.run_id} was released, but has mail")

    def _posted(self, operation: PostMessage, result: Result) -> None:
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
        """Check that the run in its owner's memory is the run in the journal."""
        active = worker.runtime.active_run(mirror.run_id) if worker.runtime is not None else None
        if active is not None and active.state.ticks == mirror.state.ticks and active.state != mirror.state:
            self.problem(f"run {mirror.run_id}: replay is not live: {differences(mirror.state, active.state)}")

    # -- at the end ---------------------------------------------------------------------------------------------------

    def finish(self, tables: Tables) -> None:
        """Check everything that is stored at the end."""
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
            yield f"it has not ended: {row}, timers {kept.timers}, mail {kept.inbox}"
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
    """Compute the tables between two operations of a group, which are never stored."""
    single = Transaction(before)
    single.apply([operation])
    return single.finish()


def _entries(run_id: str, chunk: Any) -> list[Any]:
    return codec.decode_published(run_id, chunk)


def _line(operation: Operation, result: Result) -> str:
    """Describe one operation in a line."""
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
    """The store of one worker, which reports its writes to the checker."""

    def __init__(self, name: str, database: MemoryDatabase, checker: Checker, clock: Callable[[], float]) -> None:
        super().__init__(database, clock=clock)
        self.name = name
        self.runtime: DurableRuntime | None = None
        """The runtime that writes here; None before it is made."""
        self._checker = checker

    @override
    async def apply(self, group: Sequence[Operation]) -> list[Result]:
        """See the port. The checker sees each write."""
        before = self.database.tables
        results = await super().apply(group)
        try:
            self._checker.wrote(self, group, results, before, self.database.tables)
        except Exception as error:  # noqa: BLE001 - a checker must not disturb the writer
            self._checker.problem(f"what was written cannot be read: {error!r}")
        return results


_FIELD = AnyEventCodec().field


class RunMirror:
    """One run, rebuilt from its commits."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.published: list[Published] = []
        """Its whole stream."""
        self.taken: set[int] = set()
        """Numbers of inbox messages that came into its journal."""
        self.endings = self.retries = 0
        self.planner, self.read_field = planner_for(None), _FIELD
        self._draft = TracedDraft(BrokerState(), self.planner, self.read_field)
        self._state: BrokerState | None = None
        self._fired: set[int] = set()
        self._executions: dict[int, int] = {}
        """Execution by the number of the command to run a body."""
        self._effects: dict[int, set[tuple[int, int]]] = {}
        """Effects of executions on the run, by item: (execution, ordinal)."""
        self._written: dict[int, int] = {}
        """Number of valid writes to the stream, by execution."""

    def follow(self, document: bytes) -> None:
        """Use the planner of a flow, whose document is stored with the run."""
        if not self._draft.ticks:
            self.planner, self.read_field = planner_for(document), FLOW_CODEC.field
            self._draft = TracedDraft(BrokerState(), self.planner, self.read_field)

    @property
    def state(self) -> BrokerState:
        """The run after all its commits."""
        if self._state is None:
            self._state = self._draft.freeze()
        return self._state

    def committed(self, operation: CommitRun, before: KeptRun, after: KeptRun) -> Iterator[str]:
        """Take in a commit, and yield its problems."""
        ticks: list[WorkflowTick] = []
        published: list[Published] = []
        chunk = operation.chunk
        if chunk is not None:
            ticks = codec.decode_ticks(self.run_id, chunk)
            published = codec.decode_published(self.run_id, chunk)
            if (chunk.first_tick, chunk.first_cursor) != (self._draft.ticks, self._draft.published):
                yield f"a chunk begins at {chunk.first_tick} / {chunk.first_cursor}, not at the end of the journal"
        yield from self._messages(operation, ticks, before)
        yield from self._timers(ticks, before)
        led_to: list[Published] = []
        for tick in ticks:
            yield from self._reduce(tick, led_to)
        if led_to != published:
            yield f"the ticks publish {led_to}, but {published} was stored"
        self.published += published
        self._state = None
        yield from self._row(operation, after)

    def _messages(self, operation: CommitRun, ticks: list[WorkflowTick], before: KeptRun) -> Iterator[str]:
        """Check that each message that leaves the inbox comes into the journal once."""
        by_message = [tick.mail for tick in ticks if tick.mail]
        if sorted(by_message) != sorted(operation.messages_taken):
            yield f"the mail {by_message} is in the journal, but {operation.messages_taken} left the inbox"
        for tick in ticks:
            if not tick.mail:
                continue
            if tick.mail in self.taken:
                yield f"mail {tick.mail} came twice"
            self.taken.add(tick.mail)
            data = before.inbox.get(tick.mail)
            if data is None or type(codec.decode_tick(data, self.run_id)) is not type(tick):
                yield f"mail {tick.mail} became {type(tick).__name__}, but it was {data!r}"

    def _timers(self, ticks: list[WorkflowTick], before: KeptRun) -> Iterator[str]:
        """Check that timers were stored, and fire no earlier than stored."""
        for tick in ticks:
            if not isinstance(tick, TickTimerFired | TickTimeout):
                continue
            stored = before.timers.get(tick.timer)
            if stored is None:
                yield f"timer {tick.timer} fired, but was not stored"
            elif tick.at < stored.due:
                yield f"timer {tick.timer} fired {stored.due - tick.at} s early"

    def _reduce(self, tick: WorkflowTick, led_to: list[Published]) -> Iterator[str]:
        draft = self._draft
        version, timers, shown = draft.store_version, draft.timers, len(led_to)
        transition(draft, tick)
        yield from wrong_moves(draft.take_moves(tick), tick)
        self._take_commands(led_to)
        match tick:
            case TickRetryRun():
                self.retries += 1
                self._fired.difference_update(draft.timers)  # timers that were armed when the run failed
            case TickTimerFired() | TickTimeout() if tick.timer in timers and tick.timer not in draft.timers:
                if tick.timer in self._fired:
                    yield f"timer {tick.timer} fired twice"
                self._fired.add(tick.timer)
            case TickSkip():
                gone = {number for number in timers if number not in draft.timers}
                if gone & self._fired:
                    yield f"of the timers {sorted(gone)} that were skipped, some had fired"
                self._fired |= gone
            case TickStepResult():
                # The work is done, or a wrong answer to a collect call lets the same execution have its effects again.
                self._effects.pop(tick.item, None)
            case TickEditStore(source=Source() as source) if draft.store_version > version:
                yield from self._effect(source)
            case TickPublishEvent(source=Source() as source) if tick.event in led_to[shown:]:
                yield from self._write(source, tick.writes)
            case _:
                pass

    def _take_commands(self, led_to: list[Published]) -> None:
        for command in self._draft.commands:
            if isinstance(command, CommandPublishEvent):
                led_to.append(command.event)
                if isinstance(command.event, SupersededReport):
                    superseded = sum(last + 1 - first for first, last in command.event.cursors)
                    self._written[command.event.execution] -= superseded
            elif isinstance(command, CommandRunWorker):
                self._executions[command.seq] = command.execution
        self._draft.commands = []

    def _effect(self, source: Source) -> Iterator[str]:
        """Check that an effect of an execution is applied once."""
        execution = self._executions.get(source.seq)
        done = self._effects.setdefault(source.item, set())
        if execution is not None and (execution, source.ordinal) in done:
            yield f"effect {source.ordinal} of execution {execution} was applied twice"
        elif execution is not None:
            done.add((execution, source.ordinal))

    def _write(self, source: Source, number: int) -> Iterator[str]:
        """Check that a write to the stream comes once, unless the earlier one is superseded."""
        execution = self._executions.get(source.seq)
        if execution is None:
            return
        if number != self._written.get(execution, 0):
            yield f"write {number} of execution {execution} is not the next one on the stream"
        self._written[execution] = number + 1

    def _row(self, operation: CommitRun, after: KeptRun) -> Iterator[str]:
        """Check that the row agrees with the state."""
        state, head = self.state, after.row.head
        status = status_of(state.outcome)
        for name, shown, real in (
            ("status", head.status, status),
            ("ticks", head.ticks, state.ticks),
            ("events", head.events, state.published),
            ("idle_since", head.idle_since, state.idle_since),
            ("paused", head.paused, state.paused),
            ("kept", head.kept, state.waiting.kept_count),
        ):
            if shown != real:
                yield f"the row says {name} {shown}, but it is {real}"
        if state.is_idle() != (state.idle_since is not None):
            yield f"idle is {state.is_idle()}, but idle_since is {state.idle_since}"
        if status == "running":
            timers: dict[int, TimerRow] = {s: TimerRow(s, t.due, t.purpose) for s, t in state.timers.items()}
        else:
            timers = {}
            self.endings += 1
            if self.endings > 1 + self.retries:
                yield f"it has ended {self.endings} times, and was retried {self.retries} times"
        if dict(after.timers.items()) != timers and not (state.outcome and status == "running"):
            yield f"the timers {sorted(after.timers)} are stored, but {sorted(timers)} are armed"
        yield from violations(state)
        if isinstance(self.planner, FlowPlanner):
            yield from flow_violations(state, self.planner.program)
        if operation.snapshot is not None and codec.decode_state(self.run_id, operation.snapshot.data) != state:
            yield "the snapshot is not the state"


def differences(one: Any, other: Any) -> str:
    """Describe the fields in which two states differ."""
    names = [name for name in BrokerState.__struct_fields__ if getattr(one, name) != getattr(other, name)]
    return "; ".join(f"{name}: {getattr(one, name)!r} / {getattr(other, name)!r}"[:400] for name in names)
