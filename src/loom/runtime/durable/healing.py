"""How a failed run is healed: which event failed it, and the tick that puts another one in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.core.body_effects import wait_key
from loom.core.ticks import TickAwaitEvent, TickRetryRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from loom.core.records import EventKind, EventRecord
    from loom.core.state import BrokerState
    from loom.runtime.durable.info import HistoryEntry
    from loom.runtime.durable.run_client import RunClient
    from loom.steps.events import Event


class CannotHeal(ValueError):
    """No event of this type has failed the run."""


def replaceable(run_id: str, state: BrokerState) -> dict[str, EventKind]:
    """The events that may have failed a run, by the full names of their types: those that the failed work had received,
    and the one that it was for. `CannotHeal` if no event did.
    """
    outcome, item = state.outcome, state.failed_item()
    if outcome is None or outcome.abandoned is None or item is None:
        raise CannotHeal(f"Run {run_id!r} did not fail in a step that works on an event: retry it without one.")
    found = {record.kind.name: record.kind for record in outcome.abandoned.answers_of(item.id).values()}
    if not getattr(item.extra, "bound", ()) and isinstance(item.event.body, str):
        found.setdefault(item.event.kind.name, item.event.kind)
    if not found:
        raise CannotHeal(f"Run {run_id!r} failed in step '{item.step}', on what the run itself had put together.")
    return found


async def healing_tick(
    run_id: str, state: BrokerState, event: EventRecord, history: AsyncIterator[HistoryEntry], at: float
) -> TickRetryRun:
    """The tick that lets a failed run go on with another event.

    It takes the place of the last answer of its type that the failed work had received, else of what the work was for.
    """
    names, outcome, item = replaceable(run_id, state), state.outcome, state.failed_item()
    assert outcome is not None
    assert outcome.abandoned is not None
    assert item is not None
    wanted = event.kind.name
    if wanted not in names:
        known = ", ".join(sorted(kind.label or kind.name for kind in names.values()))
        raise CannotHeal(
            f"Run {run_id!r} failed in step '{item.step}', and no {event.kind.label} did that: it had {known}."
        )
    answers = outcome.abandoned.answers_of(item.id)
    keys = [key for key, record in answers.items() if record.kind.name == wanted]
    if not keys and event.checked is False:
        raise CannotHeal(
            f"Step '{item.step}' works on {event.kind.label}, which is not known here and so cannot be checked: name "
            "its code."
        )
    key = keys[-1] if len(keys) == 1 else await _last_of(keys, item.id, history) if keys else ""
    return TickRetryRun(at=at, event=event, step=item.step, item=item.id, key=key)


async def _last_of(keys: list[str], item: int, history: AsyncIterator[HistoryEntry]) -> str:
    """The wait among these that the work reached last: what failed it has come there."""
    last = keys[-1]
    async for entry in history:
        tick = entry.tick
        if isinstance(tick, TickAwaitEvent) and tick.source.item == item:
            key = wait_key(tick.waiter_id, tick.occurrence)
            last = key if key in keys else last
    return last


async def healing_of(client: RunClient, run_id: str, event: Event) -> TickRetryRun:
    """The tick that lets a failed run go on with another event, by what is stored of it."""
    await client.ready()
    row = await client.row(run_id)
    if row.head.status != "failed":
        return TickRetryRun(at=client.now())  # what is said of it without an event holds for it
    record = client.codec_of(row).record(event)
    code = client.codes.get(row.workflow)
    if record.checked is not None and code is not None:
        record = code.codec.checked(record)
    return await healing_tick(run_id, await client.state_at(run_id), record, client.history(run_id), client.now())
