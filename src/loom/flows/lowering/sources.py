"""Actions as they stand in the document, and where to look for their fields. Pure; may import flows.dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loom.flows.diagnostics import at
from loom.flows.dialect import container_is_loom

EVERYWHERE = frozenset(
    {
        "type",
        "kind",
        "name",
        "inputs",
        "runAfter",
        "conditions",
        "retry",
        "retryPolicy",
        "limit",
        "description",
        "metadata",
        "operationOptions",
        "runtimeConfiguration",
        "trackedProperties",
    }
)
"""Keys that any action may have, whatever it does."""


class Located(NamedTuple):
    """A part of the document and its JSON path."""

    value: Any
    path: str

    def child(self, key: str) -> Located | None:
        """What stands under a key, if this is an object that has it."""
        if isinstance(self.value, dict) and key in self.value:
            return Located(self.value[key], at(self.path, key))
        return None


@dataclass(slots=True)
class Source:
    """One action of the document."""

    name: str
    data: dict[str, Any]
    path: str
    around: bool
    """Whether it stands in a container of Loom's."""
    type: str = field(init=False)
    """In lower case; empty if it has none."""
    loom: bool = field(init=False)
    """Whether it speaks Loom's dialect: like what it stands in, or of its own accord."""
    _inputs: Located = field(init=False)

    def __post_init__(self) -> None:
        kind = self.data.get("type")
        self.type = kind.lower() if isinstance(kind, str) else ""
        self.loom = container_is_loom(self.type, self.data, around=self.around)
        self._inputs = Located(self.data.get("inputs"), at(self.path, "inputs"))

    def top(self, key: str) -> Located | None:
        """A field of the action itself."""
        return Located(self.data[key], at(self.path, key)) if key in self.data else None

    def field(self, *keys: str) -> Located | None:
        """The first field of these names: of the action itself, or under `inputs`."""
        for key in keys:
            found = self.top(key) or self._inputs.child(key)
            if found is not None:
                return found
        return None

    def input(self, key: str) -> Located | None:
        """A field under `inputs`; in Loom's dialect also of the action itself."""
        found = self._inputs.child(key)
        return found or (self.top(key) if self.loom and key != "type" else None)

    def inputs(self) -> Located:
        """All inputs. In Loom's dialect they may stand in the action itself, beside the keys that every action has."""
        if "inputs" in self.data or not self.loom:
            return self._inputs
        own = {key: value for key, value in self.data.items() if key not in EVERYWHERE}
        return Located(own or None, self.path)

    @property
    def options(self) -> tuple[str, ...]:
        """`operationOptions`, in lower case."""
        text = self.data.get("operationOptions")
        if not isinstance(text, str):
            return ()
        return tuple(option.strip().lower() for option in text.split(",") if option.strip())

    def setting(self, *keys: str) -> Located | None:
        """What stands under `runtimeConfiguration`, following these keys."""
        found = self.top("runtimeConfiguration")
        for key in keys:
            found = found.child(key) if found is not None else None
        return found
