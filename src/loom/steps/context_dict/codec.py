"""Events, streams and waiters between the engine's records and the text of a context dict.

What the engine makes itself is written as the event that authors see: a failure as a `StepFailedEvent`, the set of a
join as a `CollectionReleaseEvent`.

Loom numbers its streams. In a dict they have names, and a binding names a join: the step that opens the stream, the
step that collects it, what it collects and how many.

Ids of waiters come in three spellings. Older ones end without a work item, and the oldest have their requirements in
Python's spelling. A loaded waiter gets the id that its body will ask for when it runs again.
"""

from __future__ import annotations

import ast
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from loom.core.records import (
    RELEASE_KIND,
    RUN_CANCELLED_KIND,
    STEP_FAILED_KIND,
    Cancellation,
    EventRecord,
    Failure,
    Release,
    StepFailure,
)
from loom.core.state import specs_of
from loom.steps.context_dict.shapes import malformed, unwritable
from loom.steps.errors import message_of
from loom.steps.events import CollectionReleaseEvent, Event, RunCancelledEvent, StepFailedEvent
from loom.steps.registry import kind_of, resolve
from loom.steps.serializers import JsonSerializer, UnreconstructedException, dump_exception, load_exception

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom.core.state import BrokerConfig
    from loom.steps.serializers import BaseSerializer


class EventWriter:
    """Writes records as text, each one once."""

    def __init__(self, serializer: BaseSerializer, config: BrokerConfig) -> None:
        self._serializer = serializer
        self._config = config
        # Keyed by identity: the state holds the records for as long as the writer lives.
        self._texts: dict[int, str] = {}

    def text(self, record: EventRecord, path: str) -> str:
        """Return a record's event as text; `ContextSerdeError` with the path if it has none."""
        known = self._texts.get(id(record))
        if known is None:
            known = self._texts[id(record)] = self.value(self._event(record, path), path)
        return known

    def value(self, value: Any, path: str) -> str:
        """Return any value as text."""
        try:
            return self._serializer.serialize(value)
        except Exception as error:
            raise unwritable(path, error) from error

    def _event(self, record: EventRecord, path: str) -> Event:
        body = record.body
        if isinstance(body, Event):
            return body
        if isinstance(body, StepFailure):
            return StepFailedEvent(
                step_name=body.step,
                input_event=self._event(body.input, path),
                exception=_exception_of(body.failure),
                attempts=body.attempts,
                elapsed_seconds=body.elapsed_s,
                failed_at=datetime.fromtimestamp(body.failed_at, UTC),
            )
        if isinstance(body, Cancellation):
            at = datetime.fromtimestamp(body.at, UTC)
            return RunCancelledEvent(reason=body.reason, steps=list(body.steps), cancelled_at=at)
        if isinstance(body, Release):
            return CollectionReleaseEvent(
                events=[self._event(member, path) for member in body.members],
                stream_id=stream_id(body.stream),
                binding_id=binding_of_step(self._config, body.step),
            )
        raise unwritable(path, f"a body of type {type(body).__name__} is not an event.")

    def release_marker(self, release: Release, path: str) -> str:
        """Return the event of a join's work without its members, which its payload lists."""
        binding = binding_of_step(self._config, release.step)
        return self.value(CollectionReleaseEvent(stream_id=stream_id(release.stream), binding_id=binding), path)


class EventReader:
    """Reads text as records. Where names are ambiguous it prefers the workflow's own classes."""

    def __init__(
        self,
        serializer: BaseSerializer,
        event_classes: Iterable[type[Any]],
        streams: StreamNumbers,
        renames: Mapping[str, str],
    ) -> None:
        self._preferred = tuple(event_classes)
        self._serializer = serializer
        if isinstance(serializer, JsonSerializer):
            self._serializer = serializer.with_types(*self._preferred)
        self._streams = streams
        self._renames = renames

    def record(self, text: str, path: str) -> EventRecord:
        """Return the record of an event; `ContextSerdeError` with the path if the text is none."""
        event = self.value(text, path)
        if not isinstance(event, Event):
            raise malformed(path, f"an event is wanted, not {type(event).__name__}.")
        return self._record(event)

    def value(self, text: str, path: str) -> Any:
        """Return the value of any text."""
        try:
            return self._serializer.deserialize(text)
        except Exception as error:
            raise malformed(path, error) from error

    def type_name(self, name: str, path: str) -> str:
        """Return the wire name of the event class that a name means."""
        try:
            if isinstance(self._serializer, JsonSerializer):
                found = self._serializer.resolve_class(name)
            else:
                found = resolve(name, self._preferred)
            return kind_of(found).name
        except (ValueError, TypeError) as error:
            raise malformed(path, error) from error

    def failure(self, data: dict[str, Any], path: str) -> Failure:
        """Return a failure from an exception's data."""
        try:
            with self._serializer.validation_context():
                return _failure_of(load_exception(data))
        except ValueError as error:
            raise malformed(path, error) from error

    def _record(self, event: Event) -> EventRecord:
        if type(event) is StepFailedEvent:
            body = StepFailure(
                event.step_name,
                self._record(event.input_event),
                _failure_of(event.exception),
                event.attempts,
                event.elapsed_seconds,
                event.failed_at.timestamp(),
            )
            return EventRecord(STEP_FAILED_KIND, body)
        if type(event) is CollectionReleaseEvent:
            step = joined_step(event.binding_id)
            members = tuple(self._record(member) for member in event.events)
            release = Release(self._streams.number(event.stream_id), self._renames.get(step, step), members)
            return EventRecord(RELEASE_KIND, release)
        if type(event) is RunCancelledEvent:
            cancelled = Cancellation(event.reason, tuple(event.steps), event.cancelled_at.timestamp())
            return EventRecord(RUN_CANCELLED_KIND, cancelled)
        return EventRecord(kind_of(type(event)), event)


def failure_data(failure: Failure | None) -> dict[str, Any] | None:
    """Return a failure as an exception is written."""
    if failure is None:
        return None
    return {"exception_type": failure.type, "exception_message": failure.message}


def _exception_of(failure: Failure) -> Exception:
    if isinstance(failure.body, Exception):
        return failure.body
    error = load_exception(failure_data(failure))
    # A cancelled body is a failure like any other, but is no Exception by itself.
    return (
        error
        if isinstance(error, Exception)
        else UnreconstructedException(message_of(error), original_type=failure.type)
    )


def _failure_of(error: BaseException) -> Failure:
    data = dump_exception(error)
    return Failure(data["exception_type"], data["exception_message"], error)


# Foreign names end in sixteen hexadecimal digits, which may happen to be decimal: so fewer than that.
_OWN_NAME = re.compile(r"stream-(\d{1,15})")


def stream_id(number: int) -> str:
    """Return the name of a stream."""
    return f"stream-{number}"


def binding_id(config: BrokerConfig, source: str, target: str) -> str:
    """Return the name of the join of `source`'s streams at `target`."""
    spec = specs_of(config).get(target)
    types = ",".join(spec.accepts) if spec is not None else ""
    wanted = "All" if spec is None or spec.take is None else f"Take({spec.take})"
    return f"{source}->{target}:{types}:{wanted}:nearest"


def binding_of_step(config: BrokerConfig, target: str) -> str:
    """Return the name of a join whose stream may be closed already: its first source is taken."""
    source = next((spec.name for spec in config.steps if target in spec.joins), "")
    return binding_id(config, source, target)


def joined_step(binding: str) -> str:
    """Return the collecting step that a binding names."""
    return binding.partition("->")[2].partition(":")[0] or binding


class StreamNumbers:
    """Gives the streams of a dict their numbers: Loom's own keep theirs, others are counted as they come."""

    def __init__(self, opened: int) -> None:
        self._opened = self.opened = opened
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """Return the number of a stream, the same whenever it is asked for."""
        number = self._numbers.get(name)
        if number is None:
            own = _OWN_NAME.fullmatch(name)
            number = int(own[1]) if own else 0
            if not 0 < number <= self._opened:
                self.opened += 1
                number = self.opened
            self._numbers[name] = number
        return number

    def scope(self, names: list[str]) -> tuple[int, ...]:
        """Return the numbers of the streams around something."""
        return tuple(self.number(name) for name in names)


def default_waiter_id(event_type: str, requirements: Mapping[str, Any], item: int) -> str:
    """Return the id of a wait that its author gave none: what it waits for, and the work item that waits."""
    return f"waiter_{event_type}_{_text(requirements)}_work_item_{item}"


def current_waiter_id(waiter_id: str, event_type: str, saved_item: str | None, item: int) -> str:
    """Return the id under which a wait of another writer is known here; an author's own id stays as it is."""
    prefix = f"waiter_{event_type}_"
    if not waiter_id.startswith(prefix):
        return waiter_id
    wanted = waiter_id.removeprefix(prefix)
    if saved_item is not None:
        wanted = wanted.removesuffix(f"_{saved_item}")
    requirements = _parse(wanted)
    return waiter_id if requirements is None else default_waiter_id(event_type, requirements, item)


def waiter_id_of(key: str) -> str:
    """Return the waiter id in the key of a wait, `wait:<number of the call>:<id>`."""
    return key.split(":", 2)[2]


def _text(requirements: Mapping[str, Any]) -> str:
    return json.dumps(requirements, sort_keys=True, separators=(",", ":"), default=repr)


def _parse(text: str) -> dict[str, Any] | None:
    """Requirements in either spelling; None if the text is something else, such as a part of an author's own id."""
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, dict):
            return found
    return None
