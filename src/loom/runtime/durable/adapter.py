"""The decorator that makes a run durable: its `commit` is one operation of the store.

May import loom.core, loom.effects and loom.store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from loom.core.adapter import RunAdapterDecorator
from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandPublishEvent,
    CommandStartChild,
    CommandStartTimer,
)
from loom.core.ticks import TickCancelRun, TickTimeout, TickTimerFired
from loom.runtime.durable.heads import HeadWriter, child_ended
from loom.runtime.durable.names import SCHEDULES
from loom.store import codec
from loom.store.operations import CommitRun, PostMail, StartRun
from loom.store.records import Snapshot, TimerRow

if TYPE_CHECKING:
    import asyncio

    from loom.core.adapter import InternalRunAdapter, TaskSet
    from loom.core.commands import WorkflowCommand
    from loom.core.reports import Published
    from loom.core.run import Batch, Run
    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick
    from loom.store.operations import Operation, Result
    from loom.store.records import RunRow

SNAPSHOT_TICKS, SNAPSHOT_BYTES = 500, 1 << 20
"""No snapshot for a tail that is shorter and smaller: replaying it costs milliseconds. A tick of a flow may do much."""


_FOR_CHILDREN = frozenset({CommandStartChild, CommandCancelChild})
_STORED = _FOR_CHILDREN | {CommandStartTimer, CommandCancelTimer}
_OF_TIMERS = frozenset({TickTimerFired, TickTimeout})
_PRUNED = frozenset({SCHEDULES})
"""Runs of Loom's own that go on for years: only the last of their past is kept."""


class Fenced(Exception):
    """The run belongs to somebody else now; what was to be committed here has not happened."""


class Keeper(Protocol):
    """What the decorator needs of the runtime that keeps the run."""

    fence: int
    downtime: float
    prune: bool

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
    ) -> None:
        super().__init__(inner)
        self._core = core
        self._found = timers
        """The timers that were stored when the run was taken up, until its first commit."""
        self.document: tuple[str, bytes] | None = None
        """The digest and text of a flow's document, if the run was stored without it: its first commit pins it."""
        self._row = row
        self._keeper = keeper
        self._heads = HeadWriter()
        self._ticks = row.head.ticks
        self._events = row.head.events
        self._snapshot_bytes, self._tail_bytes, self._covered = tail
        """The weight of the last snapshot and of what came after it; how many ticks it covers. Pruning leaves what came
        after it, for readers of the stream."""
        # Those of earlier visits count too: a run that is released after every few ticks needs its snapshots as well.
        self._tail_ticks = row.head.ticks - self._covered

    @override
    async def commit(self, batch: Batch) -> None:
        """Write the batch and wait until it is durable. If the run has another owner now, nothing was written."""
        if not batch.ticks and not batch.commands:
            return
        operation = self._operation(batch)
        if not await self._keeper.submit(operation):
            raise Fenced(self._row.run_id)
        self.document = None
        self._ticks += len(batch.ticks)
        if operation.chunk is not None:
            self._events += operation.chunk.events
        self._keeper.committed(self._row.run_id)

    def _operation(self, batch: Batch) -> CommitRun:
        """All that the batch changes in the store."""
        ticks, keeper, now = batch.ticks, self._keeper, self._core.look
        # Most batches only publish and run bodies: whatever else they ask for is looked for only if it is there.
        published = [command.event for command in batch.commands if type(command) is CommandPublishEvent]
        others = [command for command in batch.commands if type(command) in _STORED]
        head, waiting_changed = self._heads.head(now, self._whole, keeper.downtime)
        sent = [self._to_child(command) for command in others if type(command) in _FOR_CHILDREN]
        if head.status != "running" and self._row.parent is not None:
            data = codec.encode_tick(child_ended(now, self._row.parent_ref))
            sent.append(PostMail(self._row.parent, data, now.at))
        chunk = codec.encode_chunk(ticks, published, self._ticks, self._events) if ticks or published else None
        covered = self._covered
        snapshot = self._snapshot(len(ticks), len(chunk.data) if chunk is not None else 0)
        return CommitRun(
            self._row.run_id,
            keeper.fence,
            head,
            waiting_changed=waiting_changed,
            chunk=chunk,
            timers_set=tuple([TimerRow(c.seq, c.due, c.purpose) for c in others if type(c) is CommandStartTimer]),
            timers_gone=(*_timers_gone(ticks, others), *self._timers_left()),
            mail_taken=tuple([tick.mail for tick in ticks if tick.mail]),
            snapshot=snapshot,
            sent=tuple(sent),
            prune=covered if snapshot is not None and (keeper.prune or self._row.workflow in _PRUNED) else 0,
            document=self.document,
        )

    def _timers_left(self) -> tuple[int, ...]:
        """Timers that were stored before the run was taken up, and are not armed any more.

        A take-up asks for all of them again. One that is cancelled by the next tick of the same batch leaves the queue
        without a word, as if it had never been asked for; but its row is there.
        """
        if not self._found:
            return ()
        found, self._found = self._found, ()
        return tuple(seq for seq in found if seq not in self._core.look.timers)

    def _whole(self) -> BrokerState:
        return self._core.state

    def _to_child(self, command: WorkflowCommand) -> StartRun | PostMail:
        at = self._core.look.at
        if isinstance(command, CommandCancelChild):
            return PostMail(command.run_id, codec.encode_tick(TickCancelRun(at=at)), at)
        assert isinstance(command, CommandStartChild)
        return StartRun(
            command.run_id,
            command.workflow,
            command.start.encode(),
            at,
            parent=self._row.run_id,
            parent_ref=command.seq,
            downtime=self._keeper.downtime,
        )

    def _snapshot(self, ticks: int, size: int) -> Snapshot | None:
        """The state, when the ticks since the last one outweigh it."""
        self._tail_ticks += ticks
        self._tail_bytes += size
        is_short = self._tail_ticks < SNAPSHOT_TICKS and self._tail_bytes < SNAPSHOT_BYTES
        if is_short or self._tail_bytes < self._snapshot_bytes:
            return None
        data = codec.encode_state(self._core.state)
        self._tail_ticks = self._tail_bytes = 0
        self._snapshot_bytes, self._covered = len(data), self._ticks + ticks
        return Snapshot(self._covered, data)

    @override
    async def wait_for_next_task(self, tasks: TaskSet, until: float | None) -> list[WorkflowTick]:
        """While nothing can happen by itself, the run may be released."""
        if not self._core.is_blocked:
            return await self.inner.wait_for_next_task(tasks, until)
        self._keeper.at_rest(self._row.run_id)
        ticks = await self.inner.wait_for_next_task(tasks, until)
        self._keeper.stirred(self._row.run_id)
        return ticks

    @override
    def write_to_event_stream(self, cursor: int, event: Published) -> None:
        """Readers read what is stored: nothing is kept here."""


def _timers_gone(ticks: list[Any], others: list[WorkflowCommand]) -> tuple[int, ...]:
    """The timers that have fired or are not wanted any more."""
    fired = [tick.timer for tick in ticks if type(tick) in _OF_TIMERS]
    return tuple(fired + [command.seq for command in others if type(command) is CommandCancelTimer])
