"""A run as a context dict.

Each work item has one place in the form that both engines know: in its step's queue, in progress, or with the waiter
that suspends it. Everything else that is known of it goes under `loom`, by its number.

Loom counts a stream as one open piece of the stream around it. The form counts the joins still to fire instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.body_effects import ANY, CHILD, ONCE
from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP
from loom.core.records import Release
from loom.core.state import EMPTY_WORKER, specs_of
from loom.steps.context_dict.codec import (
    EventWriter,
    binding_id,
    binding_of_step,
    failure_data,
    stream_id,
    waiter_id_of,
)
from loom.steps.context_dict.shapes import CURRENT_VERSION, LOOM_FORMAT
from loom.steps.errors import ContextSerdeError
from loom.steps.planner import ROOT, JoinBuffer, StepsPlan

if TYPE_CHECKING:
    from loom.core.state import BrokerConfig, BrokerState, Execution, InternalStepWorkerState, WorkItem
    from loom.steps.planner import Stream
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
    """Return the run as a dict that JSON can hold; raise `ContextSerdeError` with the path of what cannot be written.

    `store` is the encoded store, None to leave it out. A run that was cancelled or parked still counts as running.
    """
    if state.cleanup is not None and state.is_running:
        raise ContextSerdeError("The run is being cancelled: wait for its clean-up step, there is nothing to resume.")
    if is_running is None:
        is_resumable = state.outcome is not None and state.outcome.status in _RESUMABLE
        is_running = state.cleanup is None and (state.is_running or is_resumable)
    # A state without a run id was loaded and not recovered since: that time is not spent.
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
    """List the steps of the code, then the steps that only the run knows."""
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


class WorkWriter:
    """Writes the steps one by one and gathers what belongs under `loom`."""

    def __init__(self, state: BrokerState, plan: StepsPlan, events: EventWriter) -> None:
        self._state = state
        self._plan = plan
        self._events = events
        self.extras: dict[str, dict[str, Any]] = {}
        self.waiter_extras: dict[str, list[dict[str, Any]]] = {}

    def section(self, step: str) -> dict[str, Any]:
        """Write what a step has to do, is doing and has put aside."""
        worker = self._state.workers.get(step, EMPTY_WORKER)
        path = f"workers.{step}"
        running = sorted(worker.in_progress.values(), key=lambda execution: execution.seq)
        return {
            "queue": self._queue(worker, f"{path}.queue"),
            "in_progress": [self._running(e, f"{path}.in_progress[{index}]") for index, e in enumerate(running)],
            "collected_events": {
                name: [
                    self._events.text(event, f"{path}.collected_events.{name}[{index}]")
                    for index, event in enumerate(buffer.events)
                ]
                for name, buffer in sorted(worker.collected_events.items())
            },
            "collect_generations": {
                name: buffer.generation for name, buffer in sorted(worker.collected_events.items())
            },
            "static_collect_events": write_slots(self._plan, step, self._events),
            "collected_waiters": self._waiters(step, worker, f"{path}.collected_waiters"),
        }

    def _queue(self, worker: InternalStepWorkerState, path: str) -> list[dict[str, Any]]:
        """Write what may go on first, then the queue, then what a timer will bring back."""
        timers = self._state.timers
        entries: list[tuple[WorkItem, Execution | None, float | None]] = []
        for item_id in worker.ready:
            execution = worker.suspended[item_id]
            entries.append((execution.item, _without_wait(execution), None))
        entries += [(item, None, None) for item in worker.queue]
        for item_id, execution in sorted(worker.suspended.items()):
            number = self._state.waiting.open.get(item_id, EMPTY_MAP).get(execution.waits_on)
            if number is not None and number in timers and timers[number].purpose == "sleep":
                entries.append((execution.item, execution, timers[number].due))
            elif _runs_again(execution) and item_id not in set(worker.ready):
                entries.append((execution.item, _without_wait(execution), None))
        entries += [(item, None, timers[number].due) for number, item in sorted(worker.delayed.items())]
        return [
            self._attempt(item, execution, due, f"{path}[{index}]")
            for index, (item, execution, due) in enumerate(entries)
        ]

    def _running(self, execution: Execution, path: str) -> dict[str, Any]:
        return {
            **self._attempt(execution.item, execution, None, path),
            "worker_id": execution.worker_id,
            "invocation_id": f"invocation_{execution.id}",
            "received": [],
            "collected_events": {},
            "collect_generations": {},
        }

    def _attempt(self, item: WorkItem, execution: Execution | None, due: float | None, path: str) -> dict[str, Any]:
        self._note(item, execution, path)
        return {**self._work(item, path), **_tries(item), "not_before": due}

    def _work(self, item: WorkItem, path: str) -> dict[str, Any]:
        """Write what an item works on, and in which streams."""
        events, extra = self._events, item.extra
        scope = [stream_id(number) for number in extra.origin.scope] if extra is not None else []
        bound = extra.bound if extra is not None else ()
        release = item.event.body if isinstance(item.event.body, Release) else None
        return {
            "event": events.text(item.event, f"{path}.event")
            if release is None
            else events.release_marker(release, f"{path}.event"),
            "bound_events": {name: events.text(event, f"{path}.bound_events.{name}") for name, event in bound} or None,
            "scope_path": scope,
            "collection_release_payload": self._payload(release, scope, f"{path}.collection_release_payload"),
            "work_item_id": f"work_item_{item.id}",
        }

    def _payload(self, release: Release | None, scope: list[str], path: str) -> dict[str, Any] | None:
        if release is None:
            return None
        members = enumerate(release.members)
        return {
            "binding_id": binding_of_step(self._state.config, release.step),
            "stream_id": stream_id(release.stream),
            "events": [self._events.text(member, f"{path}.events[{index}]") for index, member in members],
            "output_scope_path": scope,
        }

    def _note(self, item: WorkItem, execution: Execution | None, path: str, tries: bool = False) -> None:
        """Gather what the form has no place for."""
        effects = execution.effects if execution is not None else item.effects
        extras: dict[str, Any] = {
            "execution": execution.id if execution is not None else item.execution,
            "effects": {str(ordinal): kind for ordinal, kind in sorted(effects.items())},
            "reserved": {
                name: [
                    self._events.text(event, f"{path}.reserved.{name}[{index}]") for index, event in enumerate(events)
                ]
                for name, events in sorted(item.reserved.items())
            },
            "waits_on": execution.waits_on if execution is not None else "",
            "tries": _tries(item) if tries else None,
        }
        filled = {name: value for name, value in extras.items() if value}
        if filled:
            self.extras[str(item.id)] = filled

    def _waiters(self, step: str, worker: InternalStepWorkerState, path: str) -> list[dict[str, Any]]:
        """The pending waiters in order, then the answers that running or queued work may ask for again."""
        written: list[dict[str, Any]] = []
        extras: list[dict[str, Any]] = []
        items = _items(worker)
        for number, waiter in sorted(worker.collected_waiters.items()):
            at = f"{path}[{len(written)}]"
            item = items[waiter.item]
            execution = worker.suspended.get(waiter.item)
            if execution is not None and execution.waits_on == waiter.key:
                self._note(item, execution, at, tries=True)
            wanted = self._events.value([list(pair) for pair in waiter.requirements], f"{at}.requirements")
            written.append(self._waiter(item, waiter.waiter_id, waiter.event_type, bool(waiter.requirements), None, at))
            extras.append(
                {
                    "key": waiter.key,
                    "number": number,
                    "requirements": wanted if waiter.requirements else None,
                    "since": waiter.since,
                    "deadline": waiter.deadline,
                }
            )
        for item_id, item in sorted(items.items()):
            for key, answer in sorted(self._state.waiting.answers.get(item_id, EMPTY_MAP).items()):
                if answer.event is not None:
                    at = f"{path}[{len(written)}]"
                    resolved = self._events.text(answer.event, f"{at}.resolved_event")
                    waiter_id = waiter_id_of(key)
                    written.append(self._waiter(item, waiter_id, answer.event.kind.name, False, resolved, at))
                    extras.append({"key": key})
        if extras:
            self.waiter_extras[step] = extras
        return written

    def _waiter(
        self, item: WorkItem, waiter_id: str, event_type: str, has_requirements: bool, resolved: str | None, path: str
    ) -> dict[str, Any]:
        return {
            "waiter_id": waiter_id,
            "waiting_for_event": event_type,
            "has_requirements": has_requirements,
            "resolved_event": resolved,
            **self._work(item, path),
        }


def _runs_again(execution: Execution) -> bool:
    """Return whether a suspended body runs again to wait: a dict has no child runs, and one wait of a body only."""
    return execution.waits_on.startswith((CHILD, ANY))


def _without_wait(execution: Execution) -> Execution:
    """An execution as a dict knows it."""
    return replace(execution, waits_on="") if _runs_again(execution) else execution


def _tries(item: WorkItem) -> dict[str, Any]:
    origin = item.extra.origin if item.extra is not None else ROOT
    return {
        "attempts": item.attempts,
        "first_attempt_at": item.first_at,
        "last_exception": failure_data(item.last_failure),
        "last_failed_at": item.last_failed_at,
        "recovery_counts": dict(origin.recoveries),
    }


def _items(worker: InternalStepWorkerState) -> dict[int, WorkItem]:
    """Every item of a step, wherever it stands."""
    items = [*worker.queue, *worker.delayed.values()]
    items += [execution.item for execution in [*worker.in_progress.values(), *worker.suspended.values()]]
    return {item.id: item for item in items}


def write_streams(plan: StepsPlan, config: BrokerConfig) -> dict[str, Any]:
    """Write the open streams by name."""
    counts = {number: stream.tokens for number, stream in plan.streams.items()}
    for stream in plan.streams.values():
        outer = stream.scope[-1] if stream.scope else None
        if outer in counts:
            unfired = sum(not stream.joins.get(name, JoinBuffer()).fired for name in _joins(stream, config))
            counts[outer] += unfired - 1
    return {
        stream_id(number): {
            "stream_id": stream_id(number),
            "source_step": stream.source,
            "scope_path": [stream_id(outer) for outer in stream.scope],
            "open_work_items": counts[number],
            "accepting_binding_ids": [binding_id(config, stream.source, name) for name in _joins(stream, config)],
        }
        for number, stream in sorted(plan.streams.items())
    }


def _joins(stream: Stream, config: BrokerConfig) -> tuple[str, ...]:
    source = specs_of(config).get(stream.source)
    return source.joins if source is not None else ()


def write_releases(plan: StepsPlan, config: BrokerConfig, events: EventWriter) -> dict[str, Any]:
    """Write what the joins have got so far, by stream and binding."""
    releases = {}
    for number, stream in sorted(plan.streams.items()):
        for step, join in sorted(stream.joins.items()):
            binding = binding_id(config, stream.source, step)
            key = f"{stream_id(number)}:{binding}"
            releases[key] = {
                "binding_id": binding,
                "stream_id": stream_id(number),
                "buffer": [
                    events.text(member, f"collection_release_states.{key}.buffer[{index}]")
                    for index, member in enumerate(join.members)
                ],
                "released": join.fired,
            }
    return releases


def write_slots(plan: StepsPlan, step: str, events: EventWriter) -> list[str]:
    """Write the events that wait in the slots of a multi-slot join, slot by slot."""
    slots = plan.slots.get(step, EMPTY_MAP)
    waiting = [record for name in spread_of_slots(plan, step) for record in slots.get(name, EMPTY_FIFO)]
    path = f"workers.{step}.static_collect_events"
    return [events.text(record, f"{path}[{index}]") for index, record in enumerate(waiting)]


def spread_of_slots(plan: StepsPlan, step: str) -> dict[str, int]:
    """Return how many events wait in which slot."""
    return {name: len(waiting) for name, waiting in sorted(plan.slots.get(step, EMPTY_MAP).items()) if waiting}
