"""Events between the engine's records and a serializer's text. May import loom.core and the event modules of steps.

What the engine makes itself travels as the event that authors see: a failure as a `StepFailedEvent`, the set of a join
as a `CollectionReleaseEvent`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from loom.core.records import RELEASE_KIND, STEP_FAILED_KIND, EventRecord, Failure, Release, StepFailure
from loom.steps.context_dict.problems import malformed, unwritable
from loom.steps.context_dict.stream_names import StreamNumbers, binding_of_step, joined_step, stream_id
from loom.steps.event_base import Event
from loom.steps.event_types import UnreconstructedException, dump_exception, load_exception
from loom.steps.registry import kind_of, resolve
from loom.steps.serializers import JsonSerializer
from loom.steps.system_events import CollectionReleaseEvent, StepFailedEvent
from loom.steps.texts import message_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom.core.config import BrokerConfig
    from loom.steps.serializers import BaseSerializer


class EventWriter:
    """Writes records as text, each one once."""

    def __init__(self, serializer: BaseSerializer, config: BrokerConfig) -> None:
        self._serializer = serializer
        self._config = config
        # Keyed by identity: the state holds the records for as long as the writer lives.
        self._texts: dict[int, str] = {}

    def text(self, record: EventRecord, path: str) -> str:
        """A record's event as text; `ContextSerdeError` with the path if it has none."""
        known = self._texts.get(id(record))
        if known is None:
            known = self._texts[id(record)] = self.value(self._event(record, path), path)
        return known

    def value(self, value: Any, path: str) -> str:
        """Any value as text."""
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
        if isinstance(body, Release):
            return CollectionReleaseEvent(
                events=[self._event(member, path) for member in body.members],
                stream_id=stream_id(body.stream),
                binding_id=binding_of_step(self._config, body.step),
            )
        raise unwritable(path, f"a body of type {type(body).__name__} is not an event.")

    def release_marker(self, release: Release, path: str) -> str:
        """The event of a join's work without its members, which its payload lists."""
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
        """The record of an event; `ContextSerdeError` with the path if the text is none."""
        event = self.value(text, path)
        if not isinstance(event, Event):
            raise malformed(path, f"an event is wanted, not {type(event).__name__}.")
        return self._record(event)

    def value(self, text: str, path: str) -> Any:
        """The value of any text."""
        try:
            return self._serializer.deserialize(text)
        except Exception as error:
            raise malformed(path, error) from error

    def type_name(self, name: str, path: str) -> str:
        """The wire name of the event class that a name means."""
        try:
            if isinstance(self._serializer, JsonSerializer):
                found = self._serializer.resolve_class(name)
            else:
                found = resolve(name, self._preferred)
            return kind_of(found).name
        except (ValueError, TypeError) as error:
            raise malformed(path, error) from error

    def failure(self, data: dict[str, Any], path: str) -> Failure:
        """A failure from an exception's data."""
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
        return EventRecord(kind_of(type(event)), event)


def failure_data(failure: Failure | None) -> dict[str, Any] | None:
    """A failure as an exception is written."""
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
