"""What a body asks of its context, answered for one execution: collected events, recorded results, child runs.

- `Collector` answers `collect_events` from the buffers as they were when the execution was dispatched. The calls and
  their answers go back with the result, where the reducer checks them.
- `Recorder` answers `ctx.once`. A result is recorded with its work item, and the body goes on when that is committed.
  A body that runs again finds the record and does not work the result out again.
- `result_of_child` turns the end of a child run into a result or an error.

Arguments that bodies pass are checked where they enter, because the run's data must stay sound.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import Counter, deque
from numbers import Real
from typing import TYPE_CHECKING, Any

from loom.core.body_effects import EMPTY_BUFFER, once_key
from loom.core.records import INPUT_REQUIRED_EVENT
from loom.core.ticks import CollectCall, TickRecordResult
from loom.effects.event_codec import LIVE_CODEC
from loom.steps.errors import ChildRunCancelled, ChildRunFailed
from loom.steps.events import Event
from loom.steps.handler import plain_result
from loom.steps.registry import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.core.body_effects import CollectBuffer
    from loom.core.commands import CommandResumeWorker, CommandRunWorker
    from loom.core.records import EventRecord
    from loom.core.state import ChildEnd
    from loom.core.ticks import Source
    from loom.effects.event_codec import EventCodec
    from loom.effects.execution import StepExecution


# --- checks of arguments ----------------------------------------------------------------------------------------------


class EventName(str):
    """The name of an event, for a wait for events of any class."""

    __slots__ = ()


def event_class(what: str, given: Any) -> type[Event]:
    """An event class, or an error that says what was given instead."""
    if isinstance(given, type) and issubclass(given, Event):
        return given
    raise TypeError(f"{what}() takes event classes, not {given!r}.")


def event_object(what: str, given: Any) -> Event:
    """An event, or an error that says what was given instead."""
    if isinstance(given, Event):
        return given
    raise TypeError(f"{what}() takes events, not {given!r} of type {type(given).__name__}.")


def asks(*records: EventRecord) -> bool:
    """Tell whether one of these events asks for input from outside."""
    for record in records:
        kind = record.kind
        if INPUT_REQUIRED_EVENT in kind.bases or kind.name == INPUT_REQUIRED_EVENT:
            return True
    return False


def seconds(what: str, given: Any) -> float:
    """A finite number of seconds."""
    if not isinstance(given, Real):
        raise TypeError(f"{what} must be a number of seconds, not {given!r}.")
    if not math.isfinite(given):
        raise ValueError(f"{what} must be a finite number of seconds, not {given!r}.")
    return float(given)


# --- collect_events ---------------------------------------------------------------------------------------------------

Needed = tuple[tuple[str, int], ...]
_REMEMBERED = 64
_SHORT = 200
_needs: dict[tuple[int, int], tuple[Sequence[type[Event]], list[type[Event]], Needed]] = {}
"""What was counted last, by length and first type: the list itself, a copy of it, and the counts."""


def needed_types(expected: Sequence[type[Event]]) -> Needed:
    """Count the events of each type that a list asks for.

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
    given: Sequence[Any] = expected
    classes = [cls if isinstance(cls, type) else event_class("collect_events", cls) for cls in given]
    counts: Counter[str] = Counter()
    for cls, number in Counter(classes).items():
        counts[kind_of(event_class("collect_events", cls)).name] += number
    needed = tuple(counts.items())
    if len(_needs) >= _REMEMBERED:
        _needs.pop(next(iter(_needs)), None)
    _needs[key] = (expected, list(expected), needed)
    return needed


class Collector:
    """The collect calls of one execution."""

    __slots__ = ("_buffers", "_calls", "_codec", "_kept", "_reserved")

    def __init__(self, command: CommandRunWorker, codec: EventCodec = LIVE_CODEC) -> None:
        self._codec = codec
        self._buffers = command.snapshot
        self._reserved = command.item.reserved
        self._calls: list[CollectCall] = []
        self._kept: tuple[str, CollectBuffer, EventRecord] | None = None
        """What the last call has put aside in which buffer, until another call looks there: most bodies make one."""

    def calls(self) -> tuple[CollectCall, ...]:
        """List the calls so far."""
        return tuple(self._calls)

    def collect(
        self, event: Event, expected: Sequence[type[Event]], buffer_id: str, position: int, writes: int = -1
    ) -> list[Event] | None:
        """The full set in the order of `expected`, or None if something is missing still.

        `position` and `writes` are the numbers of effects and of stream writes that the body had before.
        """
        if not expected:
            return []
        record, buffer_id = self._codec.record(event), self._codec.text(buffer_id)
        if buffer_id in self._reserved:
            records = self._reserved[buffer_id]
            self._reserved = self._reserved.delete(buffer_id)
            self._calls.append(CollectCall(buffer_id, record, (), True, position, reserved=True, writes=writes))
            return in_order(records, expected, self._codec)
        needed = needed_types(expected)
        if self._kept is not None:
            kept_in, kept_by, kept = self._kept
            self._buffers, self._kept = self._buffers.set(kept_in, kept_by.with_event(kept)), None
        buffer = self._buffers.get(buffer_id, EMPTY_BUFFER)
        found = buffer.verdict(record.kind.name, needed)
        took = found == "take"
        self._calls.append(CollectCall(buffer_id, record, needed, took, position, buffer.generation, writes=writes))
        if found == "keep":
            self._kept = buffer_id, buffer, record
        if not took:
            return None
        self._buffers = self._buffers.set(buffer_id, buffer.emptied())
        return in_order((*buffer.events, record), expected, self._codec)


def in_order(
    records: Sequence[EventRecord], expected: Sequence[type[Event]], codec: EventCodec = LIVE_CODEC
) -> list[Event]:
    """The events in the order in which their types are expected; what came of each type first is first."""
    by_type: dict[str, deque[EventRecord]] = {}
    for record in records:
        found = by_type.get(record.kind.name)
        if found is None:
            found = by_type[record.kind.name] = deque()
        found.append(record)
    by_class = {cls: by_type.get(kind_of(cls).name) for cls in set(expected)}
    return [codec.event(found.popleft()) for cls in expected if (found := by_class[cls])]


# --- once -------------------------------------------------------------------------------------------------------------


class Recorder:
    """The recorded results of one execution."""

    __slots__ = ("_execution", "_locks", "_records")

    def __init__(self, execution: StepExecution) -> None:
        self._execution = execution
        self._records: dict[str, Any] = dict(execution.command.records)
        self._locks: dict[str, asyncio.Lock] = {}

    async def result(self, source: Source, name: str, make: Callable[[], Any]) -> Any:
        """The recorded result, or the one that is worked out and recorded now. A failing `make` records nothing."""
        execution = self._execution
        earlier = execution.command.item.effects.get(source.ordinal)
        if earlier is not None and earlier != once_key(name):
            # The code has changed under the run, which the run shall say before anything is worked out.
            return await self._record(source, name, None)
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name not in self._records:
                # A process that slept past its lease finds the body where it left it; the run has another owner now.
                if (lease := execution.host.lease()) is not None:
                    await lease
                value = make()
                if inspect.isawaitable(value):
                    value = await value
                self._records[name] = await self._record(source, name, execution.host.codec.value(value))
        return execution.host.codec.read_value(self._records[name])

    async def _record(self, source: Source, name: str, value: Any) -> Any:
        """Tell the run, and go on when it has been committed."""
        execution = self._execution
        tick = TickRecordResult(at=execution.host.now(), source=source, name=name, value=value, writes=execution.writes)
        return (await execution.answer_to(tick, once_key(name))).value


# --- child runs -------------------------------------------------------------------------------------------------------

MAX_NESTING = 50
"""How deep child runs may be nested. Their ids tell: each adds a number to its parent's."""
_WAYS = {"failed": "failed", "timed_out": "timed out", "cancelled": "was cancelled"}


def check_nesting(run_id: str) -> None:
    """Refuse a child of a child of a child, and so on: a workflow that starts itself must come to an end."""
    depth = 0
    while run_id.rpartition(":")[2].isdigit():
        run_id, depth = run_id.rpartition(":")[0], depth + 1
    if depth >= MAX_NESTING:
        raise ChildRunFailed(f"Child runs are nested more than {MAX_NESTING} deep.", run_id, "NestingLimit")


def result_of_child(answer: CommandResumeWorker, codec: EventCodec) -> Any:
    """Give the child's result, as its handler would, or raise the error of its failure."""
    child = answer.child
    if answer.event is None:
        if child is not None and child.status != "completed":
            raise _error_of(child)
        return None
    # A flow that has failed has a result nevertheless.
    ended: Any = codec.event(answer.event)
    return plain_result(ended)


def _error_of(child: ChildEnd) -> ChildRunFailed:
    failure = child.failure
    message = failure.message if failure is not None else f"The child run {child.run_id!r} {_WAYS[child.status]}."
    made = ChildRunCancelled if child.status == "cancelled" else ChildRunFailed
    error = made(message, child.run_id, failure.type if failure is not None else "")
    if failure is not None:
        kind = failure.type.removeprefix("builtins.")
        error.add_note(f"Child run {child.run_id!r} failed with {kind}: its history says where.")
    return error
