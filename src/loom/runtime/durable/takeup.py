"""From what is stored of a run to the run: the snapshot, the ticks behind it, and the tick of whoever takes it up.

May import loom.core and loom.store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from loom.core.draft import Draft
from loom.core.reducer import advance, transition
from loom.core.state import BrokerState
from loom.core.ticks import ControlTick, TickCancelRun, TickResume, TickRetryRun, TickStartRun
from loom.store import codec
from loom.store.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.core.draft import FieldReader
    from loom.core.planner import Planner
    from loom.core.ticks import WorkflowTick
    from loom.runtime.durable.registered import Registered
    from loom.store.records import Chunk, Mail, Snapshot, StoredRun


Recovered: TypeAlias = "tuple[BrokerState, list[WorkflowTick]]"
"""A stored run, and the ticks with which a process recovers it."""


def restored(
    run_id: str,
    snapshot: Snapshot | None,
    chunks: Iterable[Chunk],
    planner: Planner,
    read_field: FieldReader,
    until: int | None = None,
) -> BrokerState:
    """The state after the stored ticks, or after the first `until` of them."""
    state = codec.decode_state(run_id, snapshot.data) if snapshot is not None else BrokerState()
    draft = Draft(state, planner, read_field)
    for chunk in chunks:
        if chunk.first_tick > draft.ticks:
            raise CorruptRecord(run_id, f"tick {draft.ticks}", f"the journal goes on with tick {chunk.first_tick}")
        for tick in codec.decode_ticks(run_id, chunk)[draft.ticks - chunk.first_tick :]:
            if until is not None and draft.ticks >= until:
                return draft.freeze()
            transition(draft, tick)
            draft.commands = []
    return draft.freeze()


def taken_up(stored: StoredRun, code: Registered, now: float, downtime: float) -> Recovered:
    """A stored run and the ticks with which this process takes it up: its start or its resumption, then its mail."""
    row = stored.row
    mail = _in_order([read_mail(row.run_id, item, now) for item in stored.mail])
    if not row.head.ticks:
        return BrokerState(), [_first_tick(stored, code, now, mail), *mail]
    state = restored(row.run_id, stored.snapshot, stored.chunks, code.planner, code.convert.field)
    if state.ticks != row.head.ticks:
        raise CorruptRecord(row.run_id, f"tick {state.ticks}", f"the journal should have {row.head.ticks} ticks")
    away = max(0.0, downtime - row.head.downtime)
    resume = TickResume(at=max(now, state.at), away_s=away, config=code.changed_since(state.config))
    return state, [resume, *mail]


def recovered(
    stored: StoredRun, code: Registered, now: float, downtime: float
) -> tuple[BrokerState, list[WorkflowTick]]:
    """A stored run and the ticks with which this process recovers it. A pending cancel overtakes all else.

    What came before the cancel could not change how the run ends; but an expression or a body that it leads to might
    never end.
    """
    run_id = stored.row.run_id
    mail = (read_mail(run_id, item, now) for item in stored.mail)
    cancel = next((tick for tick in mail if isinstance(tick, TickCancelRun)), None)
    if cancel is not None and not stored.row.head.ticks:
        # It begins only to end: without an event nothing is planned.
        return BrokerState(), [TickStartRun(at=now, run_id=run_id, config=code.config), cancel]
    state, ticks = taken_up(stored, code, now, downtime)
    if cancel is not None and (state.outcome is None or state.outcome.status == "parked"):
        return state, [ticks[0], cancel]
    return state, ticks


def _first_tick(stored: StoredRun, code: Registered, now: float, mail: list[WorkflowTick]) -> TickStartRun:
    """What the run begins with. One that cannot begin with its input can be cancelled nevertheless."""
    run_id = stored.row.run_id
    try:
        return code.first_tick(run_id, codec.decode_start(run_id, stored.start), now)
    except Exception:
        if not any(isinstance(tick, TickCancelRun) for tick in mail):
            raise
    return code.first_tick(run_id, codec.StartSpec(), now)


def _in_order(mail: list[WorkflowTick]) -> list[WorkflowTick]:
    """Put what a failed run had not taken after the retry: its events count for the retried run.

    Who cancelled, paused or resumed it meant the run that failed: that comes before, where it has no effect any more.
    """
    retry = next((place for place, tick in enumerate(mail) if isinstance(tick, TickRetryRun)), 0)
    before = mail[:retry]
    controls = [tick for tick in before if isinstance(tick, ControlTick)]
    events = [tick for tick in before if not isinstance(tick, ControlTick)]
    return [*controls, *mail[retry : retry + 1], *events, *mail[retry + 1 :]]


def parked_again(state: BrokerState, ticks: list[WorkflowTick], code: Registered) -> bool:
    """Whether a parked run would only be parked for the same reason again."""
    before = state.outcome
    if before is None or before.status != "parked" or any(isinstance(tick, TickCancelRun) for tick in ticks):
        return False
    after, _ = advance(state, ticks[0], code.planner, code.convert.field)
    return after.outcome == before


def read_mail(run_id: str, mail: Mail, now: float) -> WorkflowTick:
    """A tick from a run's inbox, as of now."""
    return replace(codec.decode_tick(mail.data, run_id), at=now, mail=mail.id)
