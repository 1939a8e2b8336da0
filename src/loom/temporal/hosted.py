"""A run as one execution on Temporal hosts it: the sans-IO run, its journal, its row, and who may write its store.

Nothing here knows Temporal's protocol or a clock: time comes with each call. May import loom.core, loom.runtime and
loom.store.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.commands import CommandPublishEvent
from loom.core.run import Run
from loom.core.ticks import TickResume, TickRetryRun
from loom.runtime.durable.heads import HeadWriter
from loom.runtime.durable.takeup import parked_again, restored, taken_up
from loom.runtime.masking import shown_published
from loom.runtime.planners import program_in
from loom.store import codec
from loom.store.records import Chunk, RunHead, RunRow, StoredRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from loom.core.commands import WorkflowCommand
    from loom.core.config import BrokerConfig
    from loom.core.reports import Published
    from loom.core.run import Batch
    from loom.core.ticks import WorkflowTick
    from loom.flows.program import Program
    from loom.runtime.durable.registered import Registered
    from loom.temporal.payloads import Card, Opening


class Journal:
    """The ticks and published events of one execution. They are encoded only when somebody asks."""

    def __init__(self, first_tick: int, first_cursor: int, earlier: tuple[Chunk, ...], program: Program | None) -> None:
        self.first_tick = earlier[0].first_tick if earlier else first_tick
        self.first_cursor = earlier[0].first_cursor if earlier else first_cursor
        self.ticks = first_tick
        """How many ticks and events there are so far, those of earlier executions too."""
        self.events = first_cursor
        self._program = program
        self._parts: list[Chunk | tuple[int, list[WorkflowTick], int, list[Published]]] = list(earlier)

    def add(self, batch: Batch) -> bool:
        """Keep what a flush has brought; whether there was anything."""
        published = [command.event for command in batch.commands if type(command) is CommandPublishEvent]
        if not batch.ticks and not published:
            return False
        self._parts.append((self.ticks, batch.ticks, self.events, published))
        self.ticks += len(batch.ticks)
        self.events += len(published)
        return True

    def chunks(self, is_before: Callable[[int, int], bool]) -> Iterator[Chunk]:
        """The chunks in order, without those that end before what is wanted by their last tick and cursor."""
        for part in self._parts:
            if isinstance(part, Chunk):
                if not is_before(part.first_tick + part.ticks, part.first_cursor + part.events):
                    yield part
                continue
            first_tick, ticks, first_cursor, published = part
            if not is_before(first_tick + len(ticks), first_cursor + len(published)):
                shown = [shown_published(self._program, event) for event in published]
                yield codec.encode_chunk(ticks, shown, first_tick, first_cursor)

    def last_event(self) -> Chunk:
        """The last event of the stream, as a chunk without ticks."""
        for part in reversed(self._parts):
            if isinstance(part, Chunk):
                if part.events:
                    return part
            elif part[3]:
                shown = shown_published(self._program, part[3][-1])
                return codec.encode_chunk([], [shown], self.ticks, self.events - 1)
        return codec.encode_chunk([], [], self.ticks, self.events)


class StoreLock:
    """Which execution may write the run's store; the others wait in line."""

    def __init__(self) -> None:
        self._line: deque[int] = deque()

    @property
    def holder(self) -> int | None:
        """The number of the execution that may write now."""
        return self._line[0] if self._line else None

    def ask(self, seq: int) -> None:
        """An execution wants to write. Asking twice is asking once."""
        if seq not in self._line:
            self._line.append(seq)

    def give_back(self, seq: int) -> None:
        """An execution has written, or is over."""
        if seq in self._line:
            self._line.remove(seq)


class HostedRun:
    """One run, from the opening of an execution to its end or to the next execution."""

    def __init__(
        self, opening: Opening, code: Registered, now: float, size_of: Callable[[WorkflowCommand], int]
    ) -> None:
        card, carried, stored = opening.card, opening.carried, opening.stored
        self.card: Card = card
        self.code = code
        self.executions = carried.executions if carried is not None else 0
        program = program_in(code.planner)
        earlier: tuple[Chunk, ...] = ()
        if carried is not None:
            state = codec.decode_state(card.run_id, carried.state.encode())
            ticks: list[WorkflowTick] = [TickResume(at=max(now, state.at), config=opening.config), *carried.backlog]
        elif stored is not None:
            earlier = stored.chunks
            if opening.retry or stored.row.head.status != "running":
                state = restored(card.run_id, stored.snapshot, stored.chunks, code.planner, code.convert.field)
                ticks = [TickRetryRun(at=now)] if opening.retry else []
            else:
                state, ticks = taken_up(stored, code, now, stored.row.head.downtime)
        else:
            bare = _bare(card, opening)
            state, ticks = taken_up(bare, code, now, 0.0)
            if opening.config is not None:
                ticks[0] = replace(ticks[0], config=opening.config)
        self.core = Run(code.planner, state, code.convert.field, size_of)
        self.journal = Journal(state.ticks, state.published, earlier, program)
        self.lock = StoreLock()
        self.code_since = carried.code_since if carried is not None else 0.0
        """How new the code is that it was told of last."""
        self.event_ids = frozenset(carried.event_ids if carried is not None else stored.event_ids if stored else ())
        """Ids of events that came before the run was here: its state knows only those that came since."""
        self.has_told_parent = False
        self.warnings: list[str] = []
        """What the operator is told, unless this is a replay."""
        self._heads = HeadWriter(program)
        self._last_head: RunHead | None = None
        self.core.feed(*ticks)

    @property
    def is_parked(self) -> bool:
        """Whether it waits for other code."""
        outcome = self.core.look.outcome
        return outcome is not None and outcome.status == "parked"

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing happens in it by itself, but for timers; or it is over."""
        return self.core.is_blocked or self.core.is_over

    def has_seen(self, event_id: str) -> bool:
        """Whether an event of this id has come."""
        return event_id in self.event_ids or event_id in self.core.look.seen

    def resume(self, now: float, config: BrokerConfig | None) -> None:
        """Take the run up anew, with other code or after it was parked. No body may be at work.

        One that would only be parked for the same reason again stays as it is.
        """
        tick = TickResume(at=now, config=config if config != self.core.look.config else None)
        if not parked_again(self.core.state, [tick], self.code):
            self.core.drop_work()
            self.core.feed(tick)

    def head(self) -> RunHead:
        """How far the run is, and what it waits for."""
        head, changed = self._heads.head(self.core.look, lambda: self.core.state, 0.0)
        if not changed and self._last_head is not None:
            head = replace(head, waiters=self._last_head.waiters, waiting_for=self._last_head.waiting_for)
        self._last_head = head
        return head

    def row(self) -> RunRow:
        """The run as lists and calls know it."""
        card, head = self.card, self.head()
        return RunRow(
            card.run_id,
            card.workflow,
            card.created_at,
            head,
            tags=card.tags,
            ended_at=head.updated_at if head.status != "running" else None,
            parent=card.parent,
            parent_ref=card.parent_ref,
            forked_from=card.forked_from,
            document=card.document,
        )


def code_for(opening: Opening, code: Registered) -> Registered:
    """The version of the code that a run goes on with: a flow keeps the one that it began with."""
    return code.for_run(opening.stored if opening.stored is not None else _bare(opening.card, opening))


def _bare(card: Card, opening: Opening) -> StoredRun:
    """A run of which nothing is stored but its start."""
    text = opening.document
    # Whoever goes on from a state has ticks behind it, which tells a flow from a workflow in Python.
    ticks = 1 if opening.carried is not None else 0
    row = RunRow(card.run_id, card.workflow, card.created_at, RunHead("running", ticks, 0, 0.0), document=card.document)
    return StoredRun(row, (opening.start or "").encode(), None, (), document=text.encode() if text else None)
