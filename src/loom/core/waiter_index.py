"""An index of the waiters of one event type, derived from the state and kept beside it.

A run may have thousands of waiters for one type, most of which want another value of one field. The state lists them by
type only, and what is stored of it stays so. This index is worked out from a map of the state when it is first needed.
Each change of that map carries it on to the next version. It lives as long as the version of the map that it belongs
to. It is a cache of a pure function: without it, or after it was dropped, the answers are the same.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from loom.core.persistent import EMPTY_MAP, Map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from loom.core.state import StepWorkerWaiter

WORTHWHILE = 32
"""Fewer waiters than this are looked through as fast as they are found."""

_SCALARS = frozenset((str, int, float, bool, type(None)))
"""Types whose values are equal only to values of equal hash, as long as both are of these types."""


class WaiterIndex(NamedTuple):
    """The waiters of one type, by what they ask for first. Immutable, as the map that it was made from."""

    numbers: list[int]
    """All of them, oldest first. Never changed: another version has another list."""
    by_id: Map[str, Map[int, str]]
    """Numbers and steps by waiter id."""
    by_value: Map[str, Map[Any, Map[int, str]]]
    """Numbers and steps by the name and the value of the first requirement, where that value is a scalar."""
    others: Map[int, str]
    """Waiters without requirements, and those whose first one is no scalar."""

    def candidates(self, waiter_id: str | None, field: Callable[[str], Any]) -> Iterable[tuple[int, str]]:
        """List numbers and steps of all waiters that may match an event, in any order. `field` reads the event."""
        if waiter_id is not None:
            yield from self.by_id.get(waiter_id, EMPTY_MAP).items()
            return
        yield from self.others.items()
        for name, of_value in self.by_value.items():
            value = field(name)
            if type(value) in _SCALARS:
                yield from of_value.get(value, EMPTY_MAP).items()
            else:  # a value of another type may be equal to anything
                for found in of_value.values():
                    yield from found.items()

    def with_waiter(self, waiter: StepWorkerWaiter) -> WaiterIndex:
        """Return the index with one more waiter. Its number is mostly the highest."""
        number, step = waiter.number, waiter.step
        numbers = self.numbers.copy()
        numbers.insert(bisect_left(numbers, number), number)
        by_value, others = self.by_value, self.others
        key = _first_scalar(waiter)
        if key is None:
            others = others.set(number, step)
        else:
            of_name = by_value.get(key[0], EMPTY_MAP)
            by_value = by_value.set(key[0], _added(of_name, key[1], number, step))
        return WaiterIndex(numbers, _added(self.by_id, waiter.waiter_id, number, step), by_value, others)

    def without_waiter(self, waiter: StepWorkerWaiter) -> WaiterIndex:
        """Return the index with one waiter less."""
        number = waiter.number
        numbers = self.numbers.copy()
        del numbers[bisect_left(numbers, number)]
        by_value, others = self.by_value, self.others
        key = _first_scalar(waiter)
        if key is None:
            others = others.delete(number)
        else:
            of_name = _removed(by_value[key[0]], key[1], number)
            by_value = by_value.set(key[0], of_name) if of_name else by_value.delete(key[0])
        return WaiterIndex(numbers, _removed(self.by_id, waiter.waiter_id, number), by_value, others)


def _first_scalar(waiter: StepWorkerWaiter) -> tuple[str, Any] | None:
    """Return the first requirement of a waiter if its value is a scalar.

    Only the first: the others are read only if the ones before them are met, and reading may run code of an author's.
    """
    first = waiter.requirements[0] if waiter.requirements else None
    # What is not equal to itself is found by no key.
    return first if first is not None and type(first[1]) in _SCALARS and first[1] == first[1] else None


def _added(index: Map[Any, Map[int, str]], key: Any, number: int, step: str) -> Map[Any, Map[int, str]]:
    return index.set(key, index.get(key, EMPTY_MAP).set(number, step))


def _removed(index: Map[Any, Map[int, str]], key: Any, number: int) -> Map[Any, Map[int, str]]:
    rest = index[key].delete(number)
    return index.set(key, rest) if rest else index.delete(key)


_kept: dict[int, tuple[ref[Map[int, str]], WaiterIndex]] = {}
"""Indexes by the identity of their maps. An entry goes when its map does."""


def _keep(of_type: Map[int, str], index: WaiterIndex) -> None:
    _kept[id(of_type)] = (ref(of_type, partial(_forget, id(of_type))), index)


def _forget(key: int, gone: ref[Map[int, str]]) -> None:
    kept = _kept.get(key)
    if kept is not None and kept[0] is gone:  # another map may be at the same place by now
        _kept.pop(key, None)


def known_index(of_type: Map[int, str]) -> WaiterIndex | None:
    """Return the index of a map of waiters, if there is one."""
    kept = _kept.get(id(of_type))
    return kept[1] if kept is not None and kept[0]() is of_type else None


def index_of(of_type: Map[int, str], waiter: Callable[[int, str], StepWorkerWaiter]) -> WaiterIndex:
    """Return the index of a map of waiters. `waiter` looks one up by its number and step."""
    index = known_index(of_type)
    if index is None:
        index = _built([waiter(number, step) for number, step in sorted(of_type.items())])
        _keep(of_type, index)
    return index


def _built(waiters: list[StepWorkerWaiter]) -> WaiterIndex:
    by_id: dict[str, dict[int, str]] = {}
    by_value: dict[str, dict[Any, dict[int, str]]] = {}
    others: dict[int, str] = {}
    for waiter in waiters:
        by_id.setdefault(waiter.waiter_id, {})[waiter.number] = waiter.step
        key = _first_scalar(waiter)
        of_key = by_value.setdefault(key[0], {}).setdefault(key[1], {}) if key is not None else others
        of_key[waiter.number] = waiter.step
    return WaiterIndex(
        [waiter.number for waiter in waiters],
        _mapped(by_id),
        Map({name: _mapped(of_name) for name, of_name in by_value.items()}),
        Map(others),
    )


def _mapped(index: dict[Any, dict[int, str]]) -> Map[Any, Map[int, str]]:
    return Map({key: Map(found) for key, found in index.items()})


def carry_on(before: Map[int, str], after: Map[int, str], waiter: StepWorkerWaiter) -> None:
    """Carry the index of a map, if it has one, on to the map that a waiter was added to or removed from."""
    index = known_index(before)
    if index is not None and len(after) >= WORTHWHILE:
        _keep(after, index.with_waiter(waiter) if len(after) > len(before) else index.without_waiter(waiter))


def oldest(index: Iterable[Map[int, str]], limit: int | None) -> list[tuple[int, str]]:
    """List numbers and steps of the waiters in maps by type, oldest first, at most `limit` of them; None means all."""
    found: list[tuple[int, str]] = []
    for of_type in index:
        known = known_index(of_type)
        if known is None or limit is None:
            found += of_type.items()
        else:
            found += [(number, of_type[number]) for number in known.numbers[:limit]]
    return sorted(found)[:limit]
