"""Classes for events whose own class this process lacks, such as an event that is sent by name from a command line."""

from __future__ import annotations

from types import new_class
from typing import Any

from pydantic import model_serializer

from loom.steps.events import Event


def stand_in(name: str) -> type[Event]:
    """Return an event class for a type by its wire name. Its fields are stored as they are given, unchecked."""
    module, _, short = name.rpartition(".")
    namespace = {
        "__module__": module,
        "__qualname__": short,
        "custom_model_dump": model_serializer(mode="plain")(_fields_side_by_side),
    }
    cls: type[Event] = new_class(short, (_StandIn, Event), exec_body=lambda body: body.update(namespace))
    return cls


def is_stand_in(cls: type[Any]) -> bool:
    """Say whether a class was made by `stand_in`."""
    return issubclass(cls, _StandIn)


class _StandIn:
    """Keeps a stand-in out of the registry, where the real class may be by the same name."""

    __loom_stand_in__ = True

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        pass


def _fields_side_by_side(self: Any) -> dict[str, Any]:
    """Return all fields, as the real class stores the ones that it declares."""
    return dict(self._data)
