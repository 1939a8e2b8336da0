"""Values as JSON text and back, with the classes of models written by name. May import `jsonable` and `registry`.

The form is that of llama-index-workflows. A model is `{"__is_pydantic": true, "value", "qualified_name"}`,
a component (an object with `class_name`, `to_dict` and `from_dict`) the same with `__is_component`. A user's dict with
such a key gets a backslash before it, so data can never pose as a type. Names are looked up, never imported.

NaN, the infinities and lone surrogates survive the round trip: the numbers as the words `NaN`, `Infinity` and
`-Infinity`, which Python's json reads although the JSON standard lacks them, the surrogates as escapes, so that the
text is plain ASCII.
"""

from __future__ import annotations

import sys
import warnings
from abc import ABC, abstractmethod
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import TYPE_CHECKING, Any, Self, get_origin

from pydantic import BaseModel
from typing_extensions import override

from loom.steps.jsonable import (
    COMPONENT_MARK,
    MODEL_MARK,
    NotSerialisableError,
    dump_model,
    to_json_values,
    unescape,
)
from loom.steps.registry import (
    UnknownTypeError,
    framework_type,
    main_name,
    names_of,
    resolve,
    resolve_subclass,
    wire_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Events have an `__init__` of their own, through which pydantic hands no validation context, and the `from_dict` of a
# component has no place for one: the serializer at work reaches nested validators this way.
active_serializer: ContextVar[JsonSerializer | None] = ContextVar("loom_active_serializer", default=None)


class BaseSerializer(ABC):
    """What a context and a state store need in order to write values as text and read them again."""

    @contextmanager
    def validation_context(self) -> Iterator[None]:
        """Make this serializer the one that nested validators use; a serializer without type lookup has no need to."""
        yield

    @abstractmethod
    def serialize(self, value: Any) -> str:
        """The value as text; `ValueError` if it has no text form."""

    @abstractmethod
    def deserialize(self, value: str) -> Any:
        """The value that the text stands for."""


class JsonSerializer(BaseSerializer):
    """JSON that brings models and components back as what they were.

    Without `allowed_types` it finds every event and model class that exists in the process. With them (classes, or
    names of classes) it finds those and the framework's own, and nothing else.
    """

    def __init__(self, *, allowed_types: Iterable[type[Any] | str] | None = None) -> None:
        self._preferred: tuple[type[Any], ...] = ()
        self._found: dict[str, type[Any]] = {}
        """Preferred classes by the names under which data has named them."""
        self._allowed: dict[str, type[Any] | None] | None = None
        if allowed_types is not None:
            self._allowed = {}
            for entry in allowed_types:
                self._allow(entry)

    def with_types(self, *classes: type[Any]) -> Self:
        """A serializer that finds these classes too, and takes them first where others share their names."""
        if not classes:
            return self
        extended = copy(self)
        if self._allowed is None:
            extended._preferred = (*self._preferred, *classes)
            extended._found = {}
        else:
            extended._allowed = dict(self._allowed)
            for cls in classes:
                extended._allow(cls)
        return extended

    def _allow(self, entry: Any) -> None:
        allowed = self._allowed if self._allowed is not None else {}
        if isinstance(entry, str):
            allowed.setdefault(entry, None)
            return
        if get_origin(entry) is not None or not isinstance(entry, type) or entry is Any:
            msg = f"allowed_types entries must be concrete classes or names of classes, not {entry!r}."
            raise TypeError(msg)
        for name in names_of(entry):
            taken = allowed.get(name)
            if taken is not None and taken is not entry:
                msg = f"Two classes claim the serialized name {name}: {taken!r} and {entry!r}."
                raise ValueError(msg)
            allowed[name] = entry

    def allows(self, name: str) -> bool:
        """Whether data may name this class."""
        return self._allowed is None or name in self._allowed or framework_type(name) is not None

    def resolve_class(self, qualified_name: str) -> type[Any]:
        """The class of that name; `ValueError` if it is not allowed, not known or not unique."""
        found = self._found.get(qualified_name)
        if found is not None:
            return found
        if not self.allows(qualified_name):
            msg = (
                f"Class {qualified_name} is not in the serializer's allowed types. "
                f"Pass JsonSerializer(allowed_types=[{qualified_name}]) to allow it."
            )
            raise ValueError(msg)
        given = self._allowed.get(qualified_name) if self._allowed is not None else None
        found = given or _existing_class(qualified_name, self._preferred)
        if found in self._preferred:
            self._found[qualified_name] = found
        return found

    @contextmanager
    @override
    def validation_context(self) -> Iterator[None]:
        """Make this serializer the one that nested validators use."""
        token = active_serializer.set(self)
        try:
            yield
        finally:
            active_serializer.reset(token)

    def serialize_value(self, value: Any) -> Any:
        """The value as JSON has it: dicts, lists, strings, numbers, booleans and None."""
        return to_json_values(value, self._encode_object)

    def deserialize_value(self, data: Any) -> Any:
        """The value that JSON data stands for."""
        if isinstance(data, list):
            return [self.deserialize_value(item) for item in data]
        if not isinstance(data, dict):
            return data
        name = data.get("qualified_name")
        if name and isinstance(name, str):
            if data.get(MODEL_MARK):
                return self._build(name, data, "model_validate")
            if data.get(COMPONENT_MARK):
                return self._build(name, data, "from_dict")
        return {unescape(key): self.deserialize_value(item) for key, item in data.items()}

    @override
    def serialize(self, value: Any) -> str:
        """The value as JSON text; `ValueError` with the path of what JSON cannot hold."""
        try:
            return self.write_json(self.serialize_value(value))
        except NotSerialisableError:
            raise
        except RecursionError:
            msg = "Failed to serialize value: it is nested too deeply, or contains itself."
            raise ValueError(msg) from None
        except (TypeError, ValueError) as error:
            msg = f"Failed to serialize value: {type(value)}: {error}"
            raise ValueError(msg) from error

    @override
    def deserialize(self, value: str) -> Any:
        """The value that the JSON text stands for."""
        try:
            return self.deserialize_value(self.read_json(value))
        except RecursionError:
            msg = "Failed to deserialize value: it is nested too deeply."
            raise ValueError(msg) from None

    def write_json(self, data: Any) -> str:
        """JSON values as the text that `read_json` reads."""
        import json

        return json.dumps(data)

    def read_json(self, text: str) -> Any:
        """The JSON values in a text, before they are made into what they stand for."""
        import json

        return json.loads(text)

    def _encode_object(self, value: Any) -> dict[str, Any]:
        cls = type(value)
        if is_component(cls):
            return {COMPONENT_MARK: True, "value": value.to_dict(), "qualified_name": wire_name(cls)}
        if isinstance(value, BaseModel):
            return {MODEL_MARK: True, "value": dump_model(value), "qualified_name": wire_name(cls)}
        raise NotSerialisableError(f"object of type {cls.__qualname__} is not serialisable")

    def _build(self, name: str, data: dict[str, Any], constructor: str) -> Any:
        build = getattr(self.resolve_class(name), constructor, None)
        if build is None or "value" not in data:
            msg = f"Class {name} cannot be built from this data: it has no {'value' if build else constructor}."
            raise ValueError(msg)
        token = active_serializer.set(self)
        try:
            return build(data["value"])
        finally:
            active_serializer.reset(token)


class PickleSerializer(JsonSerializer):
    """Kept for its name. It writes and reads JSON like its parent, warns, and refuses pickles: they run code."""

    def __init__(self, *, allowed_types: Iterable[type[Any] | str] | None = None) -> None:
        warnings.warn("PickleSerializer writes and reads JSON only: Loom never pickles.", UserWarning, stacklevel=2)
        super().__init__(allowed_types=allowed_types)

    @override
    def deserialize(self, value: str) -> Any:
        """The value that the JSON text stands for; a base64 pickle is a `ValueError`."""
        # Every pickle since protocol 2 starts with the byte 0x80, which base64 shows so; no JSON text does.
        if value.startswith("gA"):
            msg = "This text is a pickle. Reading one can run any code, so it is refused: write the value as JSON."
            raise ValueError(msg)
        return super().deserialize(value)


JsonPickleSerializer = PickleSerializer


def is_component(cls: type[Any]) -> bool:
    """Whether objects of the class know by themselves how to be written and read."""
    # Asked of the class: an event may well have an extra value called class_name.
    return all(callable(getattr(cls, name, None)) for name in ("class_name", "to_dict", "from_dict"))


def _existing_class(name: str, preferred: tuple[type[Any], ...]) -> type[Any]:
    """Look among registered classes, then among models, then for a component in the modules that are loaded."""
    try:
        return resolve(name, preferred)
    except UnknownTypeError:
        found = resolve_subclass(name, BaseModel) or _loaded_component(name)
        if found is None:
            raise
        return found


def _loaded_component(name: str) -> type[Any] | None:
    module_name, _, attribute = name.rpartition(".")
    # The main program goes by the stem of its file, under which another module may be loaded too.
    places = [module_name, "__main__"] if module_name == main_name() else [module_name]
    for module in filter(None, map(sys.modules.get, places)):
        found = vars(module).get(attribute)
        if isinstance(found, type) and is_component(found):
            return found
    return None
