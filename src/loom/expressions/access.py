"""Reading a part of a value: `.x`, `['x']`, `[0]`. Pure.

An object is asked for the exact key, then for the first key that differs only in case, then, as Power Automate writes
it, for the path `a/b`.
"""

from __future__ import annotations

from typing import Any

from loom.expressions.casing import upper
from loom.expressions.errors import FunctionError
from loom.expressions.limits import ELEMENT, FEW
from loom.expressions.metering import spend
from loom.expressions.values import kind_of


def read(value: Any, key: Any, optional: bool) -> Any:
    """The part of a value under a key or an index. What is not there is null if that is `optional`, else an error."""
    if isinstance(value, dict):
        return _read_object(value, key, optional)
    if isinstance(value, list):
        return _read_array(value, key, optional)
    if value is None:
        if optional:
            return None
        raise FunctionError(f"cannot read {_shown(key)} of null; '?' before it would give null")
    raise FunctionError(f"cannot read {_shown(key)} of a value of kind {kind_of(value)}")


def find_key(data: dict[str, Any], name: str) -> str | None:
    """The key of that name: the exact one, else the first that differs only in case, else none."""
    if name in data:
        return name
    if len(data) + len(name) > FEW:
        spend(len(data) * ELEMENT + len(name))
    wanted = upper(name)
    return next((key for key in data if upper(key) == wanted), None)


def _read_object(value: dict[str, Any], key: Any, optional: bool) -> Any:
    if not isinstance(key, str):
        raise FunctionError(f"an object is read by the name of a property, not by a value of kind {kind_of(key)}")
    found = find_key(value, key)
    if found is not None:
        return value[found]
    part, slash, rest = key.partition("/")
    found = find_key(value, part) if slash else None
    if found is not None:
        return _read_path(value[found], rest.split("/"), optional)
    if optional:
        return None
    names = ", ".join(f"'{name}'" for name in list(value)[:_NAMES_SHOWN])
    more = ", …" if len(value) > _NAMES_SHOWN else ""
    has = f"it has {names}{more}" if value else "it is empty"
    raise FunctionError(f"the object has no property '{key}'; {has}")


_NAMES_SHOWN = 8


def _read_path(value: Any, parts: list[str], optional: bool) -> Any:
    for part in parts:
        if isinstance(value, dict):
            key = find_key(value, part)
            if key is not None:
                value = value[key]
                continue
        value = read(value, part, optional)
    return value


def _read_array(value: list[Any], key: Any, optional: bool) -> Any:
    if not isinstance(key, int) or isinstance(key, bool):
        raise FunctionError(f"an array is read by an integer index, not by {_shown(key)}")
    if 0 <= key < len(value):
        return value[key]
    if optional:
        return None
    raise FunctionError(f"the index {key} is outside the array, which has {len(value)} elements")


def _shown(key: Any) -> str:
    return f"'{key[:80]}'" if isinstance(key, str) else f"[{key}]" if isinstance(key, int) else f"a {kind_of(key)}"
