"""From what is stored of a run to the run: its snapshot, the ticks after that, and the tick that recovers it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from loom.core.reducer import Draft, advance, transition
from loom.core.run import Patience, TooCostly
from loom.core.state import BrokerState, raised
from loom.core.ticks import ControlTick, TickCancelRun, TickContinueRun, TickResume, TickRetryRun, TickStartRun
from loom.effects.off_loop import OFF_LOOP_BYTES, aside
from loom.runtime.control_loop import PATIENCE
from loom.store import codec
from loom.store.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.core.planner import Planner
    from loom.core.reducer import FieldReader
    from loom.core.ticks import WorkflowTick
    from loom.runtime.durable.registration import Registration
    from loom.store.hash_chain import Links
    from loom.store.records import Chunk, InboxMessage, Snapshot, StoredRun


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


def recovered_in_order(stored: StoredRun, code: Registration, now: float, downtime: float) -> Recovered:
    """Return a stored run and the ticks that recover it: its start or its resumption, then its inbox messages."""
    row = stored.row
    messages = _in_order([read_message(row.run_id, item, now) for item in stored.inbox])
    if not row.head.ticks:
        return BrokerState(), [_first_tick(stored, code, now, messages), *messages]
    state = restored(row.run_id, stored.snapshot, stored.chunks, code.planner, code.codec.field)
    if state.ticks != row.head.ticks:
        raise CorruptRecord(row.run_id, f"tick {state.ticks}", f"the journal should have {row.head.ticks} ticks")
    away = max(0.0, downtime - row.head.downtime)
    config = raised(code.changed_since(state.config) or state.config, _asked_depth(messages))
    resume = TickResume(at=max(now, state.at), away_s=away, config=config if config != state.config else None)
    return state, [resume, *messages]


def _asked_depth(messages: list[WorkflowTick]) -> int | None:
    """Return the highest limit of the depth that messages ask for. A parked run takes them too late to go on."""
    return max((tick.max_depth or 0 for tick in messages if isinstance(tick, TickContinueRun)), default=None)


def recovered(stored: StoredRun, code: Registration, now: float, downtime: float) -> Recovered:
    """Return a stored run and the ticks that recover it. A pending cancel overtakes all other messages.

    What came before the cancel could not change how the run ends; but an expression or a body that it leads to might
    never end.
    """
    run_id = stored.row.run_id
    messages = (read_message(run_id, item, now) for item in stored.inbox)
    cancel = next((tick for tick in messages if isinstance(tick, TickCancelRun)), None)
    if cancel is not None and not stored.row.head.ticks:
        # It begins only to end: without an event nothing is planned.
        return BrokerState(), [TickStartRun(at=now, run_id=run_id, config=code.config), cancel]
    state, ticks = recovered_in_order(stored, code, now, downtime)
    if cancel is None or (state.outcome is not None and state.outcome.status != "parked"):
        return state, ticks
    if code.config.cleanup is None:
        return state, [ticks[0], cancel]
    if state.outcome is not None or cancel.force:
        return state, [ticks[0], replace(cancel, force=True)]  # a parked run ends with nothing of it run
    # The run goes on with its clean-up, so what else has come for it must not stay in the inbox.
    cancels = [tick for tick in ticks[1:] if isinstance(tick, TickCancelRun)]
    return state, [ticks[0], *cancels, *(tick for tick in ticks[1:] if not isinstance(tick, TickCancelRun))]


def _first_tick(stored: StoredRun, code: Registration, now: float, messages: list[WorkflowTick]) -> TickStartRun:
    """What the run begins with. One that cannot begin with its input can be cancelled nevertheless."""
    run_id = stored.row.run_id
    try:
        return code.first_tick(run_id, codec.decode_start(run_id, stored.start), now)
    except Exception:
        if not any(isinstance(tick, TickCancelRun) for tick in messages):
            raise
    return code.first_tick(run_id, codec.StartSpec(), now)


def _in_order(messages: list[WorkflowTick]) -> list[WorkflowTick]:
    """Put what a failed run had not taken after the retry: its events count for the retried run.

    Who cancelled, paused or resumed it meant the run that failed: that comes before, where it has no effect any more.
    """
    retry = next((place for place, tick in enumerate(messages) if isinstance(tick, TickRetryRun)), 0)
    before = messages[:retry]
    controls = [tick for tick in before if isinstance(tick, ControlTick)]
    events = [tick for tick in before if not isinstance(tick, ControlTick)]
    return [*controls, *messages[retry : retry + 1], *events, *messages[retry + 1 :]]


def replay(stored: StoredRun, code: Registration, links: Links, now: float, downtime: float) -> Recovered:
    """Check the chain of a run's journal, and recover the run from it."""
    links.check(stored)
    return recovered(stored, code, now, downtime)


async def replay_aside(stored: StoredRun, code: Registration, links: Links, now: float, downtime: float) -> Recovered:
    """Recover a run from its journal; in a thread, if that costs more than the event loop can spare."""
    recover = partial(replay, stored, code, links, now, downtime)
    if stored.size <= OFF_LOOP_BYTES:
        with suppress(TooCostly), Patience(PATIENCE):
            return recover()
    return await aside("reduce", recover)


def parked_again(state: BrokerState, ticks: list[WorkflowTick], code: Registration) -> bool:
    """Whether a parked run would only be parked for the same reason again."""
    before = state.outcome
    if before is None or before.status != "parked" or any(isinstance(tick, TickCancelRun) for tick in ticks):
        return False
    after, _ = advance(state, ticks[0], code.planner, code.codec.field)
    return after.outcome == before


def is_cancel(tick: WorkflowTick, code: Registration | None = None) -> bool:
    """Say whether a tick asks a run to stop; with the code of the run, whether it ends without a clean-up."""
    cleans = code is not None and code.config.cleanup is not None
    return isinstance(tick, TickCancelRun) and (tick.force or not cleans)


def read_message(run_id: str, message: InboxMessage, now: float) -> WorkflowTick:
    """Read the tick in an inbox message, as of now."""
    return replace(codec.decode_tick(message.data, run_id), at=now, mail=message.id)
