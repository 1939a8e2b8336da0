"""JSON that keeps what JSON loses: the serializer of stored runs whose workflow has none of its own.

It writes what `JsonSerializer` writes, and besides that a tagged dict, `{"__loom": "tuple", "value": [...]}`, for
values of untyped places that JSON has no form for: values of a `DictState`, undeclared values of events, results of
`StopEvent`, fields declared as `Any`. Typed fields have pydantic's own JSON form, since their types bring them back.
A model that has tagged parts says which in `tagged`. A tag is a name in a table, nothing else; it never leads to an
import.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
from pydantic import BaseModel
from typing_extensions import override

from loom.steps.events import DictLikeModel, StopEvent
from loom.steps.plain_models import has_extras, plain_model
from loom.steps.registry import UnknownTypeError, resolve_subclass, wire_name
from loom.steps.serializers import (
    COMPONENT_MARK,
    MODEL_MARK,
    TAG_MARK,
    JsonSerializer,
    NotSerialisableError,
    dump_model,
    escape,
    is_component,
    unescape,
)

if TYPE_CHECKING:
    from collections.abc import Callable


MAX_DEPTH = 150
"""How deep values may be nested: deep enough for data, and far from what Python's own stack allows."""

_EXTRAS = "_data"
_RESULT = "result"
_PARTS = "tagged"
_OPENING, _NAMING = f'{{"{MODEL_MARK}":true,"value":', ',"qualified_name":"'
_OPENING_LENGTH, _NAME_LENGTH = len(_OPENING), len(_NAMING)
_TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep, or contains itself"


class TaggedSerializer(JsonSerializer):
    """JSON that brings values of untyped places back as what they were. It reads what `JsonSerializer` wrote."""

    @override
    def serialize(self, value: Any) -> str:
        """Return the value as JSON text; `ValueError` with the path of what cannot be stored."""
        cls = type(value)
        shape = _shapes.get(cls)
        if shape is not None and shape.is_typed_throughout(value):
            plain = plain_model(cls)
            try:
                text = (plain.write if plain is not None else cls.__pydantic_serializer__.to_json)(value).decode()
            except ValueError:
                pass  # the longer way tells where it is wrong, or has a form for it
            else:
                return f'{_OPENING}{text}{_NAMING}{shape.name}"}}'
        return super().serialize(value)

    @override
    def deserialize(self, value: str) -> Any:
        """Return the value that the JSON text was made from. The text of a plain model is read in one go.

        What is between the opening and the name is the model's own text if it is valid JSON by itself.
        """
        if value.startswith(_OPENING) and (name_at := value.rfind(_NAMING)) > 0:
            # Only a class that the longer way has found by this name before: it also says which names are refused.
            cls = self._found.get(value[name_at + _NAME_LENGTH : -2])
            plain = plain_model(cls) if cls is not None and value.endswith('"}') else None
            if plain is not None:
                try:
                    return plain.read(value[_OPENING_LENGTH:name_at])
                except msgspec.DecodeError:
                    pass  # the longer way converts, keeps what is undeclared, or tells what is wrong
        return super().deserialize(value)

    @override
    def serialize_value(self, value: Any) -> Any:
        """Return the value as JSON has it, with tags."""
        return self._encode(value, 0)

    @override
    def deserialize_value(self, data: Any) -> Any:
        """Return the value that JSON data was made from."""
        if isinstance(data, list):
            return [self.deserialize_value(item) for item in data]
        if not isinstance(data, dict):
            return data
        if TAG_MARK in data:
            return self._decode_tagged(data)
        name = data.get("qualified_name")
        if name and isinstance(name, str):
            if data.get(MODEL_MARK):
                return self._build(name, self._with_parts(data), "model_validate")
            if data.get(COMPONENT_MARK):
                return self._build(name, data, "from_dict")
        return {unescape(key): self.deserialize_value(item) for key, item in data.items()}

    def _encode(self, value: Any, depth: int) -> Any:
        cls = type(value)
        if cls in PLAIN:
            return value
        if cls is int or cls is float:
            return value if is_plain_number(value) else _tagged(value)
        if depth > MAX_DEPTH:
            raise NotSerialisableError(_TOO_DEEP)
        if isinstance(value, dict):
            return self._encode_dict(value, depth + 1)
        if isinstance(value, list):
            return self._encode_items(value, depth + 1)
        if cls in WRITERS:
            return _tagged(value)
        return self._encode_other(value, depth)

    def _encode_other(self, value: Any, depth: int) -> Any:
        """Encode what is rarer: containers that JSON lacks, models, enumeration members, subclasses of plain types."""
        if isinstance(value, BaseModel):
            return self._encode_model(value, depth)
        if isinstance(value, Enum):
            member = value.value if isinstance(value, Flag) else value.name
            return {TAG_MARK: "enum", "class": wire_name(type(value)), "value": member}
        if isinstance(value, tuple):
            return {TAG_MARK: "tuple", "value": self._encode_items(value, depth + 1)}
        if isinstance(value, set | frozenset):
            # In an order that does not depend on hashes, which differ between processes.
            items = sorted(self._encode_items(value, depth + 1), key=json.dumps)
            return {TAG_MARK: "set" if isinstance(value, set) else "frozenset", "value": items}
        for plain in (str, int, float):
            if isinstance(value, plain):
                return self._encode(plain(value), depth)
        return self._encode_object(value)

    def _encode_items(self, values: Any, depth: int) -> list[Any]:
        items = []
        for index, item in enumerate(values):
            try:
                items.append(self._encode(item, depth))
            except NotSerialisableError as error:
                error.within(f"[{index}]")
                raise
        return items

    def _encode_dict(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        by_name = all(type(key) is str for key in value)
        pairs = []
        for key, item in value.items():
            try:
                pairs.append([escape(key) if by_name else self._encode(key, depth), self._encode(item, depth)])
            except NotSerialisableError as error:
                error.within(f".{key}")
                raise
        return dict(pairs) if by_name else {TAG_MARK: "dict", "value": pairs}

    def _encode_model(self, model: BaseModel, depth: int) -> dict[str, Any]:
        shape = _shape_of(type(model))
        if shape.is_component:
            return self._encode_object(model)
        loose = {name: value for name, value in shape.loose_parts(model) if not _is_plain(value, depth)}
        if not loose:
            return {MODEL_MARK: True, "value": dump_model(model), "qualified_name": shape.name}
        written = dump_model(_without(model, loose))
        for name, value in loose.items():
            try:
                written[name] = self._encode(value, depth + 1)
            except NotSerialisableError as error:
                if name != _EXTRAS:  # an undeclared value is an attribute like the declared ones
                    error.within(f".{name}")
                raise
        return {MODEL_MARK: True, "value": written, "qualified_name": shape.name, _PARTS: sorted(loose)}

    @override
    def _encode_object(self, value: Any) -> dict[str, Any]:
        written = super()._encode_object(value)
        # Only a component comes so far. What it writes is its own affair, but must be JSON.
        return {**written, "value": json.loads(json.dumps(written["value"]))}

    def _decode_tagged(self, data: dict[str, Any]) -> Any:
        tag, value = data[TAG_MARK], data.get("value")
        if not isinstance(tag, str):
            raise ValueError(f"A tag is a name, not {tag!r}.")
        if tag == "enum":
            return self._decode_member(data.get("class"), value)
        if tag in CONTAINERS:
            if not isinstance(value, list):
                raise ValueError(f"What stands under the tag {tag!r} does not fit it: it is no list.")
            value = self.deserialize_value(value)
        return read_tagged(tag, value)

    def _decode_member(self, name: Any, member: Any) -> Any:
        """A member of an enumeration that exists in this process."""
        if not isinstance(name, str) or not self.allows(name):
            raise ValueError(f"Class {name} is not in the serializer's allowed types.")
        found = resolve_subclass(name, Enum)
        if found is None:
            raise UnknownTypeError(name)
        try:
            return _flag(found, member) if issubclass(found, Flag) else found[member]
        except (KeyError, ValueError) as error:
            raise ValueError(f"{name} has no member {member!r}.") from error

    def _with_parts(self, data: dict[str, Any]) -> dict[str, Any]:
        """The data of a model with its tagged parts read."""
        parts, value = data.get(_PARTS), data.get("value")
        if not parts or not isinstance(value, dict):
            return data
        return {**data, "value": {**value, **{name: self.deserialize_value(value[name]) for name in parts}}}

    @override
    def write_json(self, data: Any) -> str:
        """JSON values as text."""
        try:
            text = msgspec.json.encode(data)
        except (TypeError, ValueError, OverflowError):
            return json.dumps(data)  # it holds lone surrogates, which json writes as escapes
        # Many times faster, but it writes null for what is no finite number; json has words for those.
        return text.decode() if b"null" not in text else json.dumps(data)

    @override
    def read_json(self, text: str) -> Any:
        """Return the JSON values in a text."""
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return json.loads(text)  # words for infinite numbers, escapes of lone surrogates, or no JSON at all


class _ModelForm(NamedTuple):
    """What of a model's class decides how it is written."""

    name: str
    is_component: bool
    has_extras: bool
    has_result: bool
    any_fields: tuple[str, ...]
    is_typed: bool
    """Whether the types of its fields bring all of it back, and pydantic may write it in one go."""

    def is_typed_throughout(self, model: Any) -> bool:
        """Return whether nothing in a model needs a tag."""
        return self.is_typed and not (self.has_extras and has_extras(model))

    def loose_parts(self, model: Any) -> list[tuple[str, Any]]:
        """Return the parts of a model that no type brings back."""
        parts = [(name, model.__dict__.get(name)) for name in self.any_fields]
        if self.has_extras and model._data:
            parts.append((_EXTRAS, model._data))
        if self.has_result:
            parts.append((_RESULT, model._result))
        return parts


def _dumps_of(cls: type[BaseModel]) -> list[Any]:
    return [decorator.func for decorator in cls.__pydantic_decorators__.model_serializers.values()]


_OUR_DUMPS = frozenset((*_dumps_of(DictLikeModel), *_dumps_of(StopEvent)))
_shapes: WeakKeyDictionary[type[BaseModel], _ModelForm] = WeakKeyDictionary()


def _shape_of(cls: type[BaseModel]) -> _ModelForm:
    shape = _shapes.get(cls)
    if shape is None:
        fields, own = cls.model_fields, cls.__pydantic_decorators__.field_serializers.values()
        has_own = {name for decorator in own for name in decorator.info.fields}
        # A class that writes itself in its own way reads itself in that way too.
        dumps_itself = not _OUR_DUMPS.issuperset(_dumps_of(cls))
        component = is_component(cls)
        has_result = issubclass(cls, StopEvent) and _RESULT not in fields and not dumps_itself
        any_fields = tuple(
            name
            for name, field in fields.items()
            if field.annotation is Any and not field.metadata and not {name, "*"} & has_own and not dumps_itself
        )
        shape = _shapes[cls] = _ModelForm(
            wire_name(cls),
            component,
            issubclass(cls, DictLikeModel) and not dumps_itself,
            has_result,
            any_fields,
            not (component or has_result or any_fields) and cls.model_dump is BaseModel.model_dump,
        )
    return shape


def _without(model: BaseModel, loose: dict[str, Any]) -> BaseModel:
    """A shallow copy of a model that lacks its loose parts, to be dumped only."""
    cls = type(model)
    copied = cls.__new__(cls)
    fields = {name: None if name in loose else value for name, value in model.__dict__.items()}
    object.__setattr__(copied, "__dict__", fields)
    object.__setattr__(copied, "__pydantic_fields_set__", model.__pydantic_fields_set__)
    object.__setattr__(copied, "__pydantic_extra__", model.__pydantic_extra__)
    private = model.__pydantic_private__
    if private is not None and _RESULT in loose:
        private = {**private, "_result": None}
    object.__setattr__(copied, "__pydantic_private__", private)
    if isinstance(model, DictLikeModel) and _EXTRAS not in loose:
        copied._data.update(model._data)  # type: ignore[attr-defined]  # it is of the same class
    return copied


def _tagged(value: Any) -> dict[str, Any]:
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise NotSerialisableError(f"an integer of {value.bit_length()} bits cannot be shown: {MAX_INT_BITS} can be")
    tag, write = WRITERS[type(value)]
    return {TAG_MARK: tag, "value": write(value)}


def _is_plain(value: Any, depth: int) -> bool:
    """Return whether pydantic's JSON form of an untyped value is the value itself."""
    cls = type(value)
    if cls in PLAIN:
        return True
    if cls is int or cls is float:
        return is_plain_number(value)
    if depth > MAX_DEPTH:
        return False
    if cls is list:
        return all(_is_plain(item, depth + 1) for item in value)
    if cls is not dict:
        return False
    # Pydantic refuses lone surrogates in keys, though not elsewhere.
    return all(type(key) is str and key.isascii() and _is_plain(item, depth + 1) for key, item in value.items())


def _flag(found: type[Flag], value: Any) -> Any:
    """A flag by its value. Python 3.11 up to 3.11.3 drops bits that the class does not have, which would lose data."""
    flag: Any = found(value)  # of a class with `boundary=EJECT` it may be a number
    if isinstance(flag, Flag) and flag.value != value:
        raise ValueError(f"{value!r} has bits that {found.__name__} does not have.")
    return flag


_LARGEST = 2**63
"""Beyond it, not every reader of JSON takes a number as it is, and Python itself refuses to print very long ones."""

MAX_INT_BITS = 14_280
"""An integer with more has over 4,299 digits: Python refuses to print it, and so no answer in JSON can show it."""

PLAIN = frozenset((str, bool, type(None)))
"""What JSON holds as it is, whatever the value."""


def is_plain_number(value: Any) -> bool:
    """Return whether JSON holds a number (an int or a float) as it is."""
    return -_LARGEST <= value < _LARGEST if isinstance(value, int) else math.isfinite(value)


def _write_bytes(value: Any) -> str:
    return base64.b64encode(value).decode()


_FOLD = "!"
"""Marks the second of two moments that a clock shows alike, in the hour in which it is set back."""


def _write_moment(value: datetime | time) -> str:
    return value.isoformat() + (_FOLD if value.fold else "")


def _read_moment(cls: type[datetime] | type[time], data: str) -> datetime | time:
    return cls.fromisoformat(data.removesuffix(_FOLD)).replace(fold=int(data.endswith(_FOLD)))


def _write_timedelta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


WRITERS: dict[type[Any], tuple[str, Callable[[Any], Any]]] = {
    int: ("int", hex),
    float: ("float", repr),
    complex: ("complex", lambda value: [repr(value.real), repr(value.imag)]),
    bytes: ("bytes", _write_bytes),
    bytearray: ("bytearray", _write_bytes),
    datetime: ("datetime", _write_moment),
    date: ("date", date.isoformat),
    time: ("time", _write_moment),
    timedelta: ("timedelta", _write_timedelta),
    Decimal: ("decimal", str),
    UUID: ("uuid", str),
    type(Path()): ("path", str),
    type(PurePath()): ("pure_path", str),
}
"""By exact class: the tag, and the value's JSON form. Numbers come here only if JSON would not hold them."""

_READERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda data: int(data, 16),
    "float": float,
    "complex": lambda data: complex(float(data[0]), float(data[1])),
    "bytes": lambda data: base64.b64decode(data, validate=True),
    "bytearray": lambda data: bytearray(base64.b64decode(data, validate=True)),
    "datetime": partial(_read_moment, datetime),
    "date": date.fromisoformat,
    "time": partial(_read_moment, time),
    "timedelta": lambda data: timedelta(*data),
    "decimal": Decimal,
    "uuid": UUID,
    "path": Path,
    "pure_path": PurePath,
    # These get their members read already.
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
}
CONTAINERS = frozenset(("tuple", "set", "frozenset", "dict"))


def read_tagged(tag: str, data: Any) -> Any:
    """Return the value under a tag; raise `ValueError` if there is no such tag, or the data does not fit it."""
    reader = _READERS.get(tag)
    if reader is None:
        raise ValueError(f"Unknown tag {tag!r}: a newer version may have written it.")
    try:
        return reader(data)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        raise ValueError(f"What stands under the tag {tag!r} does not fit it: {error}") from error
