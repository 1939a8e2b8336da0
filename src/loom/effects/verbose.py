"""`verbose=True`: what a run does, line by line, as it happens.

The lines go to the logger `workflows.verbose` if that is enabled for DEBUG or INFO, else to standard output.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from loom.core.adapter import RunAdapterDecorator
from loom.core.records import STOP_EVENT, StepReport
from loom.core.ticks import (
    TickAddEvent,
    TickCancelRun,
    TickPublishEvent,
    TickResume,
    TickStartRun,
    TickStepResult,
    TickTimeout,
)
from loom.effects.event_codec import LIVE_CODEC
from loom.steps.events import Event, StopEvent

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.adapter import InternalRunAdapter
    from loom.core.records import EventRecord, Published
    from loom.core.ticks import WorkflowTick
    from loom.effects.event_codec import EventCodec

_LONGEST_LINE = 200
_LONGEST_TEXT = 50
_MOST_ITEMS = 3


def verbose_adapter(
    inner: InternalRunAdapter, timeout_s: float | None, codec: EventCodec = LIVE_CODEC
) -> InternalRunAdapter:
    """An adapter that also tells what passes through it."""
    return VerboseAdapter(inner, choose_output(), timeout_s, codec)


def choose_output() -> Callable[[str], None]:
    """Choose where the lines go, as logging is set up now."""
    logger = logging.getLogger("workflows.verbose")
    if logger.isEnabledFor(logging.DEBUG):
        return logger.debug
    if logger.isEnabledFor(logging.INFO):
        return logger.info
    return print


class VerboseAdapter(RunAdapterDecorator):
    """Writes a line about every tick and every change of a step's state."""

    def __init__(
        self,
        inner: InternalRunAdapter,
        output: Callable[[str], None],
        timeout_s: float | None,
        codec: EventCodec = LIVE_CODEC,
    ) -> None:
        super().__init__(inner)
        self._codec = codec
        self._output = output
        self._timeout_s = timeout_s

    @override
    def write_to_event_stream(self, cursor: int, event: Published) -> None:
        """See `InternalRunAdapter`."""
        if isinstance(event, StepReport):
            self._output(step_line(event))
        super().write_to_event_stream(cursor, event)

    @override
    def on_tick(self, tick: WorkflowTick) -> None:
        """See `InternalRunAdapter`."""
        match tick:
            case TickStartRun(event=event) if event is not None:
                self._output(f"[tick] add: {self._summary(event)}")
            case TickResume():
                self._output("[tick] resumed")
            case TickAddEvent():
                target = f" -> {tick.step}" if tick.step else ""
                self._output(f"[tick] add: {self._summary(tick.event)}{target}")
            case TickPublishEvent():
                self._output(f"[tick] publish: {self._summary(tick.event)}")
            case TickTimeout():
                self._output(f"[tick] timeout: {self._timeout_s}s")
            case TickCancelRun():
                self._output("[tick] cancelled")
            case TickStepResult():
                for record in tick.returned:
                    mark = "[result]" if record.kind.is_a(STOP_EVENT) else "[tick] add:"
                    self._output(f"{mark} {self._summary(record)}")
            case _:
                pass  # the rest shows in the states of the steps
        super().on_tick(tick)

    def _summary(self, record: EventRecord) -> str:
        return summarize_event(self._codec.event(record))


def step_line(report: StepReport) -> str:
    """A change of a step's state in words."""
    if report.phase == "preparing":
        return f"[{report.step}] enqueued (waiting for capacity)"
    prefix = f"[{report.step}:{report.worker_id}]"
    if report.phase == "running":
        return f"{prefix} started from {report.input.label}"
    return f"{prefix} complete with {report.output.label if report.output is not None else 'no result'}"


def summarize_event(event: Event) -> str:
    """An event in one line of bounded length."""
    fields: dict[str, Any] = {}
    if isinstance(event, StopEvent) and event.result is not None:
        fields["result"] = event.result
    fields.update({name: getattr(event, name, None) for name in type(event).model_fields})
    fields.update(event._data)
    inner = ", ".join(f"{name}={summarize_value(value)}" for name, value in fields.items())
    line = f"{type(event).__name__}({inner})"
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 3]}..."


def summarize_value(value: Any) -> str:
    """A value in a few words: long texts are cut, big collections only counted."""
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return repr(f"{value[:_LONGEST_TEXT]}...")
    if isinstance(value, list | dict) and len(value) > _MOST_ITEMS:
        return f"[{len(value)} items]" if isinstance(value, list) else f"{{{len(value)} keys}}"
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a foreign repr may raise anything, and a report must not fail a run
        return f"<{type(value).__name__} without a repr: {type(error).__name__}>"
