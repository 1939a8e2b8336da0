"""A run as one execution on Temporal hosts it: the sans-IO run, its journal, its row, and who may write its store.

Nothing here knows Temporal's protocol or a clock: time comes with each call. May import loom.core, loom.runtime,
loom.store and the journal beside it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.core.config import config_for
from loom.core.run import Run
from loom.core.state import BrokerState
from loom.core.ticks import TickResume, TickRetryRun, TickStartRun
from loom.runtime.durable.heads import HeadWriter
from loom.runtime.durable.takeup import parked_again, restored, taken_up
from loom.runtime.planners import program_in
from loom.store import codec
from loom.store.deaths import POISON
from loom.store.records import Chunk, RunHead, RunRow, StoredRun
from loom.temporal.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.core.commands import WorkflowCommand
    from loom.core.config import BrokerConfig
    from loom.core.reports import Published
    from loom.core.state import Outcome
    from loom.core.ticks import WorkflowTick
    from loom.runtime.durable.registered import Registered
    from loom.temporal.payloads import Card, Opening

_SILENT_S = 30.0
"""A writer that is silent for so long loses its turn if another one asks. Histories depend on it: it never changes."""


class StoreLock:
    """Which execution may write the run's store; the others wait in line.

    Nobody tells a run that a worker is dead. Its writers begin again elsewhere, but perhaps only after those that wait
    for them have made room there. So whoever writes for long says so now and then.
    """

    def __init__(self) -> None:
        self._line: deque[int] = deque()
        self._heard = 0.0
        """When there was a sign of the one who may write, or when it became its turn."""
        self._attempts: dict[int, int] = {}
        """The newest attempts of those who were heard of."""

    @property
    def holder(self) -> int | None:
        """The number of the execution that may write now."""
        return self._line[0] if self._line else None

    def __contains__(self, seq: int) -> bool:
        """Whether an execution may write, or waits for that."""
        return seq in self._line

    def is_outrun(self, seq: int, attempt: int) -> bool:
        """Whether a newer attempt at an execution was heard of: this one was taken for dead, and does not count."""
        newest = self._attempts[seq] = max(attempt, self._attempts.get(seq, 0))
        return attempt < newest

    def forget(self, seq: int, now: float) -> None:
        """An execution is over."""
        self._attempts.pop(seq, None)
        self.give_back(seq, now)

    def ask(self, seq: int, now: float) -> None:
        """An execution wants to write, or still does. Asking twice is asking once."""
        if self._line and self._line[0] != seq and now > self._heard + _SILENT_S:
            self.give_back(self._line[0], now)
        if seq not in self._line:
            self._line.append(seq)
        if self._line[0] == seq:
            self._heard = now

    def give_back(self, seq: int, now: float) -> None:
        """An execution has written, or does not want to any more."""
        if seq in self._line:
            if self._line[0] == seq:
                self._heard = now
            self._line.remove(seq)


def is_poison(outcome: Outcome | None) -> bool:
    """Say whether a run was parked because its steps kill their workers: only a resume lets it go again."""
    return outcome is not None and outcome.status == "parked" and outcome.message.startswith(POISON)


class HostedRun:
    """One run, from the opening of an execution to its end or to the next execution."""

    def __init__(
        self,
        opening: Opening,
        code: Registered,
        now: float,
        size_of: Callable[[WorkflowCommand], int],
        *,
        is_cancelled: bool = False,
    ) -> None:
        """Begin the run, or go on with it. If it is cancelled, it only does so to end: nothing is planned for it."""
        card, carried, stored = opening.card, opening.carried, opening.stored
        self.card: Card = card
        self.code = code
        self.executions = carried.executions if carried is not None else 0
        program = program_in(code.planner)
        earlier: tuple[Chunk, ...] = ()
        if carried is not None:
            state = codec.decode_state(card.run_id, carried.state.encode())
            ticks: list[WorkflowTick] = list(carried.backlog)
            if not is_poison(state.outcome):
                ticks.insert(0, TickResume(at=max(now, state.at), config=_told(opening, state)))
        elif stored is not None:
            earlier = stored.chunks
            if opening.retry or stored.row.head.status != "running":
                state = restored(card.run_id, stored.snapshot, stored.chunks, code.planner, code.convert.field)
                ticks = [_again(state, now, opening.healing)] if opening.retry else []
            else:
                # A cluster has no downtime of its own: below zero is the time in which the run was nowhere.
                state, ticks = taken_up(stored, code, now, 0.0)
                ticks[0] = _as_recorded(ticks[0], opening, state)
        elif is_cancelled:
            state, ticks = (
                BrokerState(),
                [TickStartRun(at=now, run_id=card.run_id, config=opening.config or code.config)],
            )
        else:
            state, ticks = taken_up(_bare(card, opening), code, now, 0.0)
            ticks[0] = _as_recorded(ticks[0], opening, state)
        if is_cancelled:
            del ticks[1:]  # what came before could not change how it ends
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
        if carried is not None:
            self.core.push_back(list(carried.children))
        self.core.feed(*ticks)

    @property
    def is_parked(self) -> bool:
        """Whether it waits for other code."""
        outcome = self.core.look.outcome
        return outcome is not None and outcome.status == "parked"

    @property
    def is_poison(self) -> bool:
        """Say whether it was parked because its steps kill their workers: only who resumes it lets it go again."""
        return is_poison(self.core.look.outcome)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing happens in it by itself, but for timers; or it is over."""
        return self.core.is_blocked or self.core.is_over

    def has_seen(self, event_id: str) -> bool:
        """Whether an event of this id has come."""
        return event_id in self.event_ids or event_id in self.core.look.seen

    def resume(self, now: float, config: BrokerConfig | None, *, keeps_timeout: bool = False) -> None:
        """Take the run up anew, with other code or after it was parked. No body may be at work.

        One that would only be parked for the same reason again stays as it is.
        """
        if config is not None:
            config = config_for(config, self.core.look.config, keeps_timeout=keeps_timeout)
        if self.could_go_on(now, config):
            self.core.drop_work()
            self.core.feed(self._taking_up(now, config))

    def could_go_on(self, now: float, config: BrokerConfig | None) -> bool:
        """Whether it would not only be parked for the same reason again with this code."""
        return not parked_again(self.core.state, [self._taking_up(now, config)], self.code)

    def _taking_up(self, now: float, config: BrokerConfig | None) -> TickResume:
        # A flow keeps what was decided when it began.
        is_same = config == self.core.look.config or self.card.document is not None
        return TickResume(at=now, config=None if is_same else config)

    def follow(self, ticks: Sequence[WorkflowTick], published: Sequence[Published]) -> None:
        """Take note of a batch: what it brought may be why the run is stuck."""
        self._heads.follow(ticks, published)

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


def _again(state: BrokerState, now: float, healing: TickRetryRun | None) -> WorkflowTick:
    """The tick that lets a failed run go on. One that was ended from outside is where it was: it is taken up."""
    if state.outcome is None:
        return TickResume(at=max(now, state.at))
    return replace(healing, at=now) if healing is not None else TickRetryRun(at=now)


def _as_recorded(tick: WorkflowTick, opening: Opening, state: BrokerState) -> WorkflowTick:
    """The tick that a run is taken up with, by the code that its opening names: a replay may have other code at hand.

    A run that was brought without code is soon told of what is at hand. A flow keeps what was decided when it began.
    """
    if isinstance(tick, TickStartRun):
        return replace(tick, config=opening.config) if opening.config is not None else tick
    config = _told(opening, state)
    if opening.card.document is not None or config == state.config:
        config = None
    return replace(tick, config=config)


def _told(opening: Opening, state: BrokerState) -> BrokerConfig | None:
    """Give the code that an opening brings, for a run that has this state."""
    config = opening.config
    return config_for(config, state.config, keeps_timeout=opening.keeps_timeout) if config is not None else None


def _bare(card: Card, opening: Opening) -> StoredRun:
    """A run of which nothing is stored but its start."""
    text = opening.document
    # Whoever goes on from a state has ticks behind it, which tells a flow from a workflow in Python.
    ticks = 1 if opening.carried is not None else 0
    row = RunRow(card.run_id, card.workflow, card.created_at, RunHead("running", ticks, 0, 0.0), document=card.document)
    return StoredRun(row, (opening.start or "").encode(), None, (), document=text.encode() if text else None)
