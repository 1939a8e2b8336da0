"""Whether the journal of a run, reduced again from its beginning, gives what is stored.

May import loom.core, loom.store and the rest of loom.runtime.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from loom.core.commands import CommandPublishEvent
from loom.core.draft import Draft
from loom.core.records import EventRecord
from loom.core.reducer import transition
from loom.core.state import BrokerState
from loom.effects.threads import aside
from loom.runtime.durable.heads import HeadWriter
from loom.runtime.masking import shown_published
from loom.runtime.plain import fields_of, plain
from loom.runtime.planners import planner_for, program_in
from loom.store import codec
from loom.store.errors import BrokenJournal, RunNotFound

if TYPE_CHECKING:
    from loom.core.draft import FieldReader
    from loom.core.reports import Published
    from loom.runtime.durable.calls import StoredRuns
    from loom.runtime.shapes import Replay
    from loom.store.chain import Links
    from loom.store.records import Chunk, RunHead, StoredRun

_COMPARED = ("status", "ticks", "events", "idle_since", "kept", "paused", "error")


class Replayed(NamedTuple):
    """What a replay has found."""

    first_tick: int
    """Where it began: 0, or behind what was pruned."""
    ticks: int
    events: int
    snapshot: int | None
    """After how many ticks the stored snapshot was made, if there is one to compare with."""
    differences: list[str]
    state: BrokerState


@runtime_checkable
class KeepsHistories(Protocol):
    """A store whose runs have a history of their own beneath their journals."""

    async def history_problems(self, run_id: str) -> list[str]:
        """What of it does not lead to what it records, in words."""
        ...


async def replay_view(runtime: StoredRuns, run_id: str) -> Replay:
    """What a replay of a stored run has found, as plain data. A long journal takes a while: others go on meanwhile."""
    stored = await runtime.store.export(run_id)
    if stored is None:
        raise RunNotFound(run_id)
    found = await aside("replay", replayed, stored, runtime.field_reader(stored.row))
    differences = [*_broken_links(stored, runtime.links), *found.differences]
    if isinstance(runtime.store, KeepsHistories):
        differences += await runtime.store.history_problems(run_id)
    return {
        "run_id": run_id,
        "replay": "different" if differences else "same",
        "first_tick": found.first_tick,
        "ticks": found.ticks,
        "events": found.events,
        "snapshot": found.snapshot,
        "differences": differences,
    }


def _broken_links(stored: StoredRun, links: Links) -> list[str]:
    """A journal that replays well may still be another one than was written."""
    try:
        links.check(stored)
    except BrokenJournal as error:
        return [str(error)]
    return []


def replayed(stored: StoredRun, read_field: FieldReader) -> Replayed:
    """Reduce all ticks of a run again, and compare the state, the stream and the row with what is stored."""
    run_id, snapshot = stored.row.run_id, stored.snapshot
    saved = codec.decode_state(run_id, snapshot.data) if snapshot is not None else None
    pruned = stored.row.first_tick > 0 and saved is not None
    planner = planner_for(stored.document)
    draft = Draft(saved if pruned and saved is not None else BrokerState(), planner, read_field)
    first, differences = draft.ticks, list[str]()
    for chunk in stored.chunks:
        if chunk.first_tick + chunk.ticks <= draft.ticks:
            continue
        differences += _reduce_chunk(run_id, chunk, draft, None if pruned else saved)
    state = draft.freeze()
    differences += _other_fields(stored, state)
    compared = saved.ticks if saved is not None and not pruned else None
    return Replayed(first, state.ticks - first, state.published, compared, differences, state)


def _reduce_chunk(run_id: str, chunk: Chunk, draft: Draft, saved: BrokerState | None) -> list[str]:
    differences: list[str] = []
    made: list[Published] = []
    program = program_in(draft.planner)
    whole = draft.ticks == chunk.first_tick
    if draft.ticks < chunk.first_tick:
        return [f"The journal lacks the ticks {draft.ticks} to {chunk.first_tick - 1}."]
    for tick in codec.decode_ticks(run_id, chunk)[draft.ticks - chunk.first_tick :]:
        transition(draft, tick)
        published = [command.event for command in draft.commands if isinstance(command, CommandPublishEvent)]
        made += [shown_published(program, event) for event in published]
        draft.commands = []
        if saved is not None and draft.ticks == saved.ticks:
            differences += _other_state(draft.freeze(), saved)
    if whole:
        differences += _other_events(chunk, made, codec.decode_published(run_id, chunk))
    return differences


def _other_state(made: BrokerState, saved: BrokerState) -> list[str]:
    names = [name for name in made.__struct_fields__ if getattr(made, name) != getattr(saved, name)]
    return [f"The snapshot after {saved.ticks} ticks differs in: {', '.join(names)}."] if names else []


def _other_events(chunk: Chunk, made: list[Published], stored: list[Published]) -> list[str]:
    for cursor, (new, old) in enumerate(zip(made, stored, strict=False), chunk.first_cursor):
        if new != old:
            return [f"Event {cursor} is stored as: {_words(old)}; replay gives: {_words(new)}."]
    if len(made) != len(stored):
        where = f"the ticks {chunk.first_tick} to {chunk.first_tick + chunk.ticks - 1}"
        return [f"Of {where} {len(stored)} events are stored; replay gives {len(made)}."]
    return []


def _words(published: Published) -> str:
    """What stands on the stream, in one line. Of a flow's records only what they are: they may hold what is secure."""
    if not isinstance(published, EventRecord):
        return f"{type(published).__name__}({_listed(plain(published))})"
    name = published.kind.label or published.kind.name
    return f"{name}({_listed(fields_of(published))})" if isinstance(published.body, str) else name


def _listed(fields: Any) -> str:
    if not isinstance(fields, dict):
        return str(fields)
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())


def _other_fields(stored: StoredRun, state: BrokerState) -> list[str]:
    if stored.row.head.ticks == 0:
        return []
    head, _ = HeadWriter().head(state, lambda: state, 0.0)
    # Whoever asked for a retry has set the status, and the tick is still in the mail.
    names = [name for name in _COMPARED if not (stored.mail and name in ("status", "error", "idle_since"))]
    if head.idle_since is not None:
        # The error of an idle run says why it is stuck: its owner words that from more than the state.
        names = [name for name in names if name != "error"]
    return [
        _difference(name, stored.row.head, head) for name in names if _get(stored.row.head, name) != _get(head, name)
    ]


def _difference(name: str, stored: RunHead, made: RunHead) -> str:
    return f"The row says {name}={_get(stored, name)!r}; replay gives {_get(made, name)!r}."


def _get(head: RunHead, name: str) -> Any:
    return getattr(head, name)
