"""The store of a stored run: a text for each top-level key of its state, and the state made of such texts.

A text says by its first character how to read it: `=` in the JSON form that the field's type gives it, `:` by the
serializer alone, which brings back what it wrote whatever the class has become. May import loom.steps.
"""

from __future__ import annotations

import json
import re
import warnings
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from loom.effects.convert import MissingTypeError
from loom.steps.registry import UnknownTypeError, resolve, resolve_subclass, wire_name
from loom.steps.serializers import JsonSerializer
from loom.steps.state_store import InMemoryStateStore, StoreEdit, UnserializableKeyWarning
from loom.steps.state_store.edits import apply_to_state
from loom.steps.texts import well_formed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.steps.serializers import BaseSerializer

_TYPED, _PLAIN = "=", ":"

# Agents keep a live object here and set it anew after a load; see the state store.
_MAY_BE_LEFT_OUT = frozenset({"memory"})


def read_text(serializer: BaseSerializer, text: str) -> Any:
    """What a text stands for; `MissingTypeError` if this process lacks a class that it names."""
    try:
        return serializer.deserialize(text)
    except UnknownTypeError as error:
        raise MissingTypeError(error.name) from error
    except ValidationError as error:
        missing = _missing_in(error)
        if missing is None:
            raise
        raise MissingTypeError(missing) from error


_DIGITS = 4300
_RUN = re.compile(r"[0-9]*+", re.ASCII)
_STRINGS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


def storable(text: str) -> str:
    """Give back the text of a serializer, which must have a form in UTF-8 and no number too long to be shown.

    A field of a type writes any integer, but Python prints none of more than 4,300 digits: every list that the run
    stands in would fail.
    """
    if not text.isascii() and well_formed(text) != text:
        raise ValueError("the serializer's text has lone surrogates in it, which cannot be stored.")
    # Long digits may also stand in a string, where they are as good as any text.
    if _has_long_number(text) and _has_long_number(_STRINGS.sub("", text)):
        raise ValueError("it holds an integer of 4,300 digits or more, which cannot be shown.")
    return text


def _has_long_number(text: str) -> bool:
    """Look for 4,300 digits in a row. One in 4,300 places is looked at: so long a row covers one of them.

    A search through all of the text would take half a second for 10 MB, in which no other thread moves.
    """
    for position in range(_DIGITS - 1, len(text), _DIGITS):
        if text[position] in "0123456789":
            before = text[position - _DIGITS + 1 : position][::-1]
            if _length_of_run(before, 0) + _length_of_run(text, position) >= _DIGITS:
                return True
    return False


def _length_of_run(text: str, start: int) -> int:
    found = _RUN.match(text, start)
    return 0 if found is None else found.end() - start


def _missing_in(error: ValidationError) -> str | None:
    """The name of a class that some part of a model needs, if that is why it cannot be read."""
    for detail in error.errors(include_url=False, include_input=False):
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, UnknownTypeError):
            return cause.name
    return None


class StoredState:
    """States of one declared type, or of types that a run has put in its place, as texts and back."""

    __slots__ = ("_serializer", "_state_type")

    def __init__(self, serializer: BaseSerializer, state_type: type[BaseModel]) -> None:
        self._serializer = serializer
        self._state_type = state_type

    def edit(self, edit: StoreEdit) -> tuple[dict[str, Any], tuple[str, ...], str]:
        """Texts by key, removed keys, and the name of the new type if the edit has changed it."""
        changed, left_out = self._write({k: v for k, v in edit.changed.items() if k not in edit.transient})
        name = wire_name(edit.state_type) if edit.state_type is not None else ""
        return changed, (*edit.removed, *left_out), name

    def values(self, store: InMemoryStateStore[Any]) -> tuple[dict[str, str], str]:
        """Texts of a whole store by key, and the name of its type if it is not the declared one."""
        cls = store._current_type()
        kept = {key for key, field in cls.model_fields.items() if field.exclude is not True}
        values = {k: v for k, v in store.values().items() if k in kept or k not in cls.model_fields}
        written, _ = self._write(values)
        return written, "" if cls is self._state_type else wire_name(cls)

    def store(self, values: Mapping[str, str], store_type: str, version: int) -> InMemoryStateStore[Any]:
        """The store that texts by key stand for."""
        cls = self._class_of(store_type)
        if not values:
            return InMemoryStateStore(state_type=cls, version=version)
        typed: dict[str, Any] = {}
        plain: dict[str, Any] = {}
        for key, text in sorted(values.items()):
            if text.startswith(_TYPED):
                typed[key] = json.loads(text[1:])
            else:
                plain[key] = read_text(self._serializer, text[1:])
        state = self._typed_state(cls, typed) if typed else None
        state = apply_to_state(state, StoreEdit(0, plain), cls)
        return InMemoryStateStore(state, version=version)

    def _class_of(self, name: str) -> type[BaseModel]:
        if not name or name == wire_name(self._state_type):
            return self._state_type
        try:
            if isinstance(self._serializer, JsonSerializer):
                found = self._serializer.resolve_class(name)
            else:
                found = resolve_subclass(name, BaseModel) or resolve(name)
        except UnknownTypeError as error:
            raise MissingTypeError(name) from error
        if not issubclass(found, BaseModel):
            raise ValueError(f"The store's type {name} is no model.")
        return found

    def _write(self, values: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
        """Texts by key, and the keys that have none and may do without."""
        written: dict[str, str] = {}
        left_out: list[str] = []
        for key, value in values.items():
            try:
                if well_formed(key) != key:
                    raise ValueError("the key has lone surrogates in it.")
                written[key] = self._text(key, value)
            except Exception as error:
                if key not in _MAY_BE_LEFT_OUT:
                    raise ValueError(f"The state value for key {key!r} cannot be stored: {error}") from error
                message = f"The stored run leaves out the state value for key {key}."
                warnings.warn(message, UnserializableKeyWarning, stacklevel=2)
                left_out.append(key)
        return written, left_out

    def _text(self, key: str, value: Any) -> str:
        if key in self._state_type.model_fields:
            try:
                return _TYPED + storable(json.dumps(_dumped_field(self._state_type, key, value)))
            except (PydanticSerializationError, LookupError):
                pass  # the value is not what its type says, so that its type would not bring it back
        return _PLAIN + storable(self._serializer.serialize(value))

    def _typed_state(self, cls: type[BaseModel], values: dict[str, Any]) -> BaseModel:
        try:
            with self._serializer.validation_context():
                return cls.model_validate(values, by_alias=False, by_name=True)
        except ValidationError as error:
            missing = _missing_in(error)
            if missing is not None:
                raise MissingTypeError(missing) from error
            # Fields may be assigned without their model's consent. What each type makes of its own field is taken.
            read = {key: self._read_field(cls, key, value) for key, value in values.items()}
            return apply_to_state(None, StoreEdit(0, read), cls)

    def _read_field(self, cls: type[BaseModel], key: str, value: Any) -> Any:
        field = cls.model_fields.get(key)
        if field is None:
            return value
        hint: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
        try:
            with self._serializer.validation_context():
                return TypeAdapter(hint).validate_python(value)
        except ValidationError as error:
            raise ValueError(f"The state value for key {key!r} cannot be read: {error}") from error


def _dumped_field(cls: type[BaseModel], name: str, value: Any) -> Any:
    """The JSON form that a model gives a field; an error if the value is not of the field's type."""
    draft = cls.__new__(cls)
    object.__setattr__(draft, "__dict__", {name: value})
    object.__setattr__(draft, "__pydantic_fields_set__", {name})
    object.__setattr__(draft, "__pydantic_extra__", None)
    object.__setattr__(draft, "__pydantic_private__", None)
    return draft.model_dump(mode="json", include={name}, by_alias=False, warnings="error")[name]
