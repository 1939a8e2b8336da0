"""The journal of a stored run, replayed from its first tick and compared with everything else that is stored of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from kill_workload import WORKFLOWS

from loom.core.commands import CommandPublishEvent
from loom.core.records import EventRecord, Published
from loom.core.reducer import replay_steps
from loom.core.state import BrokerState
from loom.core.ticks import TickAddEvent, TickRecordResult, TickStartRun, TickTimeout, TickTimerFired, WorkflowTick
from loom.runtime.durable.recovery import restored
from loom.runtime.durable.registration import registration_of
from loom.runtime.run_head import HeadWriter
from loom.store import codec
from loom.store.errors import BrokenJournal
from loom.store.hash_chain import Links
from loom.store.records import StoredRun

CODES = {kind: registration_of(kind, workflow) for kind, workflow in WORKFLOWS.items()}


class Journal:
    """What is stored of a run, and what replaying it gives."""

    def __init__(self, stored: StoredRun, kind: str) -> None:
        self.stored = stored
        self._code = CODES[kind]
        run_id = stored.row.run_id
        self.ticks: list[WorkflowTick] = [tick for chunk in stored.chunks for tick in codec.decode_ticks(run_id, chunk)]
        self._published: list[Published] = [
            entry for chunk in stored.chunks for entry in codec.decode_published(run_id, chunk)
        ]
        event_codec = self._code.codec
        self._replayed: list[Published] = []
        self._early: list[str] = []
        self._at_snapshot: BrokerState | None = None
        self.state = BrokerState()
        for tick, state, commands in replay_steps(self.ticks, self._code.planner, BrokerState(), event_codec.field):
            self._look_at_timer(tick)
            self.state = state
            self._replayed += [command.event for command in commands if isinstance(command, CommandPublishEvent)]
            if stored.snapshot is not None and state.ticks == stored.snapshot.ticks:
                self._at_snapshot = state
        self.stream: list[Any] = [
            event_codec.event(entry) if isinstance(entry, EventRecord) else entry for entry in self._published
        ]
        self.recorded: dict[tuple[int, str], Any] = {
            (tick.source.item, tick.name): event_codec.read_value(tick.value)
            for tick in self.ticks
            if isinstance(tick, TickRecordResult)
        }

    def _look_at_timer(self, tick: WorkflowTick) -> None:
        if isinstance(tick, TickTimerFired | TickTimeout):
            timer = self.state.timers.get(tick.timer)
            if timer is not None and tick.at < timer.due:
                self._early.append(f"timer {tick.timer} was due at {timer.due} and fired at {tick.at}")

    @property
    def result(self) -> Any:
        """What the run ended with."""
        outcome = self.state.outcome
        if outcome is None or outcome.event is None:
            return None
        event: Any = self._code.codec.event(outcome.event)
        return event.result

    async def marks(self) -> list[str]:
        """What the run's steps have left in its store."""
        state = self.state
        store = self._code.codec.store_from(state.store, state.store_type, state.store_version)
        return list(await store.get("marks", default=()))

    def events_from_outside(self) -> list[Any]:
        """The events that came as inbox messages."""
        events = [tick for tick in self.ticks if isinstance(tick, TickAddEvent) and tick.mail]
        return [self._code.codec.event(tick.event) for tick in events]

    def problems(self) -> Iterator[str]:
        """Where what is stored contradicts itself."""
        yield from self._early
        yield from self._numbering_problems()
        yield from self._link_problems()
        yield from self._replay_problems()
        letters = Counter(tick.mail for tick in self.ticks if tick.mail)
        timers = Counter(tick.timer for tick in self.ticks if isinstance(tick, TickTimerFired | TickTimeout))
        records = Counter((tick.source.item, tick.name) for tick in self.ticks if isinstance(tick, TickRecordResult))
        for what, found in (("mail", letters), ("timer", timers), ("recorded result", records)):
            for number, times in found.items():
                if times > 1:
                    yield f"{what} {number} is in the journal {times} times"
        starts = [number for number, tick in enumerate(self.ticks) if isinstance(tick, TickStartRun)]
        if starts != [0]:
            yield f"it was started by the ticks {starts}"

    def _numbering_problems(self) -> Iterator[str]:
        """Ticks and cursors: each number once, no gap."""
        ticks = events = 0
        for chunk in self.stored.chunks:
            if (chunk.first_tick, chunk.first_cursor) != (ticks, events):
                yield f"a chunk begins at tick {chunk.first_tick}, event {chunk.first_cursor}, not {ticks}, {events}"
            ticks, events = chunk.first_tick + chunk.ticks, chunk.first_cursor + chunk.events
        head = self.stored.row.head
        if (head.ticks, head.events) != (ticks, events):
            yield f"its row tells of {head.ticks} ticks and {head.events} events, but there are {ticks} and {events}"

    def _link_problems(self) -> Iterator[str]:
        """Each chunk is bound to the one before it, and the last one to the row."""
        try:
            checked = Links().check(self.stored)
        except BrokenJournal as error:
            yield str(error)
        else:
            if checked.unchained:
                yield f"{checked.unchained} of {checked.chunks} chunks have no link"

    def _replay_problems(self) -> Iterator[str]:
        """Replay gives the stored stream, the row, and the state at the snapshot and behind it."""
        stored, head = self.stored, self.stored.row.head
        if self._replayed != self._published:
            yield f"replay publishes {self._replayed!r}, but its stream is {self._published!r}"
        replayed, _ = HeadWriter().head(self.state, lambda: self.state, head.downtime, head.link)
        if replayed != head:
            yield f"replay gives the row {replayed!r}, but it is {head!r}"
        if stored.snapshot is None:
            return
        run_id, text = stored.row.run_id, codec.encode_state
        if self._at_snapshot is None or text(codec.decode_state(run_id, stored.snapshot.data)) != text(
            self._at_snapshot
        ):
            yield f"its snapshot at tick {stored.snapshot.ticks} is not what replay gives"
        event_codec = self._code.codec
        if text(restored(run_id, stored.snapshot, stored.chunks, self._code.planner, event_codec.field)) != text(
            self.state
        ):
            yield "its snapshot with the ticks behind it is not what replay gives"
