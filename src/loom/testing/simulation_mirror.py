"""A run as a simulation sees it from outside: what was written of it, reduced a second time.

It is fed with the bytes that were committed, never with what the runtime has in memory, and says what breaks a promise.
May import loom.core, loom.effects, loom.flows, loom.runtime and loom.store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.core.commands import CommandPublishEvent, CommandRunWorker
from loom.core.invariants import TracedDraft, violations, wrong_moves
from loom.core.reducer import transition
from loom.core.reports import SupersededReport
from loom.core.state import BrokerState
from loom.core.ticks import (
    Source,
    TickEditStore,
    TickPublishEvent,
    TickRetryRun,
    TickStepResult,
    TickTimeout,
    TickTimerFired,
)
from loom.effects.flow_convert import FLOW
from loom.flows.planner import FlowPlanner
from loom.runtime.durable.heads import status_of
from loom.runtime.durable.registered import anybody
from loom.runtime.planners import planner_for
from loom.store import codec
from loom.store.records import TimerRow
from loom.testing.flow_invariants import flow_violations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.core.reports import Published
    from loom.core.ticks import WorkflowTick
    from loom.store.memory_tables import KeptRun
    from loom.store.operations import CommitRun

_FIELD = anybody().field


class RunMirror:
    """One run, rebuilt from its commits."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.published: list[Published] = []
        """Its whole stream."""
        self.taken: set[int] = set()
        """The mail that came into its journal."""
        self.endings = self.retries = 0
        self.planner, self.read_field = planner_for(None), _FIELD
        self._draft = TracedDraft(BrokerState(), self.planner, self.read_field)
        self._state: BrokerState | None = None
        self._fired: set[int] = set()
        self._executions: dict[int, int] = {}
        """Which execution a command to run a body belongs to."""
        self._effects: dict[int, set[tuple[int, int]]] = {}
        """What executions did to the run, by item: (execution, ordinal)."""
        self._written: dict[int, int] = {}
        """How many writes to the stream count, by execution."""

    def follow(self, document: bytes) -> None:
        """It is the run of a flow, whose document is stored with it."""
        if not self._draft.ticks:
            self.planner, self.read_field = planner_for(document), FLOW.field
            self._draft = TracedDraft(BrokerState(), self.planner, self.read_field)

    @property
    def state(self) -> BrokerState:
        """The run after all its commits."""
        if self._state is None:
            self._state = self._draft.freeze()
        return self._state

    def committed(self, operation: CommitRun, before: KeptRun, after: KeptRun) -> Iterator[str]:
        """Take a commit in, and tell what is wrong with it."""
        ticks: list[WorkflowTick] = []
        published: list[Published] = []
        chunk = operation.chunk
        if chunk is not None:
            ticks = codec.decode_ticks(self.run_id, chunk)
            published = codec.decode_published(self.run_id, chunk)
            if (chunk.first_tick, chunk.first_cursor) != (self._draft.ticks, self._draft.published):
                yield f"a chunk begins at {chunk.first_tick} / {chunk.first_cursor}, not at the end of the journal"
        yield from self._mail(operation, ticks, before)
        yield from self._timers(ticks, before)
        led_to: list[Published] = []
        for tick in ticks:
            yield from self._reduce(tick, led_to)
        if led_to != published:
            yield f"the ticks publish {led_to}, but {published} was stored"
        self.published += published
        self._state = None
        yield from self._row(operation, after)

    def _mail(self, operation: CommitRun, ticks: list[WorkflowTick], before: KeptRun) -> Iterator[str]:
        """What leaves the inbox is in the journal, and comes there once."""
        by_mail = [tick.mail for tick in ticks if tick.mail]
        if sorted(by_mail) != sorted(operation.mail_taken):
            yield f"the mail {by_mail} is in the journal, but {operation.mail_taken} left the inbox"
        for tick in ticks:
            if not tick.mail:
                continue
            if tick.mail in self.taken:
                yield f"mail {tick.mail} came twice"
            self.taken.add(tick.mail)
            data = before.mail.get(tick.mail)
            if data is None or type(codec.decode_tick(data, self.run_id)) is not type(tick):
                yield f"mail {tick.mail} became {type(tick).__name__}, but it was {data!r}"

    def _timers(self, ticks: list[WorkflowTick], before: KeptRun) -> Iterator[str]:
        """Timers fire once, and not before the time that was stored."""
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
                self._fired.difference_update(draft.timers)  # those that were still to fire when the run had failed
            case TickTimerFired() | TickTimeout() if tick.timer in timers and tick.timer not in draft.timers:
                if tick.timer in self._fired:
                    yield f"timer {tick.timer} fired twice"
                self._fired.add(tick.timer)
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
        """What an execution does to its run, it does once."""
        execution = self._executions.get(source.seq)
        done = self._effects.setdefault(source.item, set())
        if execution is not None and (execution, source.ordinal) in done:
            yield f"effect {source.ordinal} of execution {execution} was applied twice"
        elif execution is not None:
            done.add((execution, source.ordinal))

    def _write(self, source: Source, number: int) -> Iterator[str]:
        """Keep what an execution writes to the stream once, unless the earlier one is superseded."""
        execution = self._executions.get(source.seq)
        if execution is None:
            return
        if number != self._written.get(execution, 0):
            yield f"write {number} of execution {execution} is not the next one on the stream"
        self._written[execution] = number + 1

    def _row(self, operation: CommitRun, after: KeptRun) -> Iterator[str]:
        """The row says what the state says."""
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
    """The fields in which two states differ, for people."""
    names = [name for name in BrokerState.__struct_fields__ if getattr(one, name) != getattr(other, name)]
    return "; ".join(f"{name}: {getattr(one, name)!r} / {getattr(other, name)!r}"[:400] for name in names)
