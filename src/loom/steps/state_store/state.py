"""The state of a run as a model: its class, dotted paths into it, and copies of it.

`user.profile.name` goes through dicts, lists and attributes. A write along a path copies the containers on the way; a
block that edits gets a deep copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypeVar

from loom.steps.events import DictLikeModel
from loom.steps.registry import framework_name

if TYPE_CHECKING:
    from collections.abc import Callable


class DictState(DictLikeModel):
    """A state with whatever keys its steps give it, as items or as attributes."""

    model_config = ConfigDict(defer_build=True)

    if TYPE_CHECKING:  # type checkers would derive a signature without keywords from the fields

        def __init__(self, **params: Any) -> None: ...


framework_name(DictState, "workflows.context.state_store.DictState")

MODEL_T = TypeVar("MODEL_T", bound=BaseModel, default=DictState)
"""The class of a store's state."""


def infer_state_type(workflow: Any) -> type[BaseModel]:
    """Return the most derived state class that the steps name, or `DictState` if they name none.

    Takes a workflow, or a mapping of step names to step functions or to their configs. All classes must lie on one
    chain of inheritance, else this is a `ValueError`.
    """
    steps = workflow if isinstance(workflow, Mapping) else workflow._get_steps()
    found: dict[type[BaseModel], None] = {}
    for step in steps.values():
        config: Any = getattr(step, "_step_config", step)
        state_type = config.context_state_type
        if isinstance(state_type, type) and issubclass(state_type, BaseModel) and state_type is not DictState:
            found[state_type] = None
    if not found:
        return DictState
    for candidate in found:
        if all(issubclass(candidate, other) for other in found):
            return candidate
    raise ValueError(
        "Multiple state types are not in a compatible inheritance hierarchy. "
        "All state types must share a common inheritance chain. Found: " + ", ".join(cls.__name__ for cls in found)
    )


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
    """Return whether a dict-like model has this name itself. Private names such as `_data` may be names of items."""
    if name in cls.model_fields or name in cls.model_computed_fields:
        return True
    return not name.startswith("_") and isinstance(getattr(cls, name, None), property)


def _as_index(segment: str) -> int | None:
    try:
        return int(segment)
    except ValueError:
        return None


_T = TypeVar("_T")

_Memo = dict[int, Any]

ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Types whose values cannot change, so that they are never copied."""

_PLAIN_MODEL_COPIES = (BaseModel.__deepcopy__, DictLikeModel.__deepcopy__)


def shallow_copy(value: _T) -> _T:
    """Copy one container: a model (with the items of a dict-like one), a dict or a list; its values are shared."""
    return value.model_copy() if isinstance(value, BaseModel) else copy(value)


def copy_state_for_edit(state: _T) -> _T:
    """Copy a state so deeply that an edit of the copy is invisible in the original.

    What is no data stays shared: values of `Field(exclude=True)`, which is how live handles on a model are declared,
    and values that refuse to be copied. Cycles and objects that are referred to twice keep their shape.
    """
    return cast("_T", _copy(state, {}))


def _copy(value: Any, memo: _Memo) -> Any:
    kind = type(value)
    if kind in ATOMS:
        return value
    if id(value) in memo:
        return memo[id(value)]
    mark = len(memo)
    try:
        if isinstance(value, BaseModel) and kind.__deepcopy__ in _PLAIN_MODEL_COPIES:
            return _copy_model(value, memo)
        container = _CONTAINERS.get(kind)
        return deepcopy(value, memo) if container is None else container(value, memo)
    except Exception:  # noqa: BLE001 - copiers are foreign code; whatever they raise means "share me"
        while len(memo) > mark:
            memo.popitem()  # half-made copies must not be found by a second reference
        memo[id(value)] = value
        return value


def _copy_model(model: BaseModel, memo: _Memo) -> BaseModel:
    copied = model.model_copy()
    memo[id(model)] = copied
    fields = type(model).model_fields
    values = copied.__dict__
    for name, value in model.__dict__.items():
        field = fields.get(name)
        if field is None or field.exclude is not True:
            values[name] = _copy(value, memo)
    items = copied._data if isinstance(copied, DictLikeModel) else None
    for more in (copied.__pydantic_extra__, copied.__pydantic_private__, items):
        if more:
            more.update({name: _copy(value, memo) for name, value in more.items()})
    return copied


def _copy_list(value: list[Any], memo: _Memo) -> list[Any]:
    copied: list[Any] = []
    memo[id(value)] = copied
    copied.extend([_copy(item, memo) for item in value])
    return copied


def _copy_dict(value: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    copied: dict[Any, Any] = {}
    memo[id(value)] = copied
    for key, item in value.items():
        copied[_copy(key, memo)] = _copy(item, memo)
    return copied


def _copy_set(value: set[Any], memo: _Memo) -> set[Any]:
    copied: set[Any] = set()
    memo[id(value)] = copied
    copied.update([_copy(item, memo) for item in value])
    return copied


def _copy_deque(value: deque[Any], memo: _Memo) -> deque[Any]:
    copied: deque[Any] = deque(maxlen=value.maxlen)
    memo[id(value)] = copied
    copied.extend([_copy(item, memo) for item in value])
    return copied


def _copy_frozen(value: Any, memo: _Memo) -> Any:
    # It can be filled only at once; a cycle through its items may have copied it before.
    copied = type(value)([_copy(item, memo) for item in value])
    return memo.setdefault(id(value), copied)


# Walked here and not by deepcopy, so that models inside them follow the rule of excluded fields.
_CONTAINERS: dict[type, Callable[[Any, _Memo], Any]] = {
    list: _copy_list,
    dict: _copy_dict,
    set: _copy_set,
    deque: _copy_deque,
    tuple: _copy_frozen,
    frozenset: _copy_frozen,
}
