"""A run as a context dict. May import loom.core, steps.streams and the rest of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.core.body_effects import CHILD, ONCE
from loom.steps.context_dict.codec import EventWriter
from loom.steps.context_dict.versions import CURRENT_VERSION, LOOM_FORMAT
from loom.steps.context_dict.write_plan import spread_of_slots, write_releases, write_streams
from loom.steps.context_dict.write_work import WorkWriter
from loom.steps.streams import StepsPlan

if TYPE_CHECKING:
    from loom.core.state import BrokerState
    from loom.steps.serializers import BaseSerializer

_RESUMABLE = ("cancelled", "parked")


def context_to_dict(
    state: BrokerState,
    *,
    store: dict[str, Any] | None,
    serializer: BaseSerializer,
    now: float,
    is_running: bool | None = None,
) -> dict[str, Any]:
    """The run as a dict that JSON can hold; `ContextSerdeError` with the path of what cannot be written.

    `store` is the encoded store, None to leave it out. A run that was cancelled or parked still counts as running.
    """
    if is_running is None:
        is_running = state.is_running or (state.outcome is not None and state.outcome.status in _RESUMABLE)
    # A state without a run id was loaded and nobody has taken it up since: that time is not spent.
    last_alive = now if state.is_running and state.run_id else state.at
    plan = state.plan if isinstance(state.plan, StepsPlan) else StepsPlan()
    events = EventWriter(serializer, state.config)
    work = WorkWriter(state, plan, events)
    workers = {step: work.section(step) for step in _steps(state, plan)}
    return {
        "version": CURRENT_VERSION,
        "state": store if store is not None else {},
        "is_running": is_running,
        "workers": workers,
        "stream_seq": plan.opened,
        "work_item_seq": state.items,
        "invocation_seq": state.sequence,
        "deliveries": [],
        "streams": write_streams(plan, state.config),
        "collection_release_states": write_releases(plan, state.config, events),
        "elapsed_alive": max(0.0, last_alive - state.alive_since),
        "last_alive_stamp": last_alive or None,
        "journal_seq": state.ticks,
        "loom": _loom(state, plan, events, work),
    }


def _steps(state: BrokerState, plan: StepsPlan) -> list[str]:
    """The steps of the code, then those that only the run knows."""
    known = [spec.name for spec in state.config.steps]
    return known + sorted((set(state.workers) | set(plan.slots)) - set(known))


def _loom(state: BrokerState, plan: StepsPlan, events: EventWriter, work: WorkWriter) -> dict[str, Any]:
    return {
        "format": LOOM_FORMAT,
        "seed": state.seed,
        "sequence": state.sequence,
        "store_version": state.store_version,
        "seen": sorted(state.seen, key=lambda event_id: state.seen[event_id]),
        "kept": {
            name: [events.text(record, f"loom.kept.{name}[{index}]") for index, record in enumerate(kept)]
            for name, kept in sorted(state.waiting.kept.items())
        },
        "items": work.extras,
        "waiters": work.waiter_extras,
        "ended_waits": _ended_waits(state),
        "records": _records(state, events),
        "sleeps": [
            {"step": timer.step, "item": timer.ref, "key": timer.key, "due": timer.due}
            for _, timer in sorted(state.timers.items())
            if timer.purpose == "sleep"
        ],
        "slots": {step: spread for step in sorted(plan.slots) if (spread := spread_of_slots(plan, step))},
    }


def _ended_waits(state: BrokerState) -> dict[str, dict[str, bool]]:
    """Waits that ended without an event, by work item: whether it was their timeout."""
    ended: dict[str, dict[str, bool]] = {}
    for item, answers in sorted(state.waiting.answers.items()):
        of_item = {
            key: answer.timed_out
            for key, answer in sorted(answers.items())
            if answer.event is None and not key.startswith((ONCE, CHILD))
        }
        if of_item:
            ended[str(item)] = of_item
    return ended


def _records(state: BrokerState, events: EventWriter) -> dict[str, dict[str, str]]:
    """The results that bodies have recorded, by work item and name."""
    records: dict[str, dict[str, str]] = {}
    for item, answers in sorted(state.waiting.answers.items()):
        for key, answer in sorted(answers.items()):
            if key.startswith(ONCE):
                name = key.removeprefix(ONCE)
                text = events.value(answer.value, f"loom.records.{item}.{name}")
                records.setdefault(str(item), {})[name] = text
    return records
