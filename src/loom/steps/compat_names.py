"""Names that programs written for llama-index-workflows import and that nothing in Loom uses."""

from __future__ import annotations

import sys
from typing import Any, Generic, TypeAlias, TypeVar

from loom.steps.events import Event, StopEvent
from loom.steps.registry import framework_type, wire_name

StopEventT = TypeVar("StopEventT", bound=StopEvent)
EventT = TypeVar("EventT", bound=Event)

RunResultT: TypeAlias = StopEventT | Any
"""What awaiting a handler gives."""


class WaitingForEvent(Exception, Generic[EventT]):
    """For programs that let it pass in an `except` clause. Loom suspends a step that waits and never raises this."""

    def __init__(self, add: Any) -> None:
        super().__init__(f"Waiting for event {getattr(add, 'event_type', add)}")
        self.add = add


def get_qualified_name(value: Any) -> str:
    """Return the name under which the class of a value leaves the process."""
    try:
        value.__module__  # noqa: B018 - plain values such as numbers have none, and callers rely on the error
    except AttributeError as error:
        raise AttributeError(f"Object {value} does not have required attributes: {error}") from error
    return wire_name(type(value))


def import_module_from_qualified_name(qualified_name: str) -> Any:
    """Return what a loaded module has under a name. Unlike the original function, it imports nothing."""
    module_name, _, attribute = qualified_name.rpartition(".")
    if not module_name:
        raise ValueError("Qualified name must be in format 'module.attribute'")
    framework = framework_type(qualified_name)
    if framework is not None:
        return framework
    module = sys.modules.get(module_name)
    if module is None:
        raise ImportError(f"Failed to import module {module_name}: it is not loaded, and names are never imported")
    try:
        return getattr(module, attribute)
    except AttributeError as error:
        raise AttributeError(f"Attribute {attribute} not found in module {module_name}: {error}") from error
