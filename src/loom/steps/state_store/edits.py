"""Store edits as data: what a committed change did to the top level of a state, and how to do it again."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec
from pydantic import BaseModel

from loom.steps.events import DictLikeModel
from loom.steps.state_store.state import ATOMS, DictState, shallow_copy

# Immutable types whose equality is looser than their text: 0.0 == -0.0, and so are two instants of two time zones.
_BY_REPR = frozenset({float, complex, datetime, date, time, timedelta, Decimal})
_FROZEN = frozenset({tuple, frozenset})


class StoreEdit(msgspec.Struct, frozen=True):
    """One committed change of a store, by the top-level keys (or fields) of its state; values are live objects.

    `transient` names the changed keys that are declared `Field(exclude=True)`: they hold live handles and
    belong to no stored form. `state_type` is set when the change gave the state another class. No key is both changed
    and removed.
    """

    base_version: int
    changed: dict[str, Any]
    removed: tuple[str, ...] = ()
    transient: tuple[str, ...] = ()
    state_type: type[BaseModel] | None = None


def describe_write(old: BaseModel, new: BaseModel, version: int, key: str) -> StoreEdit:
    """Describe a write below one key. What the other keys share with the old state has not changed."""
    if type(new) is DictState:
        return StoreEdit(version, {key: new._data[key]})
    before, after = top_level(old), top_level(new)
    changed = {
        name: value
        for name, value in after.items()
        if name == key or name not in before or (before[name] is not value and not _surely_same(before[name], value))
    }
    return StoreEdit(version, changed, (), _transient(new, changed))


def describe_rewrite(old: BaseModel | None, new: BaseModel, version: int, old_type: type[BaseModel]) -> StoreEdit:
    """Describe a change of the whole state by the keys that differ; without an old state by all of them.

    A mutable value that both states share counts as changed: it may have been edited in place, as with
    `s = await store.get_state(); s.names.append(n); await store.set_state(s)`.
    """
    before = {} if old is None else top_level(old)
    after = top_level(new)
    excluded = _excluded(type(new))
    changed = {
        name: value
        for name, value in after.items()
        if name not in before
        or (before[name] is not value if name in excluded else not _surely_same(before[name], value))
    }
    removed = tuple(name for name in before if name not in after)
    state_type = None if type(new) is old_type else type(new)
    return StoreEdit(version, changed, removed, _transient(new, changed), state_type)


def apply_to_state(state: BaseModel | None, edit: StoreEdit, old_type: type[BaseModel]) -> BaseModel:
    """Return the state after the edit; the given one is left as it is. `None` is a state that was never used."""
    cls = edit.state_type or old_type
    if state is None or cls is not type(state):
        values = {} if state is None else top_level(state)
        for name in edit.removed:
            values.pop(name, None)
        return _construct(cls, {**values, **edit.changed})
    edited = shallow_copy(state)
    for name in edit.removed:
        _drop(edited, name)
    for name, value in edit.changed.items():
        _put(edited, name, value)
    return edited


def top_level(state: BaseModel) -> dict[str, Any]:
    """List the values of a state by key: declared fields, extra fields and the items of a dict-like model."""
    items: dict[str, Any] = dict(state._data) if isinstance(state, DictLikeModel) else {}
    items.update(state.__pydantic_extra__ or {})
    # Only fields: cached properties live in __dict__ too. A field hides an item of the same name.
    items.update({name: state.__dict__[name] for name in type(state).model_fields if name in state.__dict__})
    return items


def _construct(cls: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    """Make a state from values that were valid once; validating again could change or refuse them."""
    fields = cls.model_fields
    made = cls.model_construct(**{name: value for name, value in values.items() if name in fields})
    for name, value in values.items():
        if name not in fields:
            _put(made, name, value)
    return made


def _put(state: BaseModel, name: str, value: Any) -> None:
    if name in type(state).model_fields:
        state.__dict__[name] = value
        state.__pydantic_fields_set__.add(name)
    elif isinstance(state, DictLikeModel):
        state._data[name] = value
    elif state.__pydantic_extra__ is not None:
        state.__pydantic_extra__[name] = value
    else:
        raise ValueError(f"The state {type(state).__name__} has no field '{name}'; the stored edit gives it one")


def _drop(state: BaseModel, name: str) -> None:
    if isinstance(state, DictLikeModel):
        state._data.pop(name, None)
    elif state.__pydantic_extra__ is not None:
        state.__pydantic_extra__.pop(name, None)


def _excluded(cls: type[BaseModel]) -> frozenset[str]:
    return frozenset(name for name, field in cls.model_fields.items() if field.exclude is True)


def _transient(state: BaseModel, changed: dict[str, Any]) -> tuple[str, ...]:
    excluded = _excluded(type(state))
    return tuple(name for name in changed if name in excluded)


def _surely_same(old: Any, new: Any) -> bool:
    """Return whether two values are the same data, strictly: not even 1 and True, 0.0 and -0.0 or two key orders are.

    A mutable object is never surely the same as itself: who shares it may have changed it.
    """
    try:
        return _same(old, new, set())
    except RecursionError:
        return False


def _same(old: Any, new: Any, seen: set[tuple[int, int]]) -> bool:
    kind = type(old)
    if kind is not type(new):
        return False
    if kind in ATOMS:
        return repr(old) == repr(new) if kind in _BY_REPR else bool(old == new)
    if kind in _BY_REPR or isinstance(old, Enum):
        return repr(old) == repr(new)
    if (id(old), id(new)) in seen:
        return True
    seen.add((id(old), id(new)))
    ours, theirs = _parts(old), _parts(new)
    if ours is None or theirs is None or (old is new and kind not in _FROZEN):
        return False
    return len(ours) == len(theirs) and all(_same(a, b, seen) for a, b in zip(ours, theirs, strict=True))


def _parts(value: Any) -> list[Any] | None:
    """Return what a value consists of, in order. None for a foreign object, whose equality is not ours to trust."""
    kind = type(value)
    if kind is list or kind is tuple:
        return list(value)
    if kind is dict:
        return [*value, *value.values()]
    if kind is set or kind is frozenset:
        return sorted(repr(item) for item in value) if all(type(item) in ATOMS for item in value) else None
    if isinstance(value, BaseModel):
        items = value._data if isinstance(value, DictLikeModel) else None
        return [value.__dict__, value.__pydantic_extra__, value.__pydantic_private__, items]
    return None
