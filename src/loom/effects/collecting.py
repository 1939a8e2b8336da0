"""`collect_events` inside a body: answered from the buffers as they were when the execution was dispatched.

The calls and their answers go back with the result, where the reducer checks them. May import loom.steps and loom.core.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from loom.core.body_effects import EMPTY_BUFFER
from loom.core.ticks import CollectCall
from loom.effects.arguments import event_class
from loom.effects.convert import LIVE
from loom.steps.registry import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.core.commands import CommandRunWorker
    from loom.core.records import EventRecord
    from loom.effects.convert import Conversion
    from loom.steps.events import Event

Needed = tuple[tuple[str, int], ...]

_REMEMBERED = 64
_SHORT = 200
_needs: dict[tuple[int, int], tuple[Sequence[type[Event]], list[type[Event]], Needed]] = {}
"""What was counted last, by length and first type: the list itself, a copy of it, and the counts."""


def needed_types(expected: Sequence[type[Event]]) -> Needed:
    """How many events of each type a list asks for.

    A list is counted once, whether it is passed again and again or made anew for every call: comparing two lists of
    classes costs next to nothing. A long one that is passed again is known by its identity and not even looked at.
    """
    length = len(expected)
    key = (length, id(expected[0]))
    known = _needs.get(key)
    if known is not None:
        if known[0] is expected and length > _SHORT:
            return known[2]
        if known[1] == (expected if isinstance(expected, list) else list(expected)):
            return known[2]
    needed = tuple(Counter(kind_of(event_class("collect_events", cls)).name for cls in expected).items())
    if len(_needs) >= _REMEMBERED:
        _needs.pop(next(iter(_needs)), None)
    _needs[key] = (expected, list(expected), needed)
    return needed


class Collector:
    """The collect calls of one execution."""

    __slots__ = ("_buffers", "_calls", "_convert", "_reserved")

    def __init__(self, command: CommandRunWorker, convert: Conversion = LIVE) -> None:
        self._convert = convert
        self._buffers = command.snapshot
        self._reserved = command.item.reserved
        self._calls: list[CollectCall] = []

    def calls(self) -> tuple[CollectCall, ...]:
        """All calls so far."""
        return tuple(self._calls)

    def collect(
        self, event: Event, expected: Sequence[type[Event]], buffer_id: str, position: int, writes: int = -1
    ) -> list[Event] | None:
        """The full set in the order of `expected`, or None if something is missing still.

        `position` and `writes` are the numbers of effects and of stream writes that the body had before.
        """
        if not expected:
            return []
        record, buffer_id = self._convert.record(event), self._convert.text(buffer_id)
        if buffer_id in self._reserved:
            records = self._reserved[buffer_id]
            self._reserved = self._reserved.delete(buffer_id)
            self._calls.append(CollectCall(buffer_id, record, (), True, position, reserved=True, writes=writes))
            return in_order(records, expected, self._convert)
        needed = needed_types(expected)
        buffer = self._buffers.get(buffer_id, EMPTY_BUFFER)
        found = buffer.verdict(record.kind.name, needed)
        took = found == "take"
        self._calls.append(CollectCall(buffer_id, record, needed, took, position, buffer.generation, writes=writes))
        if found == "keep":
            self._buffers = self._buffers.set(buffer_id, buffer.with_event(record))
        if not took:
            return None
        self._buffers = self._buffers.set(buffer_id, buffer.emptied())
        return in_order((*buffer.events, record), expected, self._convert)


def in_order(
    records: Sequence[EventRecord], expected: Sequence[type[Event]], convert: Conversion = LIVE
) -> list[Event]:
    """The events in the order in which their types are expected; what came of each type first is first."""
    by_type: dict[str, deque[EventRecord]] = {}
    for record in records:
        by_type.setdefault(record.kind.name, deque()).append(record)
    return [convert.event(by_type[kind_of(cls).name].popleft()) for cls in expected if by_type.get(kind_of(cls).name)]
