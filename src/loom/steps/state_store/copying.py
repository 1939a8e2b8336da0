"""Copies of states: shallow ones for a write along a path, deep ones for a block that edits.

May import pydantic and `loom.steps.dict_like`.
"""

from __future__ import annotations

from collections import deque
from copy import copy, deepcopy
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel

from loom.steps.dict_like import DictLikeModel

if TYPE_CHECKING:
    from collections.abc import Callable

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
    # It can be filled only at once; a cycle through its items may have copied it meanwhile.
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
