"""A run as one execution on Temporal hosts it: the sans-IO run, its journal, its row, and the lock of its store.

Nothing here knows Temporal's protocol or a clock: time comes with each call. Every replay builds all of it anew.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from loom.core.run import Run
from loom.core.state import BrokerState, config_for
from loom.core.ticks import TickResume, TickRetryRun, TickStartRun
from loom.runtime.durable.recovery import parked_again, recovered_in_order, restored
from loom.runtime.masking import shown_published
from loom.runtime.run_head import HeadWriter
from loom.store import codec
from loom.store.deaths import POISON
from loom.store.records import Chunk, RunHead, RunRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loom.core.commands import CommandPublishEvent, WorkflowCommand
    from loom.core.records import Published
    from loom.core.run import Batch
    from loom.core.state import BrokerConfig, Outcome
    from loom.core.ticks import WorkflowTick
    from loom.flows.program import Program
    from loom.runtime.durable.registration import Registration
    from loom.temporal.payloads import RunMetadata, StartArgument

# -- the journal ------------------------------------------------------------------------------------------------------

_LARGE_CHUNK = 700_000
"""A larger chunk is split: as text within an answer it may have twice as many bytes."""


class _FlushedPart(NamedTuple):
    """The ticks of one flush, their events, and how many events there were after each tick."""

    first_tick: int
    ticks: list[WorkflowTick]
    first_cursor: int
    published: list[Published]
    marks: list[int]

    def halves(self) -> tuple[_FlushedPart, _FlushedPart]:
        """Split the part in two."""
        middle = len(self.ticks) // 2
        first, cursor = self.first_tick + middle, self.marks[middle - 1]
        event = cursor - self.first_cursor
        return (
            _FlushedPart(
                self.first_tick, self.ticks[:middle], self.first_cursor, self.published[:event], self.marks[:middle]
            ),
            _FlushedPart(first, self.ticks[middle:], cursor, self.published[event:], self.marks[middle:]),
        )


class ExecutionJournal:
    """The ticks and published events of one execution, in memory. They are encoded only when a query asks."""

    def __init__(self, first_tick: int, first_cursor: int, earlier: tuple[Chunk, ...], program: Program | None) -> None:
        self.first_tick = earlier[0].first_tick if earlier else first_tick
        self.first_cursor = earlier[0].first_cursor if earlier else first_cursor
        self.ticks = first_tick
        """The numbers of ticks and events so far, with all earlier executions."""
        self.events = first_cursor
        self._program = program
        self._parts: list[Chunk | _FlushedPart] = list(earlier)

    def add(self, batch: Batch, published: list[CommandPublishEvent]) -> bool:
        """Keep the ticks of a flush with the events that they have led to; say whether there were any."""
        if not batch.ticks:
            return False
        self._parts.append(
            _FlushedPart(self.ticks, batch.ticks, self.events, [c.event for c in published], batch.published)
        )
        self.ticks += len(batch.ticks)
        self.events += len(published)
        return True

    def chunks(self, is_before: Callable[[int, int], bool]) -> Iterator[Chunk]:
        """Yield the chunks in order. `is_before` drops a chunk by its last tick and its last cursor."""
        for part in self._parts:
            if isinstance(part, Chunk):
                if not is_before(part.first_tick + part.ticks, part.first_cursor + part.events):
                    yield part
            else:
                yield from self._encoded(part, is_before)

    def _encoded(self, part: _FlushedPart, is_before: Callable[[int, int], bool]) -> Iterator[Chunk]:
        """Yield a part as a chunk, or as several if an answer could not hold it, each with the events of its ticks."""
        if is_before(part.first_tick + len(part.ticks), part.first_cursor + len(part.published)):
            return
        shown = [shown_published(self._program, event) for event in part.published]
        chunk = codec.encode_chunk(part.ticks, shown, part.first_tick, part.first_cursor)
        if len(chunk.data) <= _LARGE_CHUNK or len(part.ticks) == 1:
            yield chunk
        else:
            for half in part.halves():
                yield from self._encoded(half, is_before)

    def last_event(self) -> Chunk:
        """Return the last event of the stream, as a chunk without ticks."""
        for part in reversed(self._parts):
            if isinstance(part, Chunk):
                if part.events:
                    return part
            elif part.published:
                shown = shown_published(self._program, part.published[-1])
                return codec.encode_chunk([], [shown], self.ticks, self.events - 1)
        return codec.encode_chunk([], [], self.ticks, self.events)


# -- the lock of the store --------------------------------------------------------------------------------------------

_SILENT_S = 30.0
"""Seconds of silence after which a writer loses its turn to another one. Histories depend on it: it never changes."""


class StoreLock:
    """Which execution may write the run's store; the others wait in line.

    No tick tells a run that a worker is dead. The writers of a dead worker begin again on another one, but perhaps only
    after bodies that wait for them have made room there. So a writer renews its request, and a silent one loses its
    turn.
    """

    def __init__(self) -> None:
        self._line: deque[int] = deque()
        self._heard = 0.0
        """When the holder last renewed its request, or got its turn."""
        self._attempts: dict[int, int] = {}
        """The newest attempt that was heard of, by execution."""

    @property
    def holder(self) -> int | None:
        """Return the number of the execution that may write now; None if there is none."""
        return self._line[0] if self._line else None

    def __contains__(self, seq: int) -> bool:
        """Say whether an execution may write, or waits for that."""
        return seq in self._line

    def is_outrun(self, seq: int, attempt: int) -> bool:
        """Say whether a newer attempt at an execution was heard of: then this one was taken for dead and is ignored."""
        newest = self._attempts[seq] = max(attempt, self._attempts.get(seq, 0))
        return attempt < newest

    def forget(self, seq: int, now: float) -> None:
        """Drop an execution that is over."""
        self._attempts.pop(seq, None)
        self.give_back(seq, now)

    def ask(self, seq: int, now: float) -> None:
        """Put an execution in line, or renew its request. Asking twice is asking once."""
        if self._line and self._line[0] != seq and now > self._heard + _SILENT_S:
            self.give_back(self._line[0], now)
        if seq not in self._line:
            self._line.append(seq)
        if self._line[0] == seq:
            self._heard = now

    def give_back(self, seq: int, now: float) -> None:
        """Take an execution out of the line: it has written, or does not want to any more."""
        if seq in self._line:
            if self._line[0] == seq:
                self._heard = now
            self._line.remove(seq)


# -- the run ----------------------------------------------------------------------------------------------------------


def is_poison(outcome: Outcome | None) -> bool:
    """Say whether a run was parked because its steps kill their workers: only a resume lets it go on."""
    return outcome is not None and outcome.status == "parked" and outcome.message.startswith(POISON)


class HostedRun:
    """One run, from the start of an execution to its end or to the next execution."""

    def __init__(
        self,
        argument: StartArgument,
        code: Registration,
        now: float,
        size_of: Callable[[WorkflowCommand], int],
        *,
        is_cancelled: bool = False,
    ) -> None:
        """Begin the run, or continue it. A cancelled run begins only to end: nothing is planned for it."""
        metadata, carried, stored = argument.metadata, argument.carried, argument.stored
        self.metadata: RunMetadata = metadata
        self.code = code
        self.executions = carried.executions if carried is not None else 0
        program = code.program
        earlier: tuple[Chunk, ...] = ()
        if carried is not None:
            state = codec.decode_state(metadata.run_id, carried.state.encode())
            ticks: list[WorkflowTick] = list(carried.backlog)
            if not is_poison(state.outcome):
                ticks.insert(0, TickResume(at=max(now, state.at), config=_told(argument, state)))
        elif stored is not None:
            earlier = stored.chunks
            if argument.retry or stored.row.head.status != "running":
                state = restored(metadata.run_id, stored.snapshot, stored.chunks, code.planner, code.codec.field)
                ticks = [_again(state, now, argument.healing)] if argument.retry else []
            else:
                # A cluster has no downtime of its own: below zero is the time in which the run was nowhere.
                state, ticks = recovered_in_order(stored, code, now, 0.0)
                ticks[0] = _as_recorded(ticks[0], argument, state)
        elif is_cancelled:
            state, ticks = (
                BrokerState(),
                [TickStartRun(at=now, run_id=metadata.run_id, config=argument.config or code.config)],
            )
        else:
            state, ticks = recovered_in_order(argument.as_stored(), code, now, 0.0)
            ticks[0] = _as_recorded(ticks[0], argument, state)
        if is_cancelled:
            del ticks[1:]  # what came before could not change how it ends
        self.core = Run(code.planner, state, code.codec.field, size_of)
        self.journal = ExecutionJournal(state.ticks, state.published, earlier, program)
        self.lock = StoreLock()
        self.code_since = carried.code_since if carried is not None else 0.0
        """How new the code is that it was told of last, in seconds since the epoch."""
        self.event_ids = frozenset(carried.event_ids if carried is not None else stored.event_ids if stored else ())
        """Ids of events that came before the run was on this cluster: its state has only later ones."""
        self.has_told_parent = False
        self.warnings: list[str] = []
        """Warnings for the operator, unless this is a replay."""
        self._heads = HeadWriter(program)
        self._last_head: RunHead | None = None
        if carried is not None:
            self.core.push_back(list(carried.children))
        self.core.feed(*ticks)

    @property
    def is_parked(self) -> bool:
        """Say whether it waits for other code."""
        outcome = self.core.fields.outcome
        return outcome is not None and outcome.status == "parked"

    @property
    def is_poison(self) -> bool:
        """Say whether it was parked because its steps kill their workers: only a resume lets it go on."""
        return is_poison(self.core.fields.outcome)

    @property
    def is_at_rest(self) -> bool:
        """Say whether it is over, or nothing but timers can move it from inside."""
        return self.core.is_blocked or self.core.is_over

    def has_seen(self, event_id: str) -> bool:
        """Say whether an event of this id has come."""
        return event_id in self.event_ids or event_id in self.core.fields.seen

    def resume(self, now: float, config: BrokerConfig | None, *, keeps_timeout: bool = False) -> None:
        """Resume the run with new code, or after it was parked. No body may be at work.

        A run that would only be parked for the same reason again stays as it is.
        """
        if config is not None:
            config = config_for(config, self.core.fields.config, keeps_timeout=keeps_timeout)
        if self.could_go_on(now, config):
            self.core.drop_work()
            self.core.feed(self._resume_tick(now, config))

    def could_go_on(self, now: float, config: BrokerConfig | None) -> bool:
        """Say whether the run, with this code, would not only be parked for the same reason again."""
        return not parked_again(self.core.state, [self._resume_tick(now, config)], self.code)

    def _resume_tick(self, now: float, config: BrokerConfig | None) -> TickResume:
        # A flow keeps what was decided when it began.
        is_same = config == self.core.fields.config or self.metadata.document is not None
        return TickResume(at=now, config=None if is_same else config)

    def follow(self, ticks: Sequence[WorkflowTick], published: Sequence[Published]) -> None:
        """Note a batch: it may have brought the reason for which the run is stuck."""
        self._heads.follow(ticks, published)

    def head(self) -> RunHead:
        """Return how far the run is, and what it waits for."""
        head, changed = self._heads.head(self.core.fields, lambda: self.core.state, 0.0)
        if not changed and self._last_head is not None:
            head = replace(head, waiters=self._last_head.waiters, waiting_for=self._last_head.waiting_for)
        self._last_head = head
        return head

    def row(self) -> RunRow:
        """Return the run as lists and calls know it."""
        metadata, head = self.metadata, self.head()
        return RunRow(
            metadata.run_id,
            metadata.workflow,
            metadata.created_at,
            head,
            tags=metadata.tags,
            ended_at=head.updated_at if head.status != "running" else None,
            parent=metadata.parent,
            parent_ref=metadata.parent_ref,
            forked_from=metadata.forked_from,
            document=metadata.document,
        )


def _again(state: BrokerState, now: float, healing: TickRetryRun | None) -> WorkflowTick:
    """Return the tick that lets a failed run go on. A run that was ended from outside has no outcome: it resumes."""
    if state.outcome is None:
        return TickResume(at=max(now, state.at))
    return replace(healing, at=now) if healing is not None else TickRetryRun(at=now)


def _as_recorded(tick: WorkflowTick, argument: StartArgument, state: BrokerState) -> WorkflowTick:
    """Return the first tick of a run, with the code that its argument names: a replay may have other code.

    A run that was imported without code is soon told of a worker's code. A flow keeps what was decided when it began.
    """
    if isinstance(tick, TickStartRun):
        return replace(tick, config=argument.config) if argument.config is not None else tick
    config = _told(argument, state)
    if argument.metadata.document is not None or config == state.config:
        config = None
    return replace(tick, config=config)


def _told(argument: StartArgument, state: BrokerState) -> BrokerConfig | None:
    """Return the code that an argument brings, for a run that has this state; None if it brings none."""
    config = argument.config
    return config_for(config, state.config, keeps_timeout=argument.keeps_timeout) if config is not None else None
