"""States as payloads: what `to_dict` of a store writes into a context dict, checkpoints, and JSON Patches between them.

The type names that a payload carries are for readers; only the serializer decides which classes can come back, and it
never imports one by name.
"""

from __future__ import annotations

import warnings
from copy import copy
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from loom.steps.registry import wire_name
from loom.steps.state_store.state import DictState

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


class StateCheckpoint:
    """A committed state at one point in time. It costs a reference: writes make a new state and leave this one.

    A value that was mutated in place, without a write to the store, changes in every checkpoint that shares it.
    """

    __slots__ = ("_serializer", "_state")

    def __init__(self, state: BaseModel, serializer: JsonSerializer) -> None:
        self._state = state
        self._serializer = serializer

    @property
    def state(self) -> BaseModel:
        """The state itself, not to be mutated; the same object in two checkpoints means no write between them."""
        return self._state

    def to_dict(self) -> dict[str, Any]:
        """Encode the state for the `state` part of a context dict, as a tree that patches can address."""
        return encode_tree(self._state, self._serializer)

    def diff(self, since: StateCheckpoint) -> list[Operation]:
        """Give the JSON Patch that turns `since.to_dict()` into `self.to_dict()`."""
        old, new = since._state, self._state
        if old is new:
            return []
        if type(old) is DictState and type(new) is DictState:
            return self._diff_items(old, new)
        before, after = since.to_dict(), self.to_dict()
        if type(old) is type(new):
            return diff_members(before["state_data"], after["state_data"], "/state_data")
        return diff_trees(before, after)

    def _diff_items(self, old: DictState, new: DictState) -> list[Operation]:
        """Compare item by item, so that what both share costs nothing."""
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for key in {**old._data, **new._data}:
            if key in old and key in new and old[key] is new[key]:
                continue
            for state, tree in ((old, before), (new, after)):
                if key in state:
                    tree.update(encode_tree_item(key, state[key], self._serializer))
        return diff_members(before, after, "/state_data/_data")


Operation = dict[str, Any]

# Below this many operations a container keeps them without weighing them against one replacement of it.
_FEW = 8


def diff_trees(old: Any, new: Any, path: str = "") -> list[Operation]:
    """List the operations (`add`, `remove`, `replace`) that turn `old` into `new`.

    A container whose operations are longer than itself is replaced whole.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        operations = diff_members(old, new, path)
    elif isinstance(old, list) and isinstance(new, list):
        operations = _diff_lists(old, new, path)
    else:
        return [] if same_tree(old, new) else [_operation("replace", path, new)]
    if len(operations) > _FEW:
        whole = _operation("replace", path, new)
        if _size(operations) > _size(whole):
            return [whole]
    return operations


def diff_members(old: dict[str, Any], new: dict[str, Any], path: str) -> list[Operation]:
    """List the operations between two dicts, which themselves stay in place whatever that costs."""
    operations: list[Operation] = []
    for key, value in new.items():
        below = member_path(path, key)
        if key in old:
            operations += diff_trees(old[key], value, below)
        else:
            operations.append(_operation("add", below, value))
    operations += [_operation("remove", member_path(path, key)) for key in old if key not in new]
    return operations


def member_path(path: str, key: str | int) -> str:
    """Extend a JSON Pointer by one segment."""
    return f"{path}/{str(key).replace('~', '~0').replace('/', '~1')}"


def same_tree(old: Any, new: Any) -> bool:
    """Return whether two trees are written alike: 1, 1.0 and True are three different things, and NaN is like NaN."""
    if type(old) is not type(new):
        return False
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(same_tree(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(same_tree, old, new))
    return repr(old) == repr(new) if isinstance(old, float) else bool(old == new)


def apply_state_patch(state: dict[str, Any], patch: list[Operation]) -> dict[str, Any]:
    """Apply a patch to a payload; the payload stays as it is and shares what the patch does not touch."""
    root: Any = copy(state)
    ours = {id(root): root}  # containers that are already copies; holding them keeps their ids from being reused
    for operation in patch:
        kind, path = operation["op"], operation["path"]
        if kind not in ("add", "remove", "replace"):
            raise ValueError(f"Unsupported state patch op {kind!r}")
        segments = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
        try:
            if segments:
                _change(_container(root, segments[:-1], ours), kind, segments[-1], operation.get("value"))
            else:
                root = copy(operation["value"])
                ours[id(root)] = root
        except (LookupError, TypeError, ValueError) as error:
            raise ValueError(f"State patch op {kind!r} does not fit the state at {path!r}: {error!r}") from error
    patched: dict[str, Any] = root
    return patched


def _container(root: Any, segments: list[str], ours: dict[int, Any]) -> Any:
    parent = root
    for segment in segments:
        key = int(segment) if isinstance(parent, list) else segment
        child = parent[key]
        if id(child) not in ours:
            child = parent[key] = copy(child)
            ours[id(child)] = child
        parent = child
    return parent


def _change(parent: Any, kind: str, segment: str, value: Any) -> None:
    if not isinstance(parent, (dict, list)):
        raise TypeError(f"{type(parent).__name__} has no members")
    if isinstance(parent, list):
        index = len(parent) if segment == "-" else int(segment)
        if not 0 <= index < len(parent) + (kind == "add"):
            raise IndexError(index)
        if kind == "add":
            parent.insert(index, value)
        elif kind == "remove":
            del parent[index]
        else:
            parent[index] = value
    elif kind == "remove":
        del parent[segment]
    else:
        parent[segment] = value


def _diff_lists(old: list[Any], new: list[Any], path: str) -> list[Operation]:
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and same_tree(old[head], new[head]):
        head += 1
    tail = 0
    while tail < shorter - head and same_tree(old[-1 - tail], new[-1 - tail]):
        tail += 1
    if len(old) == len(new):
        middle = range(head, len(new) - tail)
        return [operation for i in middle for operation in diff_trees(old[i], new[i], member_path(path, i))]
    gone = len(old) - head - tail
    operations = [_operation("remove", member_path(path, head))] * gone
    return operations + [_operation("add", member_path(path, i), new[i]) for i in range(head, len(new) - tail)]


def _operation(kind: str, path: str, *value: Any) -> Operation:
    return {"op": kind, "path": path, "value": value[0]} if value else {"op": kind, "path": path}


def _size(tree: Any) -> int:
    import json

    return len(json.dumps(tree))
