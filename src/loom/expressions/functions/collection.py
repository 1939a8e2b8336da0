"""Collection and manipulation functions: strings, arrays and objects as a whole. Pure.

Lengths and positions in strings count UTF-16 units. `union` and `intersection` compare elements by keys of sets (see
`identities`), so that large arrays cost no more than their length.
"""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

from loom.expressions.errors import FunctionError
from loom.expressions.functions.registry import (
    check_count,
    check_size,
    function,
    refuse,
    want_array,
    want_integer,
    want_object,
    want_string,
)
from loom.expressions.meter import BOX, ELEMENT, FEW, MAX_TEXT, NODE, SLOT, spend, spend_text
from loom.expressions.strings import count_units, cut_units, spend_search
from loom.expressions.value_text import text_of
from loom.expressions.values import compare, equals, find_key, identities, read


@function("length", 1)
def length(collection: Any) -> int:
    """Count the units of a string or the elements of an array."""
    if isinstance(collection, str):
        if not collection.isascii():
            spend_text(collection)
        return count_units(collection)
    return len(_sequence(collection))


@function("empty", 1)
def empty(collection: Any) -> bool:
    """Say whether there is nothing in a collection; null counts as empty."""
    if collection is None or isinstance(collection, str | list | dict):
        return not collection
    raise refuse("collection", "an object, an array or a string", collection)


@function("contains", 2)
def contains(collection: Any, value: Any) -> bool:
    """Say whether a string has a part, an array an element, or an object a key."""
    if isinstance(collection, str):
        part = want_string("value", value)
        spend_search(collection, part)
        return part in collection
    if isinstance(collection, list):
        if len(collection) > FEW:
            spend(len(collection) * ELEMENT)
        return any(equals(item, value) for item in collection)
    if isinstance(collection, dict):
        return want_string("value", value) in collection
    raise refuse("collection", "an object, an array or a string", collection)


@function("first", 1)
def first(collection: Any) -> Any:
    """The first character or element; of an empty string the empty string, of an empty array null."""
    if isinstance(collection, str):
        spend_text(collection)
        return cut_units(collection, 0, 1)
    items = _sequence(collection)
    return items[0] if items else None


@function("last", 1)
def last(collection: Any) -> Any:
    """The last character or element; of an empty string the empty string, of an empty array null."""
    if isinstance(collection, str):
        spend_text(collection)
        return cut_units(collection, max(count_units(collection) - 1, 0))
    items = _sequence(collection)
    return items[-1] if items else None


@function("take", 2)
def take(collection: Any, count: Any) -> Any:
    """The first `count` characters or elements, or all if there are fewer."""
    end = _count(count)
    if isinstance(collection, str):
        spend_text(collection)
        return cut_units(collection, 0, end)
    return _counted(_sequence(collection))[:end]


@function("skip", 2)
def skip(array: Any, count: Any) -> list[Any]:
    """The array without its first `count` elements."""
    return _counted(want_array("collection", array))[_count(count) :]


@function("chunk", 2)
def chunk(collection: Any, size: Any) -> list[Any]:
    """A string or an array in parts of one length; the last may be shorter."""
    step = want_integer("length", size)
    if step < 1:
        raise FunctionError(f"expects its argument 'length' to be at least 1, not {step}")
    if isinstance(collection, str):
        spend_text(collection)
        total = count_units(collection)
        check_count(-(-total // step), BOX)
        if total == len(collection):
            return [collection[at : at + step] for at in range(0, total, step)]
        units = collection.encode("utf-16-le", "surrogatepass")
        return [units[at : at + 2 * step].decode("utf-16-le", "replace") for at in range(0, 2 * total, 2 * step)]
    items = _counted(_sequence(collection))
    if len(items) > FEW:
        spend(-(-len(items) // step) * 2 * ELEMENT, -(-len(items) // step) * BOX)
    return [items[at : at + step] for at in range(0, len(items), step)]


@function("join", 2)
def join(array: Any, separator: Any) -> str:
    """The elements as text, with the separator between them."""
    between = want_string("delimiter", separator)
    texts: list[str] = []
    size = 0
    for item in want_array("collection", array):
        text = text_of(item)
        size += len(text) + len(between)
        if size > MAX_TEXT:
            check_size(size)
        texts.append(text)
    if size > FEW:
        spend(size + len(texts) * ELEMENT, size + len(texts) * BOX)
    return between.join(texts)


@function("reverse", 1)
def reverse(array: Any) -> list[Any]:
    """The array from its end to its front."""
    return _counted(want_array("collection", array))[::-1]


@function("sort", 1, 2)
def sort(array: Any, key: Any = None) -> list[Any]:
    """The array in ascending order, or its objects in the order of a property; equal elements keep their order."""
    items = want_array("collection", array)
    if key is None:
        keys = items
    else:
        name = want_string("sortBy", key)
        keys = [read(item, name, False) for item in items]
    return [items[index] for index in sorted(range(len(items)), key=_order(keys).__getitem__)]


def _order(keys: list[Any]) -> list[Any]:
    """Make keys that Python sorts as `compare` would: the keys themselves if they are all of one kind."""
    kinds = set(map(type, keys))
    is_plain = kinds <= {int} or (kinds == {str} and all(key.isascii() for key in keys))
    rounds = len(keys).bit_length()
    texts = sum(len(key) for key in keys if type(key) is str) // ELEMENT
    spend(rounds * (len(keys) * (ELEMENT // 4 if is_plain else NODE) + texts), len(keys) * 2 * SLOT)
    if is_plain:
        return keys
    return list(map(cmp_to_key(compare), keys))


@function("union", 2, None)
def union(*collections: Any) -> Any:
    """All elements or properties: of equal elements the first stays, of equal keys the later value."""
    if _are_objects(collections):
        merged: dict[str, Any] = {}
        for data in collections:
            merged.update(data)
            check_count(len(merged), BOX)
        return merged
    found: dict[Any, Any] = {}
    for items in collections:
        for item, identity in zip(items, identities(items), strict=True):
            found.setdefault(identity, item)
        check_count(len(found))
    return list(found.values())


@function("intersection", 2, None)
def intersection(*collections: Any) -> Any:
    """The elements that all arrays have, or the properties that all objects have with the same value."""
    head, *others = collections
    if _are_objects(collections):
        spend(len(head) * NODE, len(head) * BOX)
        return {
            key: value
            for key, value in head.items()
            if all(key in other and equals(other[key], value) for other in others)
        }
    known = [set(identities(other)) for other in others]
    found: dict[Any, Any] = {}
    for item, identity in zip(head, identities(head), strict=True):
        if all(identity in others_known for others_known in known):
            found.setdefault(identity, item)
    return list(found.values())


def _are_objects(collections: tuple[Any, ...]) -> bool:
    """Say whether these are all objects rather than all arrays."""
    if isinstance(collections[0], dict):
        for data in collections:
            want_object("collection", data)
        return True
    for items in collections:
        want_array("collection", items)
    return False


def _counted(items: list[Any]) -> list[Any]:
    """The array, which is about to be copied."""
    if len(items) > FEW:
        spend(len(items) * ELEMENT, len(items) * SLOT)
    return items


def _sequence(collection: Any) -> list[Any]:
    if isinstance(collection, list):
        return collection
    raise refuse("collection", "an array or a string", collection)


def _count(count: Any) -> int:
    number = want_integer("count", count)
    if number < 0:
        raise FunctionError(f"expects its argument 'count' to be a positive integer or 0, not {number}")
    return number


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
