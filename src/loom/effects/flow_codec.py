"""The codec of flows: events become data, whatever program has defined their classes.

A flow's own records are plain structs and stay what they are. Events from outside are stored as events of Python
workflows are, so that any process can send them. A flow reads them by their fields if their class is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field
from typing_extensions import override

from loom.core.records import EventKind, EventRecord
from loom.effects.event_codec import MissingTypeError, UnfitEventError
from loom.effects.flow_events import FlowEvent
from loom.effects.stored_codec import StoredEventCodec
from loom.flows.calls import EVENT, START_KIND, FlowStart
from loom.steps.events import StartEvent
from loom.steps.registry import built_on_first_use, framework_name
from loom.steps.tagged import TaggedSerializer

if TYPE_CHECKING:
    from loom.steps.events import Event


@built_on_first_use
class FlowStartEvent(StartEvent, defer_build=True):
    """What a flow begins with: the trigger's body and headers, parameters and variables."""

    body: Any = None
    headers: dict[str, Any] = Field(default_factory=dict)
    trigger: str = ""
    outputs: dict[str, Any] = Field(default_factory=dict)
    parameters: dict[str, Any] = Field(default_factory=dict)
    variables: dict[str, Any] = Field(default_factory=dict)

    def start(self) -> FlowStart:
        """Convert to what the planner takes."""
        return FlowStart(self.body, self.headers, self.trigger, self.outputs, self.parameters, self.variables)


framework_name(FlowStartEvent, START_KIND.name)


class AnyEventCodec(StoredEventCodec):
    """The codec of a process that lacks the workflow's code, which may be a flow's."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(TaggedSerializer())

    @override
    def record(self, event: Event) -> EventRecord:
        """The event as text; one that a flow knows by a name of its own goes by that name."""
        if isinstance(event, FlowStartEvent):
            return EventRecord(START_KIND, event.start())
        record = super().record(event)
        if isinstance(event, FlowEvent):
            return EventRecord(EventKind(event.name, (EVENT,), event.name), record.body)
        return record


class FlowEventCodec(AnyEventCodec):
    """Events of flows as the engine keeps them, and back. See `EventCodec`."""

    __slots__ = ()

    @override
    def event(self, record: EventRecord) -> Event:
        """Read the event of a record; its fields under its name, if this process lacks its class or has another one."""
        if record.kind is START_KIND or record.kind.name == START_KIND.name:
            body: FlowStart = record.body
            return FlowStartEvent(body=body.body, headers=body.headers, parameters=body.parameters)
        try:
            return super().event(record)
        except (MissingTypeError, UnfitEventError):
            # What a flow asks of an event is its schema's business.
            return FlowEvent(name=record.kind.label, data=self.fields(record))

    @override
    def field(self, record: EventRecord, name: str) -> Any:
        """A field of an event, or of its data."""
        found = super().field(record, name)
        if found is None and isinstance(record.body, str):
            data = super().field(record, "data")
            return data.get(name) if isinstance(data, dict) else None
        return found


FLOW_CODEC = FlowEventCodec()
