"""The work of each step as a context dict has it. May import loom.core, steps.planner and steps.streams.

Every work item stands in one place of the form that both engines know: in its step's queue, in progress, or with the
waiter that suspends it. What else is known of it stands under `loom`, by its number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.body_effects import ANY, CHILD
from loom.core.persistent import EMPTY_MAP
from loom.core.records import Release
from loom.core.state import EMPTY_WORKER
from loom.steps.context_dict.codec import failure_data
from loom.steps.context_dict.stream_names import binding_of_step, stream_id
from loom.steps.context_dict.waiter_ids import waiter_id_of
from loom.steps.context_dict.write_plan import write_slots
from loom.steps.planner import ROOT

if TYPE_CHECKING:
    from loom.core.state import BrokerState, Execution, InternalStepWorkerState, WorkItem
    from loom.steps.context_dict.codec import EventWriter
    from loom.steps.streams import StepsPlan


class WorkWriter:
    """Writes the steps one by one and gathers what belongs under `loom`."""

    def __init__(self, state: BrokerState, plan: StepsPlan, events: EventWriter) -> None:
        self._state = state
        self._plan = plan
        self._events = events
        self.extras: dict[str, dict[str, Any]] = {}
        self.waiter_extras: dict[str, list[dict[str, Any]]] = {}

    def section(self, step: str) -> dict[str, Any]:
        """What a step has to do, is doing and has put aside."""
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
        """What may go on first, then the queue, then what a timer will bring back."""
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
        """What an item works on, and in which streams."""
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
    """Whether a suspended body runs again to wait: child runs stay behind, and a dict knows one wait of a body only."""
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
