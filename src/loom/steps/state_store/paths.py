"""Dotted paths into a state: `user.profile.name` goes through dicts, lists and attributes.

May import pydantic, `loom.steps.dict_like` and the copying of states beside it.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from loom.steps.dict_like import DictLikeModel
from loom.steps.state_store.copying import copy_state_for_edit, shallow_copy

MAX_DEPTH = 1000
"""The largest number of segments that a path may have."""

_ABSENT = (LookupError, AttributeError, TypeError)

_S = TypeVar("_S", bound=BaseModel)


def get_by_path(state: Any, path: str, default: Any = ...) -> Any:
    """Return what `path` leads to, or `default`; without a default a path that leads nowhere is a `ValueError`.

    An empty path is the state itself.
    """
    segments = path.split(".") if path else []
    _check_depth(segments)
    value = state
    try:
        for segment in segments:
            value = _read(value, segment)
    except (*_ABSENT, ValueError) as error:
        if default is not ...:
            return default
        raise ValueError(f"Path '{path}' not found in state") from error
    return value


def set_by_path(state: Any, path: str, value: Any) -> None:
    """Write `value` at `path` into `state` itself, making dicts on the way where nothing is."""
    *parents, last = split_write_path(path)
    target = state
    for segment in parents:
        try:
            target = _read(target, segment)
        except _ABSENT:
            made: dict[str, Any] = {}
            _write(target, segment, made)
            target = made
    _write(target, last, value)


def with_path_set(state: _S, segments: list[str], value: Any) -> _S:
    """Return a state with `value` at the path; only the containers along it are copied, the rest is shared.

    Where a container on the way cannot be copied alone (a tuple, an object of the user's), the whole state is
    copied instead: a write must never reach through to what readers hold.
    """
    *parents, last = segments
    root = shallow_copy(state)
    target: Any = root
    for segment in parents:
        try:
            child = _read(target, segment)
        except _ABSENT:
            child = {}
        else:
            if not isinstance(child, (BaseModel, dict, list)):
                whole = copy_state_for_edit(state)
                set_by_path(whole, ".".join(segments), value)
                return whole
            child = shallow_copy(child)
        _write(target, segment, child)
        target = child
    _write(target, last, value)
    return root


def split_write_path(path: str) -> list[str]:
    """Split a path that is to be written; it needs at least one segment."""
    if not path:
        raise ValueError("Path cannot be empty")
    segments = path.split(".")
    _check_depth(segments)
    return segments


def _check_depth(segments: list[str]) -> None:
    if len(segments) > MAX_DEPTH:
        raise ValueError(f"Path length exceeds {MAX_DEPTH} segments")


def _read(target: Any, segment: str) -> Any:
    """Follow one segment; raises one of `_ABSENT` (or `ValueError` from user code) where it leads nowhere."""
    if isinstance(target, dict):
        return target[segment]
    if isinstance(target, DictLikeModel):
        # Its items come first and its methods never: `items`, `get` and their like are good names for a key.
        if segment in target:
            return target[segment]
        if _is_declared(type(target), segment):
            return getattr(target, segment)
        raise KeyError(segment)
    index = _as_index(segment)
    if index is not None:
        try:
            return target[index]
        except (LookupError, TypeError):
            pass  # not a sequence, or too short: an attribute may still bear this name
    return getattr(target, segment)


def _write(target: Any, segment: str, value: Any) -> None:
    """Assign one segment: a dict's key, a list's index or an attribute."""
    if isinstance(target, dict) or (isinstance(target, DictLikeModel) and not _is_declared(type(target), segment)):
        target[segment] = value
        return
    index = _as_index(segment)
    if index is not None:
        try:
            target[index] = value
        except (LookupError, TypeError):
            pass  # as in `_read`
        else:
            return
    setattr(target, segment, value)


def _is_declared(cls: type[BaseModel], name: str) -> bool:
    """Whether a dict-like model has this name itself. `_data` and other private names are good names for an item."""
    if name in cls.model_fields or name in cls.model_computed_fields:
        return True
    return not name.startswith("_") and isinstance(getattr(cls, name, None), property)


def _as_index(segment: str) -> int | None:
    try:
        return int(segment)
    except ValueError:
        return None
