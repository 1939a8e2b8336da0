"""Plain models: classes whose instances are read from JSON text and written to it in one go.

Events have an `__init__` and a dump of their own, for undeclared values. Pydantic calls both from its validator and its
serializer, so that an event is validated twice and dumped twice. Most events have nothing undeclared, and fields that
JSON holds as they are.

A class is plain if its fields are texts, numbers, truth values, and lists and dicts of them, without constraints and
without code of the author's. Then a decoder of msgspec that accepts a text gives the fields that pydantic would give:
it is stricter, never laxer. A text that it refuses has to go the usual way, which converts, keeps what is undeclared,
or tells what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import asdict
from pydantic import BaseModel
from pydantic_core import SchemaSerializer, SchemaValidator

from loom.steps.events import DictLikeModel, fill_slot, read_slot

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN = "__loom_plain__"
_SCALARS: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "none": None}
_FIELD_KEYS = frozenset(("type", "schema", "metadata"))
_CONFIG_KEYS = frozenset(("title", "ser_json_inf_nan", "validate_by_alias", "validate_by_name"))
_DEFAULT_KEYS = frozenset(("type", "schema", "default", "default_factory", "default_factory_takes_data"))


class PlainModel(NamedTuple):
    """The short way from and to text, of one class."""

    read: Callable[[str], Any]
    """Make an instance of the text of its fields; `msgspec.DecodeError` if it must go the usual way."""
    write: Callable[[Any], bytes]
    """Write the fields of an instance without undeclared values."""


def plain_model(cls: type[Any]) -> PlainModel | None:
    """Return the short way of a class; None if it has none. Kept on the class."""
    found: PlainModel | None = cls.__dict__.get(_PLAIN, _MISSING)
    if found is _MISSING:
        found = _made(cls)
        if getattr(cls, "__pydantic_complete__", True):
            setattr(cls, _PLAIN, found)
    return found


_MISSING: Any = object()


def has_extras(model: DictLikeModel) -> bool:
    """Return whether a model has undeclared values, without making a dict for them."""
    try:
        return bool(read_slot(model))
    except AttributeError:
        return False


def _made(cls: type[Any]) -> PlainModel | None:
    if not issubclass(cls, DictLikeModel) or not _is_built_by_us(cls):
        return None
    schema: Any = cls.__pydantic_core_schema__
    fields = _plain_fields(schema)
    if fields is None:
        return None
    stripped: Any = {key: value for key, value in schema.items() if key not in ("serialization", "ref")}
    stripped["custom_init"] = False
    return PlainModel(_reader(cls, fields), SchemaSerializer(stripped).to_json)


def _reader(cls: type[Any], fields: dict[str, Any]) -> Callable[[str], Any]:
    """Make the function that reads an instance from the text of all its fields."""
    struct = msgspec.defstruct("Fields", list(fields.items()), forbid_unknown_fields=True, gc=False)
    decode, names = msgspec.json.Decoder(struct).decode, frozenset(fields)
    new: Any = cls.__new__
    fill = object.__setattr__

    def read(text: str) -> Any:
        model = new(cls)
        # As pydantic's `model_construct` does.
        fill(model, "__dict__", asdict(decode(text)))
        fill(model, "__pydantic_fields_set__", set(names))
        fill(model, "__pydantic_extra__", None)
        fill(model, "__pydantic_private__", None)
        fill_slot(model, None)
        return model

    return read


def _is_built_by_us(cls: type[DictLikeModel]) -> bool:
    """Say whether instances of a class are built and validated by our code and pydantic's alone."""
    return (
        cls.__init__ is DictLikeModel.__init__
        and cls.__new__ is object.__new__
        and type(cls).__call__ is type.__call__
        and cls.model_validate.__func__ is BaseModel.model_validate.__func__  # type: ignore[attr-defined]
        and cls.__pydantic_complete__
        # A plugin of pydantic's gets to see every validation.
        and type(cls.__pydantic_validator__) is SchemaValidator
    )


def _plain_fields(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the types of the fields of a plain model by name; None if the schema is that of another one.

    The only code in it may be our `__init__` and dump.
    """
    inner, dump = schema.get("schema", {}), schema.get("serialization", {})
    if (
        schema["type"] != "model"
        or "post_init" in schema
        or inner.get("type") != "model-fields"
        or inner.get("computed_fields")
        or not _CONFIG_KEYS.issuperset(schema.get("config", {}))
        or dump.get("function") is not DictLikeModel.custom_model_dump
        or not all(_FIELD_KEYS.issuperset(field) for field in inner["fields"].values())
    ):
        return None
    try:
        return {name: _type_of(field["schema"]) for name, field in inner["fields"].items()}
    except LookupError:
        return None


def _type_of(schema: dict[str, Any]) -> Any:
    """Return the type that a plain schema has; `LookupError` if it is none. A constraint makes it another one."""
    kind, keys = schema["type"], schema.keys()
    if kind == "default" and _DEFAULT_KEYS.issuperset(keys):
        return _type_of(schema["schema"])
    if kind == "nullable" and keys == {"type", "schema"}:
        return _type_of(schema["schema"]) | None
    if kind == "list" and keys == {"type", "items_schema"}:
        return list[_type_of(schema["items_schema"])]  # type: ignore[misc]
    if kind == "dict" and keys == {"type", "keys_schema", "values_schema"} and schema["keys_schema"] == {"type": "str"}:
        return dict[str, _type_of(schema["values_schema"])]  # type: ignore[misc]
    if keys != {"type"}:
        raise LookupError(kind)
    return _SCALARS[kind]
