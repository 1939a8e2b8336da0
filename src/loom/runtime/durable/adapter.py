"""The decorator that makes a run durable: its `commit` is one operation of the store, for runs within their size."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from loom.core.adapter import RunAdapterDecorator
from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandPublishEvent,
    CommandStartChild,
    CommandStartTimer,
)
from loom.core.ticks import TickCancelRun, TickStepResult, TickTimeout, TickTimerFired
from loom.effects.off_loop import OFF_LOOP_BYTES, aside, is_heavier, weight_of
from loom.runtime.durable.names import SCHEDULES, TRIGGERS
from loom.runtime.durable.probation import has_result
from loom.runtime.durable.problems import problem_of
from loom.runtime.logs import log_stuck
from loom.runtime.masking import shown_published
from loom.runtime.run_head import HeadWriter, child_ended
from loom.store import codec
from loom.store.hash_chain import first_link
from loom.store.operations import CommitRun, PostMessage, StartRun
from loom.store.records import Snapshot, TimerRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loom.api.problems import ProblemKind
    from loom.core.adapter import InternalRunAdapter, RunDecorator, TaskSet
    from loom.core.commands import WorkflowCommand
    from loom.core.records import Published
    from loom.core.run import Batch, Run
    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick
    from loom.flows.program import Program
    from loom.runtime.durable.admission import Families
    from loom.runtime.durable.lease import Lease
    from loom.runtime.durable.metrics import RuntimeMetrics
    from loom.runtime.durable.probation import Probation
    from loom.runtime.durable.problems import Problems
    from loom.runtime.tracing import Tracing
    from loom.store.hash_chain import Links
    from loom.store.operations import Operation, Result
    from loom.store.records import Chunk, RunHead, RunRow


SNAPSHOT_TICKS, SNAPSHOT_BYTES = 500, 1 << 20
"""No snapshot for a tail that is shorter and smaller: replaying it costs milliseconds. A tick of a flow may do much."""

WEIGHED_UNITS = 2 << 20
"""Units of work of a flow after which its state is weighed at the earliest: one burst of its walk."""

_FOR_CHILDREN = frozenset({CommandStartChild, CommandCancelChild})
_STORED = _FOR_CHILDREN | {CommandStartTimer, CommandCancelTimer}
_OF_TIMERS = frozenset({TickTimerFired, TickTimeout})
_PRUNED = (SCHEDULES, TRIGGERS)
"""Runs of Loom's own that go on for years: only the last of their past is kept."""
_BYTES_PER_CHARACTER = 4
"""How many bytes of a chunk a character becomes at the most, escapes of control characters not counted."""
_AT_ONCE = -math.inf
"""The time of a wait that takes what is there and does not block."""


_NO_TIMERS: tuple[tuple[TimerRow, ...], tuple[int, ...]] = ((), ())


def _is_of_bodies(tick: WorkflowTick) -> bool:
    """Say whether a tick is the result of a body: it takes no message and fires no timer."""
    return type(tick) is TickStepResult


class Fenced(Exception):
    """Another process owns the run now; what was to be committed here has not happened."""


class _Written(NamedTuple):
    """What of a batch is encoded."""

    published: list[Published]
    """What it puts on the stream, as it is shown."""
    others: list[WorkflowCommand]
    """Its commands that the store has rows for: timers and children."""
    chunk: Chunk | None
    link: bytes | None
    """Of the chunk, or of the one before if there is none."""
    snapshot: Snapshot | None
    covered: int
    """How many ticks the snapshot before covers."""


class Keeper(Protocol):
    """What the decorator needs of the runtime that keeps the run."""

    fence: int
    downtime: float
    prune: bool
    limits: SizeLimits
    metrics: RuntimeMetrics
    tracing: Tracing | None
    links: Links
    problems: Problems
    lease: Lease
    families: Families
    probation: Probation
    decorate: RunDecorator | None
    """What a program wants to have around the adapter of each run."""

    def submit(self, operation: Operation) -> asyncio.Future[Result]:
        """Write, in one group with others."""
        ...

    def committed(self, run_id: str) -> None:
        """A run has more to show."""
        ...

    def at_rest(self, run_id: str) -> None:
        """Nothing can happen in the run by itself, but for timers."""
        ...

    def stirred(self, run_id: str) -> None:
        """The run has something to do again."""
        ...

    @property
    def is_awaited(self) -> Callable[[str], bool]:
        """Says whether a handler in this process wants the result of a run as an object."""
        ...


class DurableDecorator(RunAdapterDecorator):
    """Commits every batch to the store before anything of it happens."""

    def __init__(
        self,
        inner: InternalRunAdapter,
        core: Run,
        row: RunRow,
        keeper: Keeper,
        tail: tuple[int, int, int],
        timers: tuple[int, ...] = (),
        program: Program | None = None,
    ) -> None:
        super().__init__(inner)
        self._core = core
        self._found = timers
        """The timers that were stored when the run was recovered, until its first commit."""
        self.document: tuple[str, bytes] | None = None
        """The digest and text of a flow's document, if the run was stored without it: its first commit pins it."""
        self._row = row
        self._digest = row.document
        """The digest of the document that the row has after the commit under way."""
        self._keeper = keeper
        self._counted = keeper.metrics.of_workflow(row.workflow)
        self._stuck = row.head.stuck is not None
        """Whether the run was stuck by its last commit: that is logged once."""
        self._heads = HeadWriter(program, row.head.idle_reason)
        self._program = program
        self._ticks = row.head.ticks
        self._events = row.head.events
        self._link = row.head.link
        """Of the last chunk that is stored; None before the first one."""
        self._snapshot_bytes, self._tail_bytes, self._covered = tail
        """The weight of the last snapshot and of what came after it; how many ticks it covers. Pruning leaves what came
        after it, for readers of the stream."""
        # The ticks of earlier stays count too: a run that is released after every few ticks needs snapshots as well.
        self._tail_ticks = row.head.ticks - self._covered
        self._weight = self._weighed_at = 0
        """What a flow's state weighed when it was last weighed, and what the run had cost by then."""
        self._excess: str | None = None
        """Why the run may not go on: it is too large."""
        self.under_way: asyncio.Future[Result] | None = None
        """The commit that is not known to be durable yet."""
        self.head = row.head
        """The head that was stored last."""
        self.ending: RunHead | None = None
        """The head that the run's end was stored with."""
        self.has_pruned = False
        self.is_marked = False
        """Whether processes have died with the run, which its next result makes good."""
        self.last: Published | None = None
        """The last thing on the run's stream that was written here."""
        self._dropped = core.fields.dropped
        """How many ticks had come too late when that was last counted."""
        self.may_lead = False
        """Whether the run has pure steps, which go on while a commit is on its way."""
        self._barriers: list[tuple[int, asyncio.Future[None]]] = []
        """What bodies ahead of the journal wait for, each with the number of ticks that must be durable."""

    @override
    async def commit(self, batch: Batch) -> None:
        """Write the batch and wait until it is durable. If the run has another owner now, nothing was written."""
        if not batch.ticks and not batch.commands:
            return
        if self._is_heavy(batch):
            # Until it is submitted the run is drained by nobody, and its state is made here: the thread only reads it.
            self._whole()
            written = await aside("reduce", self._write, batch)
        else:
            written = self._write(batch)
        operation, metrics = self._operation(batch, written), self._keeper.metrics
        try:
            self.under_way = self._keeper.submit(operation)
            if not await self.under_way:
                raise Fenced(self._row.run_id)
        except BaseException:
            metrics.commands_undone += len(batch.commands)
            raise
        self._note(operation, batch)
        is_cleaning = self._core.fields.cleanup is not None  # which is bounded in time
        if self._excess is not None and operation.head.status == "running" and not is_cleaning:
            raise Outgrown(self._excess)

    @property
    def is_on_its_way(self) -> bool:
        """Whether a commit is with the store. Its operation is made: the run may change without changing that."""
        return self.under_way is not None and not self.under_way.done()

    @property
    def ahead(self) -> int:
        """How many ticks were reduced and are not known to be durable."""
        return self._core.fields.ticks - self._ticks

    def barrier(self) -> asyncio.Future[None]:
        """Return what is done when all that was reduced so far is durable; never, if that is lost."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._barriers.append((self._core.fields.ticks, future))
        return future

    def _pass_barriers(self) -> None:
        passed = [future for ticks, future in self._barriers if ticks <= self._ticks]
        self._barriers = [entry for entry in self._barriers if entry[0] > self._ticks]
        for future in passed:
            if not future.done():
                future.set_result(None)

    def _note(self, operation: CommitRun, batch: Batch) -> None:
        """A batch is durable: remember and tell what it has changed."""
        metrics = self._keeper.metrics
        metrics.ticks += len(batch.ticks)
        metrics.commands += len(batch.commands)
        if not self._ticks:
            self._counted.count("started")
        self.document = None
        self._ticks += len(batch.ticks)
        if self._barriers:
            self._pass_barriers()
        self._link = operation.head.link or self._link
        if operation.chunk is not None:
            self._events += operation.chunk.events
        self.head = operation.head
        if operation.head.status != "running":
            self.ending = operation.head
            self._counted.count(operation.head.status)
        self._keeper.committed(self._row.run_id)
        if self.is_marked and has_result(batch.ticks):
            self.is_marked = False
            self._keeper.probation.had_result(self._row.run_id)
        if self._heads.is_stuck is not self._stuck:
            self._stuck = self._heads.is_stuck
            if self._stuck:
                log_stuck(self._row.run_id, self._row.workflow, operation.head.error)

    def _is_heavy(self, batch: Batch) -> bool:
        """Say whether encoding a batch takes long. No value is looked at further than needed to tell."""
        weight = batch.weight
        if self._program is not None and weight <= OFF_LOOP_BYTES:
            published = [command.event for command in batch.commands if type(command) is CommandPublishEvent]
            weight += weight_of(published, OFF_LOOP_BYTES)
        if weight > OFF_LOOP_BYTES or self._is_weighing_due:
            return True
        # The state is weighed only if a snapshot may come: weighing costs time by the size of the state.
        longest = _BYTES_PER_CHARACTER * weight
        is_due = self._is_snapshot_due(self._tail_ticks + len(batch.ticks), self._tail_bytes + longest)
        return is_due and is_heavier((self._core.state,), OFF_LOOP_BYTES)

    def _write(self, batch: Batch) -> _Written:
        """Encode what a batch adds to the journal, and the state if it is time for a snapshot."""
        ticks, keeper = batch.ticks, self._keeper
        # Most batches only publish and run bodies: whatever else they ask for is looked for only if it is there.
        published: list[Published] = []
        others: list[WorkflowCommand] = []
        for command in batch.commands:
            if type(command) is CommandPublishEvent:
                published.append(command.event)
            elif type(command) in _STORED:
                others.append(command)
        if self._program is not None:
            published = [shown_published(self._program, event) for event in published]
            if (excess := keeper.limits.excess_values(*published)) is not None:
                raise Outgrown(excess)
        chunk, link = None, self._link
        self._digest = document = self._digest if self.document is None else self.document[0]
        if ticks or published:
            # What was written before there were links has ticks and no link: what follows does not bind the document.
            link = link or first_link(self._row.run_id, None if self._ticks else document)
            chunk = codec.encode_chunk(ticks, published, self._ticks, self._events, link)
            link = keeper.links.link(link, chunk)
        covered = self._covered
        snapshot = self._snapshot(len(ticks), len(chunk.data) if chunk is not None else 0)
        return _Written(published, others, chunk, link, snapshot, covered)

    def _operation(self, batch: Batch, written: _Written) -> CommitRun:
        """All that the batch changes in the store."""
        ticks, keeper, now = batch.ticks, self._keeper, self._core.fields
        published, others, chunk, link, snapshot, covered = written
        if now.dropped != self._dropped:
            keeper.metrics.stale_results += now.dropped - self._dropped
            self._dropped = now.dropped
        if published:
            self.last = published[-1]
        self._heads.follow(ticks, published)
        head, waiting_changed = self._heads.head(now, self._whole, keeper.downtime, link)
        if keeper.links.ring is not None:
            head = replace(head, mac=keeper.links.head_mac(self._row.run_id, self._row.workflow, self._digest, head))
        sent: list[StartRun | PostMessage] = []
        if others:
            sent += [self._to_child(command) for command in others if type(command) in _FOR_CHILDREN]
        if head.status != "running" and self._row.parent is not None:
            data = codec.encode_tick(child_ended(now, self._row.parent_ref))
            sent.append(PostMessage(self._row.parent, data, now.at))
        if keeper.problems.channels:
            sent += self._notices(head)
        taken: tuple[int, ...] = ()
        timers_set, timers_gone = _NO_TIMERS
        if others or self._found or not all(map(_is_of_bodies, ticks)):
            timers_set, timers_gone = self._timers(ticks, others)
            taken = tuple([tick.mail for tick in ticks if tick.mail])
        prune = covered if snapshot is not None and (keeper.prune or self._row.workflow.startswith(_PRUNED)) else 0
        self.has_pruned = self.has_pruned or prune > 0
        return CommitRun(
            self._row.run_id,
            keeper.fence,
            head,
            waiting_changed=waiting_changed,
            chunk=chunk,
            timers_set=timers_set,
            timers_gone=timers_gone,
            messages_taken=taken,
            snapshot=snapshot,
            sent=tuple(sent),
            prune=prune,
            document=self.document,
        )

    def _notices(self, head: RunHead) -> list[StartRun]:
        """The runs that tell operators what this commit says: that the run has failed, or is parked or stuck now."""
        kind: ProblemKind
        if head.status == "failed":
            kind, message = "failed", head.error
        elif head.parked is not None:
            kind, message = "parked", head.parked
        elif self._heads.is_stuck and not self._stuck:
            kind, message = "stuck", head.error
        else:
            return []
        problem = problem_of(self._row, head, kind, message)
        notices = self._keeper.problems.notices(problem, head.updated_at, self._keeper.downtime)
        return list(map(self._keeper.links.signed_start, notices))

    def _timers(self, ticks: list[Any], others: list[WorkflowCommand]) -> tuple[tuple[TimerRow, ...], tuple[int, ...]]:
        """Return the timers that are new, and the numbers of fired and cancelled ones."""
        fired = [tick.timer for tick in ticks if type(tick) in _OF_TIMERS]
        armed = [TimerRow(c.seq, c.due, c.purpose) for c in others if type(c) is CommandStartTimer]
        cancelled = [command.seq for command in others if type(command) is CommandCancelTimer]
        if fired or armed:
            self._keeper.metrics.timers_fired += len(fired)
            self._keeper.metrics.timers_armed += len(armed)
        return tuple(armed), (*fired, *cancelled, *self._timers_left())

    def _timers_left(self) -> tuple[int, ...]:
        """Timers that were stored before the run was recovered, and are not armed any more.

        A take-up asks for all of them again. One that is cancelled by the next tick of the same batch leaves the queue
        without a word, as if it had never been asked for; but its row is there.
        """
        if not self._found:
            return ()
        found, self._found = self._found, ()
        return tuple(seq for seq in found if seq not in self._core.fields.timers)

    def _whole(self) -> BrokerState:
        return self._core.state

    def _to_child(self, command: WorkflowCommand) -> StartRun | PostMessage:
        at = self._core.fields.at
        if isinstance(command, CommandCancelChild):
            return PostMessage(command.run_id, codec.encode_tick(TickCancelRun(at=at)), at)
        assert isinstance(command, CommandStartChild)
        start = StartRun(
            command.run_id,
            command.workflow,
            command.start.encode(),
            at,
            parent=self._row.run_id,
            parent_ref=command.seq,
            downtime=self._keeper.downtime,
        )
        return self._keeper.links.signed_start(start)

    def _is_snapshot_due(self, tail_ticks: int, tail_bytes: int) -> bool:
        """Say whether a tail of this size outweighs the last snapshot."""
        is_short = tail_ticks < SNAPSHOT_TICKS and tail_bytes < SNAPSHOT_BYTES
        return not is_short and tail_bytes >= self._snapshot_bytes

    @property
    def _is_weighing_due(self) -> bool:
        """Say whether a flow may have outgrown its limit since its state was last weighed.

        One small tick can let a flow build much, so neither the ticks nor their bytes tell how large its state is. What
        it builds costs units; weighing after as many of them as the state weighed costs little beside the work.
        """
        unweighed = self._core.cost - self._weighed_at
        return self._program is not None and unweighed >= max(WEIGHED_UNITS, self._weight)

    def _snapshot(self, ticks: int, size: int) -> Snapshot | None:
        """The state, when the ticks since the last one outweigh it."""
        self._tail_ticks += ticks
        self._tail_bytes += size
        if not self._row.workflow.startswith(_PRUNED):
            self._excess = self._keeper.limits.excess_history(self._ticks + ticks)
        is_due = self._is_snapshot_due(self._tail_ticks, self._tail_bytes)
        if not is_due and not self._is_weighing_due:
            return None
        limits, state = self._keeper.limits, self._core.state
        self._weight, self._weighed_at = limits.weigh(state), self._core.cost
        if (excess := limits.excess_weight(self._weight)) is not None:
            self._excess = excess
            return None
        if not is_due:
            return None
        data = codec.encode_state(state)
        if (excess := limits.excess_state(len(data))) is not None:
            self._excess = excess
            return None
        self._tail_ticks = self._tail_bytes = 0
        self._snapshot_bytes, self._covered = len(data), self._ticks + ticks
        return Snapshot(self._covered, data, self._keeper.links.seal(self._row.run_id, self._covered, data))

    @override
    async def wait_for_next_task(self, tasks: TaskSet, until: float | None) -> list[WorkflowTick]:
        """While nothing can happen by itself, the run may be released. A run that is ahead waits for nothing."""
        if self.may_lead and (self.ahead or self._core.pending):
            # Pure steps went on during the last commit: what they did is saved now, with what has come since. A tick
            # that was too costly to reduce there is pending.
            return await self.inner.wait_for_next_task(tasks, _AT_ONCE)
        if not self._core.is_blocked:
            ticks = await self.inner.wait_for_next_task(tasks, until)
        else:
            self._keeper.at_rest(self._row.run_id)
            ticks = await self.inner.wait_for_next_task(tasks, until)
            self._keeper.stirred(self._row.run_id)
        if until is not None and (late := self.inner.get_now() - until) >= 0:
            self._keeper.metrics.timer_lateness.observe(late)
        return ticks

    @override
    def write_to_event_stream(self, cursor: int, event: Published) -> None:
        """Readers read what is stored: nothing is kept here."""


# How large a run may become. One that is larger is parked as it is, and goes on when the limit is higher.


class Outgrown(Exception):
    """A run has become larger than allowed. What it did so far is stored; the text says what is too large."""


class SizeLimits(msgspec.Struct, frozen=True):
    """What runs are held to."""

    state: int | None = None
    """Bytes of the state, encoded."""
    history: int | None = None
    """Ticks of the journal."""

    def excess_state(self, size: int) -> str | None:
        """Why a run with a state of this size may not go on."""
        if self.state is None or size <= self.state:
            return None
        return f"Its state has {size} bytes, and max_state allows {self.state}: it goes on when that is raised."

    def excess_values(self, *values: Any) -> str | None:
        """Tell why a run may not go on that has these values to store, found out without encoding them.

        A flow can repeat a long text many times: it is there once in memory, but as often as it is named when encoded.
        """
        return None if self.state is None else self.excess_weight(weight_of(values, self.state))

    def weigh(self, state: BrokerState) -> int:
        """Weigh the planner's part of a state: there a run grows by what it works out. It ends past the limit."""
        return 0 if self.state is None else weight_of((state.plan,), self.state)

    def excess_weight(self, weight: int) -> str | None:
        """Tell why a run may not go on that has this much to store; None if it may."""
        if self.state is None or weight <= self.state:
            return None
        return f"It has more than {self.state} bytes to store, which max_state allows: it goes on when that is raised."

    def excess_history(self, ticks: int) -> str | None:
        """Say why a run with this number of ticks may not go on; None if it may."""
        if self.history is None or ticks <= self.history:
            return None
        return f"Its history has {ticks} ticks, and max_history allows {self.history}: it goes on when that is raised."

    def still_hold(self, row: RunRow, state: BrokerState, ticks: Iterable[WorkflowTick]) -> bool:
        """Whether a parked run would only be parked again for its size. To be cancelled it is never too large."""
        if row.head.parked is None or any(isinstance(tick, TickCancelRun) for tick in ticks):
            return False
        if self.excess_history(row.head.ticks) is not None:
            return True
        return self.state is not None and self.excess_state(len(codec.encode_state(state))) is not None
