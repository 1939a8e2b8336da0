"""The waits of a context dict: who waits for what, and the answers that were given. May import loom.core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from immutables import Map
from msgspec.structs import replace

from loom.core.body_effects import once_key, wait_key
from loom.core.state import Answer, StepWorkerWaiter, Timer, Waiting
from loom.steps.context_dict.problems import malformed
from loom.steps.context_dict.waiter_ids import current_waiter_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.steps.context_dict.codec import EventReader
    from loom.steps.context_dict.shapes import WaiterExtras, WaiterShape


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
            # Nobody wrote down what the event must be like: only the body can tell, so it has to run again.
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
        """Whether a waiter of this id was met for an item."""
        return (item, waiter_id) in self._ids

    def only_pending(self, item: int) -> str:
        """The key of the one wait that holds an item up; empty if its body has to run again to tell."""
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
        """Whether there is such a wait, pending or over."""
        return key in self._open.get(item, {}) or self.is_answered(item, key)

    def is_answered(self, item: int, key: str) -> bool:
        """Whether a wait is over."""
        return key in self._answers.get(item, {})

    def of_step(self, step: str) -> dict[int, StepWorkerWaiter]:
        """The pending waiters of a step by number."""
        return self._numbered.get(step, {})

    def waiting(self) -> Waiting:
        """All of it, as a state has it."""
        index: dict[str, dict[int, str]] = {}
        for step, waiters in self._numbered.items():
            for number, waiter in waiters.items():
                index.setdefault(waiter.event_type, {})[number] = step
        return Waiting(
            index=Map({name: Map(numbers) for name, numbers in index.items()}),
            open=Map({item: Map(keys) for item, keys in self._open.items()}),
            answers=Map({item: Map(answers) for item, answers in self._answers.items()}),
        )
