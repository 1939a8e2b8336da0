"""Values as JSON text and back, with the classes of models written by name.

The form is that of llama-index-workflows. A model is `{"__is_pydantic": true, "value", "qualified_name"}`,
a component (an object with `class_name`, `to_dict` and `from_dict`) the same with `__is_component`. A user's dict with
such a key gets a backslash before it, so data can never pose as a type. Names are looked up, never imported. What JSON
cannot hold is refused with its path.

NaN, the infinities and lone surrogates survive the round trip: the numbers as the words `NaN`, `Infinity` and
`-Infinity`, which Python's json reads although the JSON standard lacks them, the surrogates as escapes, so that the
text is plain ASCII.

An exception is written as `{exception_type, exception_message}`. It comes back as its class where this process has that
class already and the class takes one message.
"""

from __future__ import annotations

import builtins
import sys
import warnings
from abc import ABC, abstractmethod
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from typing import TYPE_CHECKING, Any, Self, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import override

from loom.steps.errors import message_of
from loom.steps.registry import (
    AmbiguousTypeError,
    UnknownTypeError,
    framework_name,
    framework_type,
    is_framework,
    main_name,
    module_of,
    names_of,
    resolve,
    resolve_subclass,
    wire_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


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
        """Return the value as text; raise `ValueError` if it has no text form."""

    @abstractmethod
    def deserialize(self, value: str) -> Any:
        """Return the value that the text was made from."""


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
        """Return a serializer that finds these classes too, and takes them first where others share their names."""
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
        """Return whether data may name this class."""
        return self._allowed is None or name in self._allowed or framework_type(name) is not None

    def resolve_class(self, qualified_name: str) -> type[Any]:
        """Return the class of that name; raise `ValueError` if it is not allowed, not known or not unique."""
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
        """Return the value as JSON has it: dicts, lists, strings, numbers, booleans and None."""
        return to_json_values(value, self._encode_object)

    def deserialize_value(self, data: Any) -> Any:
        """Return the value that JSON data was made from."""
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
        """Return the value as JSON text; raise `ValueError` with the path of what JSON cannot hold."""
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
        """Return the value that the JSON text was made from."""
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
        """Return the JSON values in a text, before they become values again."""
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
        """Return the value that the JSON text was made from; raise `ValueError` for a base64 pickle."""
        # Every pickle since protocol 2 starts with the byte 0x80, which base64 shows so; no JSON text does.
        if value.startswith("gA"):
            msg = "This text is a pickle. Reading one can run any code, so it is refused: write the value as JSON."
            raise ValueError(msg)
        return super().deserialize(value)


JsonPickleSerializer = PickleSerializer


def is_component(cls: type[Any]) -> bool:
    """Return whether objects of the class know by themselves how to be written and read."""
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


MODEL_MARK = "__is_pydantic"
COMPONENT_MARK = "__is_component"
TAG_MARK = "__loom"
"""Marks what `TaggedSerializer` writes for a value that JSON has no form for."""
_MARKS = frozenset((MODEL_MARK, COMPONENT_MARK, TAG_MARK))


class NotSerialisableError(ValueError):
    """A value that JSON cannot hold; the message says where it is."""

    # Failures are stored with the name of their class: this one.
    __module__ = "loom.steps.jsonable"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self._inside_out: list[str] = []

    @property
    def path(self) -> str:
        """Tell where the value is, seen from the value that was to be serialized."""
        return "".join(reversed(self._inside_out))

    def within(self, part: str) -> None:
        """Add the next outer part of the path."""
        self._inside_out.append(part)

    @override
    def __str__(self) -> str:
        return f"Failed to serialize value{self.path}: {self.reason}"


def to_json_values(value: Any, encode_object: Callable[[Any], Any]) -> Any:
    """Go through dicts, lists and tuples; `encode_object` gets everything else that JSON has no form for."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        return _to_json_object(value, encode_object)
    if isinstance(value, (list, tuple)):
        items = []
        for index, item in enumerate(value):
            try:
                items.append(to_json_values(item, encode_object))
            except NotSerialisableError as error:
                error.within(f"[{index}]")
                raise
        return items
    return encode_object(value)


def _to_json_object(value: dict[Any, Any], encode_object: Callable[[Any], Any]) -> dict[str, Any]:
    encoded: dict[str, Any] = {}
    for key, item in value.items():
        name = escape(key) if isinstance(key, str) else _key_text(key)
        if name in encoded:
            msg = f"two keys become {name!r} in JSON"
            raise NotSerialisableError(msg)
        try:
            encoded[name] = to_json_values(item, encode_object)
        except NotSerialisableError as error:
            error.within(f".{key}")
            raise
    return encoded


def _key_text(key: Any) -> str:
    import json

    if key is None or isinstance(key, (int, float)):
        return json.dumps(key)
    raise NotSerialisableError(f"key {key!r} of type {type(key).__qualname__} is not serialisable")


def escape(key: str) -> str:
    """Return a user's key, told from the marks."""
    return f"\\{key}" if key.lstrip("\\") in _MARKS else key


def unescape(key: str) -> str:
    """Return a key as the user wrote it."""
    return key[1:] if key.startswith("\\") and key.lstrip("\\") in _MARKS else key


def dump_model(model: BaseModel) -> Any:
    """Return a model's own JSON form; where it has none, an error that names the field."""
    try:
        return model.model_dump(mode="json")
    except PydanticSerializationError as error:
        raise _located(model, error) from error


def _located(value: Any, error: Exception) -> NotSerialisableError:
    """Find the innermost part that cannot be serialised. Only a failure pays for this search."""
    for part, item in _parts(value):
        found = _failure(value, part, item)
        if found is not None:
            located = _located(item, found)
            located.within(part)
            return located
    if isinstance(value, (BaseModel, dict, list, tuple)):
        return NotSerialisableError(str(error))
    return NotSerialisableError(f"object of type {type(value).__qualname__} is not serialisable")


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        # What the model adds to its dump by itself comes first: its presence spoils the dump of any single field.
        private = {"result": getattr(value, "_result", None), **(getattr(value, "_data", None) or {})}
        yield from ((f".{key}", item) for key, item in private.items())
        yield from ((f".{key}", getattr(value, key, None)) for key in type(value).model_fields)
    elif isinstance(value, dict):
        yield from ((f".{key}", item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))


def _failure(owner: Any, part: str, item: Any) -> Exception | None:
    """Tell why this part fails by itself. A declared field is tried as its model writes it."""
    name = part[1:]
    try:
        if isinstance(owner, BaseModel) and name in type(owner).model_fields:
            owner.model_dump(mode="json", include={name})
        else:
            to_jsonable_python(item)
    except (PydanticSerializationError, ValueError) as error:
        return error
    return None


# Exceptions as data.


class UnreconstructedException(Exception):
    """An exception whose class is unknown here or cannot be built from a message alone."""

    def __init__(self, message: str, *, original_type: str | None = None) -> None:
        super().__init__(message)
        self.original_type = original_type

    @override
    def __repr__(self) -> str:
        return f"UnreconstructedException(original_type={self.original_type!r}, {self.args[0]!r})"


framework_name(UnreconstructedException, "workflows.events.UnreconstructedException")


class _Verbatim(str):
    """A message that reads the same after `repr`, for exceptions such as KeyError that show the repr of theirs."""

    __slots__ = ()

    @override
    def __repr__(self) -> str:
        return str(self)


def exception_name(cls: type[BaseException]) -> str:
    """Return the wire name of an exception class."""
    return wire_name(cls) if is_framework(cls) else f"{module_of(cls)}.{cls.__qualname__}"


def dump_exception(exc: BaseException) -> dict[str, Any]:
    """Return an exception as data. One that could not be rebuilt keeps the name it came with."""
    original = exc.original_type if isinstance(exc, UnreconstructedException) else None
    return {"exception_type": original or exception_name(type(exc)), "exception_message": message_of(exc)}


def load_exception(data: Any) -> BaseException:
    """Return the exception that the data describes; what cannot be rebuilt is an `UnreconstructedException`."""
    if isinstance(data, BaseException):
        return data
    if not isinstance(data, dict) or not isinstance(name := data.get("exception_type"), str):
        msg = "An exception is written as {'exception_type': ..., 'exception_message': ...}."
        raise ValueError(msg)
    message = str(data.get("exception_message", ""))
    cls = _exception_class(name)
    if cls is not None:
        try:
            exc = cls(message)
            if str(exc) != message:
                exc.args = (_Verbatim(message),)
            isinstance(exc, UnreconstructedException)  # which asks it for its class, as many will
        except BaseException:  # noqa: BLE001 - foreign code; the stand-in below keeps the facts
            cls = None
        else:
            return exc
    return UnreconstructedException(message, original_type=name)


def _exception_class(name: str) -> type[Exception] | None:
    """An exception class that already exists under that name; nothing that is not an exception can be reached."""
    serializer = active_serializer.get()
    found: Any
    if name.startswith("builtins."):
        found = vars(builtins).get(name.removeprefix("builtins."))
    elif (framework := framework_type(name)) is not None:
        found = framework
    elif serializer is not None and not serializer.allows(name):
        found = None
    else:
        found = _existing_exception(name)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _existing_exception(name: str) -> Any:
    module_name, _, attribute = name.rpartition(".")
    found = vars(sys.modules[module_name]).get(attribute) if module_name in sys.modules else None
    if isinstance(found, type) and name in names_of(found):
        return found
    try:
        return resolve_subclass(name, Exception)
    except AmbiguousTypeError:
        return None
