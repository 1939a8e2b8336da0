"""The work and the waits of a context dict, as the state of a run has them.

A dict that Loom wrote says where each item was. In a dict of another writer, an item is among the waiters while it
waits, and otherwise in the queue or in progress, with its answered waiters beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from loom.core.body_effects import CollectBuffer, once_key, wait_key
from loom.core.persistent import EMPTY_MAP, Fifo, Map
from loom.core.records import RELEASE_KIND, EventRecord, Release
from loom.core.state import (
    MOVING,
    Answer,
    Execution,
    InternalStepWorkerState,
    StepWorkerWaiter,
    Timer,
    Waiting,
    WorkItem,
    num_workers,
    specs_of,
)
from loom.steps.context_dict.codec import current_waiter_id, joined_step
from loom.steps.context_dict.shapes import ItemExtras, LoomShape, TriesShape, malformed
from loom.steps.planner import ROOT, Origin, StepInput, takes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from loom.core.state import BrokerConfig
    from loom.steps.context_dict.codec import EventReader, StreamNumbers
    from loom.steps.context_dict.shapes import (
        ContextShape,
        PayloadShape,
        WaiterExtras,
        WaiterShape,
        WorkerShape,
        WorkShape,
    )


class Places(msgspec.Struct):
    """The work of one step while it is being read."""

    queue: list[WorkItem] = []
    suspended: dict[int, Execution] = {}
    delayed: dict[int, WorkItem] = {}
    buffers: dict[str, CollectBuffer] = {}
    by_id: dict[str, int] = {}
    """The items by the ids they were saved under."""
    nameless: list[tuple[str, int]] = []
    """The items that were saved without an id, by the text of their events."""
    standing: dict[int, WorkItem] = {}
    """Items that were found among the waiters only."""


class WorkReader:
    """Reads the steps one by one. What was in progress goes to the head of the queue, what waited stays suspended."""

    def __init__(
        self,
        shape: ContextShape,
        config: BrokerConfig,
        events: EventReader,
        streams: StreamNumbers,
        renames: Mapping[str, str],
        *,
        only_accepted: bool,
    ) -> None:
        self._shape = shape
        self._config = config
        self._events = events
        self._renames = renames
        self._only_accepted = only_accepted
        self._loom = shape.loom if shape.loom is not None else LoomShape()
        self._items = ItemReader(shape, events, streams, renames)
        self._places: dict[str, Places] = {}
        self._waits = WaitReader(events)
        self.sequence = max(shape.invocation_seq, self._loom.sequence)
        self.timers: dict[int, Timer] = {}

    @property
    def items(self) -> int:
        """The number of the last work item."""
        return self._items.last

    def read(self) -> None:
        """Read everything, and check that whatever is suspended can go on some time."""
        for name, worker in self._shape.workers.items():
            self._read_step(name, worker)
        for index, sleep in enumerate(self._loom.sleeps):
            self._check_item(sleep.item, f"loom.sleeps[{index}].item")
            step = self._renames.get(sleep.step, sleep.step)
            number = self._arm(Timer(sleep.due, "sleep", step, sleep.item, sleep.key))
            self._waits.open_sleep(sleep.item, sleep.key, number)
        for item, ended in self._loom.ended_waits.items():
            self._check_item(item, f"loom.ended_waits.{item}")
            self._waits.end(item, ended)
        for item, records in self._loom.records.items():
            self._check_item(item, f"loom.records.{item}")
            self._waits.recorded(item, records)
        self._waits.number_waiters(self._next, self._arm)
        for places in self._places.values():
            for item, execution in places.suspended.items():
                if not self._waits.knows(item, execution.waits_on):
                    raise malformed(f"loom.items.{item}.waits_on", f"there is no wait '{execution.waits_on}'.")

    def _check_item(self, item: int, path: str) -> None:
        if not self._items.has(item):
            raise malformed(path, f"there is no work item {item}.")

    def _next(self) -> int:
        self.sequence += 1
        return self.sequence

    def _arm(self, timer: Timer) -> int:
        number = self._next()
        self.timers[number] = timer
        return number

    def _read_step(self, name: str, worker: WorkerShape) -> None:
        if not worker.size() and not worker.collect_generations:
            return
        step = self._renames.get(name, name)
        spec = specs_of(self._config).get(step)
        places = self._places[step] = Places()
        for part, attempts in (("in_progress", worker.in_progress), ("queue", worker.queue)):
            for index, attempt in enumerate(attempts):
                item = self._items.read(step, attempt, f"workers.{name}.{part}[{index}]")
                if self._only_accepted and spec is not None and not takes(spec, spec.accepts, item.event.kind):
                    continue
                self._remember(places, attempt.work_item_id, attempt.event, item)
                self._place(places, item, attempt.not_before)
        self._read_waiters(name, worker, places)
        for buffer in {**worker.collected_events, **worker.collect_generations}:
            places.buffers[buffer] = self._buffer(name, worker, buffer)

    @staticmethod
    def _remember(places: Places, work_item_id: str | None, event: str, item: WorkItem) -> None:
        if work_item_id is None:
            places.nameless.append((event, item.id))
        else:
            places.by_id[work_item_id] = item.id

    def _place(self, places: Places, item: WorkItem, not_before: float | None, pending: str = "") -> None:
        waits_on = self._items.extras(item.id).waits_on or pending
        if waits_on:
            self._suspend(places, item, waits_on)
        elif not_before is not None:
            places.delayed[self._arm(Timer(not_before, "retry", item.step))] = item
        else:
            places.queue.append(item)

    def _suspend(self, places: Places, item: WorkItem, waits_on: str) -> None:
        execution = item.execution if item.execution is not None else self._next()
        effects, item = item.effects, replace(item, execution=None, effects=EMPTY_MAP)
        places.suspended[item.id] = Execution(execution, execution, item, 0, effects, live=False, waits_on=waits_on)

    def _read_waiters(self, name: str, worker: WorkerShape, places: Places) -> None:
        step = self._renames.get(name, name)
        extras = self._loom.waiters.get(name)
        if extras is not None and len(extras) != len(worker.collected_waiters):
            raise malformed(f"loom.waiters.{name}", "there are not as many as there are waiters.")
        for index, waiter in enumerate(worker.collected_waiters):
            path = f"workers.{name}.collected_waiters[{index}]"
            item_id = self._item_of(places, waiter)
            if item_id is None:
                item = self._items.read(step, waiter, path)
                self._remember(places, waiter.work_item_id, waiter.event, item)
                places.standing[item.id] = item
                item_id = item.id
            self._waits.read(step, item_id, waiter, extras[index] if extras is not None else None, path)
        for item in places.standing.values():
            self._place(places, item, None, self._waits.only_pending(item.id))

    def _item_of(self, places: Places, waiter: WaiterShape) -> int | None:
        """The item that a waiter belongs to, if it was met before. Without an id it is known by its event."""
        if waiter.work_item_id is not None:
            return places.by_id.get(waiter.work_item_id)
        return next(
            (
                item
                for event, item in places.nameless
                if event == waiter.event and not self._waits.has_id(item, waiter.waiter_id)
            ),
            None,
        )

    def _buffer(self, name: str, worker: WorkerShape, buffer: str) -> CollectBuffer:
        path = f"workers.{name}.collected_events.{buffer}"
        texts = worker.collected_events.get(buffer, [])
        records = [self._events.record(text, f"{path}[{index}]") for index, text in enumerate(texts)]
        counts = Counter(record.kind.name for record in records)
        return CollectBuffer(Fifo.of(records), Map(counts), worker.collect_generations.get(buffer, len(records)))

    def workers(self) -> Map[str, InternalStepWorkerState]:
        """Return the state of every step that has one."""
        return Map(
            {
                step: InternalStepWorkerState(
                    num_workers=num_workers(self._config, step),
                    queue=Fifo.of(places.queue),
                    suspended=Map(places.suspended),
                    ready=Fifo.of(self._ready(places)),
                    delayed=Map(places.delayed),
                    collected_events=Map(places.buffers),
                    collected_waiters=Map(self._waits.of_step(step)),
                )
                for step, places in self._places.items()
            }
        )

    def _ready(self, places: Places) -> list[int]:
        return [
            item for item, execution in places.suspended.items() if self._waits.is_answered(item, execution.waits_on)
        ]

    def waiting(self) -> Waiting:
        """Return the open waits and the answers that were given."""
        return self._waits.waiting()

    def active(self) -> int:
        """Pieces of work that can move by themselves."""
        return sum(len(places.queue) + len(self._ready(places)) for places in self._places.values())

    def asleep(self) -> int:
        """Pieces of work that a timer will bring back."""
        return sum(timer.purpose in MOVING for timer in self.timers.values())


_NUMBERED = re.compile(r"work_item_(\d{1,15})")
_NO_EXTRAS = ItemExtras()
_NO_TRIES = TriesShape()


class ItemReader:
    """Makes work items, each with a number of its own: the saved one where there is one, else a new one."""

    def __init__(
        self, shape: ContextShape, events: EventReader, streams: StreamNumbers, renames: Mapping[str, str]
    ) -> None:
        self._loom = shape.loom if shape.loom is not None else LoomShape()
        self._events = events
        self._streams = streams
        self._renames = renames
        self._taken: set[int] = set()
        self.last = max([shape.work_item_seq, *_saved_numbers(shape)])

    def extras(self, number: int) -> ItemExtras:
        """Return what the dict says of an item under `loom`."""
        return self._loom.items.get(number, _NO_EXTRAS)

    def has(self, number: int) -> bool:
        """Return whether an item of this number was read."""
        return number in self._taken

    def read(self, step: str, shape: WorkShape, path: str) -> WorkItem:
        """Return the item, with the attempt that was under way if there was one."""
        number = self._number(shape.work_item_id)
        extras = self.extras(number)
        tries = shape if isinstance(shape, TriesShape) else extras.tries or _NO_TRIES
        failure = tries.last_exception
        return WorkItem(
            number,
            step,
            self._event(shape, path),
            self._extra(shape, tries, path),
            tries.attempts,
            tries.first_attempt_at,
            self._events.failure(failure, f"{path}.last_exception") if failure is not None else None,
            tries.last_failed_at,
            Map(
                {
                    name: self._records(texts, f"loom.items.{number}.reserved.{name}")
                    for name, texts in extras.reserved.items()
                }
            ),
            extras.execution,
            Map(extras.effects),
        )

    def _number(self, work_item_id: str | None) -> int:
        number = _number_in(work_item_id)
        if not number or number in self._taken:
            self.last += 1
            number = self.last
        self._taken.add(number)
        return number

    def _event(self, shape: WorkShape, path: str) -> EventRecord:
        payload = shape.collection_release_payload
        if payload is None:
            return self._events.record(shape.event, f"{path}.event")
        # The payload is what counts: the event beside it only says that there is one.
        return EventRecord(RELEASE_KIND, self._release(payload, f"{path}.collection_release_payload"))

    def _release(self, payload: PayloadShape, path: str) -> Release:
        step = joined_step(payload.binding_id)
        members = self._records(payload.events, f"{path}.events")
        return Release(self._streams.number(payload.stream_id), self._renames.get(step, step), members)

    def _extra(self, shape: WorkShape, tries: TriesShape, path: str) -> StepInput | None:
        payload = shape.collection_release_payload
        scope = self._streams.scope(payload.output_scope_path if payload is not None else shape.scope_path)
        recoveries = {self._renames.get(name, name): count for name, count in tries.recovery_counts.items()}
        origin = Origin(scope, tuple(sorted(recoveries.items())))
        bound = tuple(
            (name, self._events.record(text, f"{path}.bound_events.{name}"))
            for name, text in (shape.bound_events or {}).items()
        )
        return StepInput(origin, bound) if bound or origin != ROOT else None

    def _records(self, texts: list[str], path: str) -> tuple[EventRecord, ...]:
        return tuple(self._events.record(text, f"{path}[{index}]") for index, text in enumerate(texts))


def _number_in(work_item_id: str | None) -> int:
    found = _NUMBERED.fullmatch(work_item_id or "")
    return int(found[1]) if found else 0


def _saved_numbers(shape: ContextShape) -> list[int]:
    return [
        _number_in(entry.work_item_id)
        for worker in shape.workers.values()
        for entry in [*worker.queue, *worker.in_progress, *worker.collected_waiters]
    ]


class WaitReader:
    """Gathers the waits of all steps by work item."""

    def __init__(self, events: EventReader) -> None:
        self._events = events
        self._pending: list[StepWorkerWaiter] = []
        self._pending_keys: dict[int, list[str]] = {}
        self._numbered: dict[str, dict[int, StepWorkerWaiter]] = {}
        self._open: dict[int, dict[str, int]] = {}
        self._answers: dict[int, dict[str, Answer]] = {}
        self._ids: set[tuple[int, str]] = set()
        self._unclear: set[int] = set()

    def read(self, step: str, item: int, waiter: WaiterShape, extras: WaiterExtras | None, path: str) -> None:
        """Take a waiter of an item, pending or answered."""
        self._ids.add((item, waiter.waiter_id))
        event_type = self._events.type_name(waiter.waiting_for_event, f"{path}.waiting_for_event")
        waiter_id = waiter.waiter_id
        if extras is None:
            waiter_id = current_waiter_id(waiter_id, waiter.waiting_for_event, waiter.work_item_id, item)
        key = extras.key if extras is not None else wait_key(waiter_id, 0)
        if waiter.resolved_event is not None:
            event = self._events.record(waiter.resolved_event, f"{path}.resolved_event")
            self._answers.setdefault(item, {})[key] = Answer(event)
        elif extras is None and (waiter.has_requirements or waiter.requirements):
            # The dict does not say what the event must be like. Only the body can tell, so it has to run again.
            self._unclear.add(item)
        else:
            self._pending_keys.setdefault(item, []).append(key)
            saved = StepWorkerWaiter(0, step, item, key, waiter_id, event_type)
            self._pending.append(self._with_extras(saved, extras, path) if extras is not None else saved)

    def _with_extras(self, waiter: StepWorkerWaiter, extras: WaiterExtras, path: str) -> StepWorkerWaiter:
        requirements: Any = []
        if extras.requirements is not None:
            requirements = self._events.value(extras.requirements, f"{path}.requirements")
        try:
            pairs = tuple((str(name), value) for name, value in requirements)
        except (TypeError, ValueError) as error:
            raise malformed(f"{path}.requirements", "pairs of a field and its value are wanted.") from error
        return replace(waiter, number=extras.number, requirements=pairs, since=extras.since, deadline=extras.deadline)

    def has_id(self, item: int, waiter_id: str) -> bool:
        """Return whether a waiter of this id was met for an item."""
        return (item, waiter_id) in self._ids

    def only_pending(self, item: int) -> str:
        """Return the key of the one wait that holds an item up; empty if its body has to run again to tell."""
        keys = self._pending_keys.get(item, [])
        return keys[0] if len(keys) == 1 and item not in self._unclear else ""

    def open_sleep(self, item: int, key: str, timer: int) -> None:
        """Take a sleep that is not over."""
        self._open.setdefault(item, {})[key] = timer

    def end(self, item: int, ended: dict[str, bool]) -> None:
        """Take waits that ended without an event."""
        for key, timed_out in ended.items():
            self._answers.setdefault(item, {})[key] = Answer(timed_out=timed_out)

    def recorded(self, item: int, records: dict[str, str]) -> None:
        """Take the results that a body has recorded."""
        for name, text in records.items():
            value = self._events.value(text, f"loom.records.{item}.{name}")
            self._answers.setdefault(item, {})[once_key(name)] = Answer(value=value)

    def number_waiters(self, next_number: Callable[[], int], arm: Callable[[Timer], int]) -> None:
        """Give the pending waiters new numbers in the order of their old ones, and their deadlines timers."""
        for saved in sorted(self._pending, key=lambda waiter: waiter.number):
            number = next_number()
            timer = None
            if saved.deadline is not None:
                timer = arm(Timer(saved.deadline, "waiter", saved.step, number))
            waiter = replace(saved, number=number, timer=timer)
            self._numbered.setdefault(waiter.step, {})[number] = waiter
            self._open.setdefault(waiter.item, {})[waiter.key] = number

    def knows(self, item: int, key: str) -> bool:
        """Return whether there is such a wait, pending or over."""
        return key in self._open.get(item, {}) or self.is_answered(item, key)

    def is_answered(self, item: int, key: str) -> bool:
        """Return whether a wait is over."""
        return key in self._answers.get(item, {})

    def of_step(self, step: str) -> dict[int, StepWorkerWaiter]:
        """Return the pending waiters of a step by number."""
        return self._numbered.get(step, {})

    def waiting(self) -> Waiting:
        """Return all of it, as a state has it."""
        index: dict[str, dict[int, str]] = {}
        for step, waiters in self._numbered.items():
            for number, waiter in waiters.items():
                index.setdefault(waiter.event_type, {})[number] = step
        return Waiting(
            index=Map({name: Map(numbers) for name, numbers in index.items()}),
            open=Map({item: Map(keys) for item, keys in self._open.items()}),
            answers=Map({item: Map(answers) for item, answers in self._answers.items()}),
        )
