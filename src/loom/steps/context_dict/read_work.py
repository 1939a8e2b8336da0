"""Where the work of a context dict stands. May import loom.core, steps.planner and the rest of this package.

Dicts that Loom wrote say where each item stood. In those of others, an item stands among the waiters while it waits,
and in the queue or in progress otherwise, with its answered waiters beside it.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from immutables import Map
from msgspec.structs import replace

from loom.core.body_effects import CollectBuffer
from loom.core.config import num_workers, specs_of
from loom.core.persistent import EMPTY_MAP, Fifo
from loom.core.state import MOVING, Execution, InternalStepWorkerState, Timer, WorkItem
from loom.steps.context_dict.problems import malformed
from loom.steps.context_dict.read_items import ItemReader
from loom.steps.context_dict.read_waits import WaitReader
from loom.steps.context_dict.shapes import LoomShape
from loom.steps.planner import takes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.core.config import BrokerConfig
    from loom.core.state import Waiting
    from loom.steps.context_dict.codec import EventReader
    from loom.steps.context_dict.shapes import ContextShape, WaiterShape, WorkerShape
    from loom.steps.context_dict.stream_names import StreamNumbers


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
        """The state of every step that has one."""
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
        """Who waits for what, and the answers that were given."""
        return self._waits.waiting()

    def active(self) -> int:
        """Pieces of work that can move by themselves."""
        return sum(len(places.queue) + len(self._ready(places)) for places in self._places.values())

    def asleep(self) -> int:
        """Pieces of work that a timer will bring back."""
        return sum(timer.purpose in MOVING for timer in self.timers.values())
