"""States as payloads: what `to_dict` of a store writes into a context dict, and the way back.

May import pydantic, `loom.steps.registry` and `loom.steps.serializers`. The type names that a payload carries are for
readers; only the serializer decides which classes can come back, and it never imports one by name.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from loom.steps.registry import wire_name
from loom.steps.state_store.dict_state import DictState

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.steps.serializers import BaseSerializer, JsonSerializer

TREE_KEY = "_tree"
"""Marks state data that is a JSON tree, whose inner values patches can address."""

_STORE_TYPE = "in_memory"

# Agents keep their chat memory here, often a live object; they set it anew after a load.
_MAY_BE_LEFT_OUT = frozenset({"memory"})


class UnserializableKeyWarning(Warning):
    """A key of the state that is known to hold live objects was left out of a payload."""


warnings.simplefilter("once", UnserializableKeyWarning)


def encode_payload(state: BaseModel, serializer: BaseSerializer) -> dict[str, Any]:
    """Encode a state; every value of a `DictState` by itself, any other state as one string."""
    if type(state) is DictState:
        return _envelope(state, {"_data": _encode_items(state, serializer.serialize)})
    return _envelope(state, serializer.serialize(state))


def encode_tree(state: BaseModel, serializer: JsonSerializer) -> dict[str, Any]:
    """Encode a state as one JSON tree."""
    if type(state) is DictState:
        items = _encode_items(state, serializer.serialize_value)
        return _envelope(state, {TREE_KEY: "dict", "_data": items})
    return _envelope(state, {TREE_KEY: "model", **serializer.serialize_value(state)})


def encode_tree_item(key: str, value: Any, serializer: JsonSerializer) -> dict[str, Any]:
    """Encode one item of a `DictState` for a tree: a dict with that key, or an empty one if it has to be left out."""
    return _encode_items(DictState(_data={key: value}), serializer.serialize_value)


def decode_payload(payload: dict[str, Any], serializer: BaseSerializer) -> BaseModel:
    """Read what `encode_payload` or `encode_tree` wrote, and what older writers left."""
    store_type = payload.get("store_type", _STORE_TYPE)
    if store_type not in (_STORE_TYPE, None):
        raise ValueError(
            f"Cannot parse store_type '{store_type}' as InMemorySerializedState. "
            "Use the appropriate store's from_dict() method."
        )
    return _decode(payload.get("state_data"), serializer)


def _envelope(state: BaseModel, data: Any) -> dict[str, Any]:
    module, _, name = wire_name(type(state)).rpartition(".")
    return {"store_type": _STORE_TYPE, "state_type": name, "state_module": module, "state_data": data}


def _encode_items(state: DictState, encode: Callable[[Any], Any]) -> dict[str, Any]:
    encoded: dict[str, Any] = {}
    for key, value in state._data.items():
        try:
            encoded[key] = encode(value)
        except Exception as error:
            if key not in _MAY_BE_LEFT_OUT:
                raise ValueError(f"Failed to serialize state value for key {key}: {error}") from error
            warnings.warn(
                f"Skipping serialization of known unserializable key: {key} -- "
                "This is expected but will require this item to be set manually after deserialization.",
                UnserializableKeyWarning,
                stacklevel=4,
            )
    return encoded


def _decode(data: Any, serializer: BaseSerializer) -> BaseModel:
    if data is None:
        return DictState()
    if isinstance(data, BaseModel):
        return data  # handed over within the process
    if isinstance(data, str):
        return _decode_text(data, serializer)
    if not isinstance(data, dict):
        raise ValueError(f"Unrecognized state payload of type {type(data).__name__}; refusing to decode")
    if TREE_KEY in data:
        return _decode_tree(data, serializer)
    if "_data" in data:
        return _decode_items(data["_data"], serializer.deserialize)
    return _decode_model(
        serializer.deserialize(_dumps(data)),
        "dict without a '_data' wrapper that the serializer could not reconstruct into a model",
    )


def _decode_text(text: str, serializer: BaseSerializer) -> BaseModel:
    import json

    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None  # the format of another serializer
    if isinstance(parsed, dict) and "_data" in parsed:
        return _decode_items(parsed["_data"], serializer.deserialize)
    value = serializer.deserialize(text)
    return _decode_model(
        value,
        f"string decoding to {type(value).__name__}; expected a typed model payload or a {{'_data': ...}} "
        "DictState wrapper",
    )


def _decode_tree(data: dict[str, Any], serializer: BaseSerializer) -> BaseModel:
    decode = getattr(serializer, "deserialize_value", None) or (lambda tree: serializer.deserialize(_dumps(tree)))
    if data[TREE_KEY] == "dict":
        return _decode_items(data["_data"], decode)
    value = decode({key: item for key, item in data.items() if key != TREE_KEY})
    return _decode_model(value, f"tree decoding to {type(value).__name__}, not to a model")


def _decode_items(items: dict[str, Any], decode: Callable[[Any], Any]) -> DictState:
    decoded: dict[str, Any] = {}
    for key, item in items.items():
        try:
            decoded[key] = decode(item)
        except Exception as error:
            raise ValueError(f"Failed to deserialize state value for key {key}: {error}") from error
    return DictState(_data=decoded)


def _decode_model(value: Any, otherwise: str) -> BaseModel:
    if not isinstance(value, BaseModel):
        raise ValueError(f"Unrecognized state payload: {otherwise}")
    return value


def _dumps(tree: Any) -> str:
    import json

    return json.dumps(tree)
