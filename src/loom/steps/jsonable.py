"""Python values as the values that JSON has, refusing with a path what JSON cannot hold. May import pydantic.

A type travels as a marked dict, so a user's dict that has a marker among its keys gets a backslash before that key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MODEL_MARK = "__is_pydantic"
COMPONENT_MARK = "__is_component"
TAG_MARK = "__loom"
"""Marks what `TaggedSerializer` writes for a value that JSON has no form for."""
_MARKS = frozenset((MODEL_MARK, COMPONENT_MARK, TAG_MARK))


class NotSerialisableError(ValueError):
    """A value that JSON cannot hold; the message says where it is."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self._inside_out: list[str] = []

    @property
    def path(self) -> str:
        """Where the value is, seen from the value that was to be serialised."""
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
    """A user's key, told from the marks."""
    return f"\\{key}" if key.lstrip("\\") in _MARKS else key


def unescape(key: str) -> str:
    """A key as the user wrote it."""
    return key[1:] if key.startswith("\\") and key.lstrip("\\") in _MARKS else key


def dump_model(model: BaseModel) -> Any:
    """A model's own JSON form; where it has none, an error that names the field."""
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
    """Why this part fails by itself. A declared field is tried as its model writes it, with any serializer it has."""
    name = part[1:]
    try:
        if isinstance(owner, BaseModel) and name in type(owner).model_fields:
            owner.model_dump(mode="json", include={name})
        else:
            to_jsonable_python(item)
    except (PydanticSerializationError, ValueError) as error:
        return error
    return None
