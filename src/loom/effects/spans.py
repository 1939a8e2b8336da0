"""Spans of llama-index-instrumentation: one per run and one per execution of a step.

The package is never imported here. A program that wants spans has imported it to add a handler, so it is looked for
among the loaded modules. Nothing happens before it has a handler that does something. A body that waits keeps its
span open, and what was cancelled ends its span without an error.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

from loom.effects.verbose import summarize_event
from loom.flows.calls import ActionCall
from loom.steps.errors import WorkflowCancelledByUser
from loom.steps.events import Event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from loom.effects.ports import Binding
    from loom.steps.workflow import Workflow

T = TypeVar("T")

PACKAGE = "llama_index_instrumentation"
"""Asked for every run and execution: callers look for it in `sys.modules` before they call anything here."""
_DISPATCHER = "workflows.workflow"
"""The dispatcher that programs know workflows by; its parent is the root."""

_NOT_ERRORS = (asyncio.CancelledError, WorkflowCancelledByUser)


def are_wanted() -> bool:
    """Say whether any handler listens."""
    package = sys.modules.get(PACKAGE)
    return package is not None and _has_listeners(package)


def _has_listeners(package: Any) -> bool:
    dispatcher = package.get_dispatcher(_DISPATCHER)
    while dispatcher is not None:
        for handler in (*dispatcher.span_handlers, *dispatcher.event_handlers):
            if not type(handler).__name__.startswith("Null"):
                return True
        dispatcher = dispatcher.parent if dispatcher.propagate else None
    return False


async def around_run(workflow: Workflow, drive: Callable[[], Awaitable[T]], ending_of: Callable[[T], Any]) -> T:
    """Drive a run within a span. `ending_of` tells what the last command of a run means to its caller."""
    span = _Span(f"{type(workflow).__name__}.run", workflow, workflow.run, {}, {})
    try:
        last = await drive()
    except BaseException as error:
        span.end(error)
        raise
    span.end(ending_of(last))
    return last


async def around_step(workflow: Workflow, binding: Binding, arguments: dict[str, Any]) -> Any:
    """Call a step's body within a span."""
    given = arguments.get(binding.event_name)
    tags: dict[str, Any] = {}
    if isinstance(given, Event):
        tags = {
            "llamaindex.step.input_event": type(given).__name__,
            "llamaindex.step.input_summary": summarize_event(given),
        }
    hidden = isinstance(given, ActionCall) and given.secure
    span = _Span(binding.function.__qualname__, workflow, binding.function, {} if hidden else arguments, tags)
    try:
        result = await binding.call(arguments)
    except BaseException as error:
        span.end(error)
        raise
    span.end(None if hidden else result)
    return result


class _Span:
    """A span that is open, in the context of the current task."""

    __slots__ = ("_active", "_bound", "_dispatcher", "_id", "_instance", "_package", "_token")

    def __init__(
        self, name: str, instance: Any, function: Callable[..., Any], arguments: Mapping[str, Any], tags: dict[str, Any]
    ) -> None:
        self._package: Any = sys.modules[PACKAGE]
        self._dispatcher: Any = self._package.get_dispatcher(_DISPATCHER)
        self._active: Any = sys.modules[f"{PACKAGE}.span"].active_span_id
        self._id = f"{name}-{uuid.uuid4()}"
        self._instance = instance
        # Resources are resolved later, so that not every parameter is there yet.
        self._bound = inspect.signature(function).bind_partial(**arguments)
        parent = self._active.get()
        self._token = self._active.set(self._id)
        known_tags = sys.modules[f"{PACKAGE}.dispatcher"].active_instrument_tags
        if tags:
            # The context is the task's own, and ends with it.
            known_tags.set({**known_tags.get(), **tags})
        self._dispatcher.span_enter(
            id_=self._id, bound_args=self._bound, instance=instance, parent_id=parent, tags=known_tags.get()
        )

    def end(self, result: Any) -> None:
        """Close the span: dropped with an error that is one, else left with the result."""
        self._active.reset(self._token)
        if isinstance(result, BaseException) and not isinstance(result, _NOT_ERRORS):
            drop = sys.modules[f"{PACKAGE}.events.span"].SpanDropEvent
            self._dispatcher.event(drop(span_id=self._id, err_str=str(result)))
            self._dispatcher.span_drop(id_=self._id, bound_args=self._bound, instance=self._instance, err=result)
            return
        value = None if isinstance(result, BaseException) else result
        self._dispatcher.span_exit(id_=self._id, bound_args=self._bound, instance=self._instance, result=value)
