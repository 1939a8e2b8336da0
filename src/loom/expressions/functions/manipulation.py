"""Manipulation functions: objects with one property more, less or changed. Pure. `xpath` is in `xml`."""

from __future__ import annotations

from typing import Any

from loom.expressions.access import find_key
from loom.expressions.arguments import check_count, want_object, want_string
from loom.expressions.errors import FunctionError
from loom.expressions.limits import BOX
from loom.expressions.registry import function


@function("addProperty", 3)
def add_property(data: Any, name: Any, value: Any) -> dict[str, Any]:
    """The object with a property that it did not have."""
    known, key = want_object("object", data), want_string("property", name)
    found = find_key(known, key)
    if found is not None:
        raise FunctionError(f"expects the property to not exist in the object, but it has '{found}'")
    check_count(len(known) + 1, BOX)
    return {**known, key: value}


@function("setProperty", 3)
def set_property(data: Any, name: Any, value: Any) -> dict[str, Any]:
    """The object with a new value for a property, which then comes last."""
    known, key = want_object("object", data), want_string("property", name)
    found = find_key(known, key)
    kept = {other: item for other, item in known.items() if other != found}
    kept[key if found is None else found] = value
    check_count(len(kept), BOX)
    return kept


@function("removeProperty", 2)
def remove_property(data: Any, name: Any) -> dict[str, Any]:
    """The object without a property; the same object if it has none of that name."""
    known = want_object("object", data)
    found = find_key(known, want_string("property", name))
    if found is not None:
        check_count(len(known) - 1, BOX)
    return known if found is None else {other: item for other, item in known.items() if other != found}


@function("mergeObjects", 2)
def merge_objects(data: Any, other: Any) -> dict[str, Any]:
    """The properties of both; where both have one, the value of the second."""
    merged = want_object("object1", data) | want_object("object2", other)
    check_count(len(merged), BOX)
    return merged


@function("coalesce", 1, None)
def coalesce(*candidates: Any) -> Any:
    """The first value that is not null. The compiler evaluates no more than it needs."""
    return next((value for value in candidates if value is not None), None)
