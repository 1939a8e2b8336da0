"""Work items from the shapes of a context dict. May import loom.core, steps.planner and the rest of this package."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from immutables import Map

from loom.core.records import RELEASE_KIND, EventRecord, Release
from loom.core.state import WorkItem
from loom.steps.context_dict.shapes import ItemExtras, LoomShape, TriesShape
from loom.steps.context_dict.stream_names import joined_step
from loom.steps.planner import ROOT, Origin, StepInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.steps.context_dict.codec import EventReader
    from loom.steps.context_dict.shapes import ContextShape, PayloadShape, WorkShape
    from loom.steps.context_dict.stream_names import StreamNumbers

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
        """What the dict says of an item under `loom`."""
        return self._loom.items.get(number, _NO_EXTRAS)

    def has(self, number: int) -> bool:
        """Whether an item of this number was read."""
        return number in self._taken

    def read(self, step: str, shape: WorkShape, path: str) -> WorkItem:
        """The item, with the attempt that was under way if there was one."""
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
