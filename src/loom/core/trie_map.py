"""A persistent map in plain Python, for versions of Python that `immutables` has no wheel for.

A map of few keys is one dict, which is copied with each change; a dict of up to 16 entries is copied in the time of a
function call. A larger map is a trie: a branch is a tuple of 32 places, chosen by five bits of the hash of a key, and a
leaf is a dict. So a change copies one leaf and the branches above it, and all else is shared. A dict that is part of a
map is never changed again.

It has the part of the interface of `immutables.Map` that Loom uses.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping
from types import GenericAlias
from typing import Any, Generic, TypeVar, cast

from typing_extensions import override

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_LEAF = 16
"""The most keys of a leaf, unless their hashes are the same."""
_BITS, _MASK, _DEEPEST = 5, 31, 60
_EMPTY_BRANCH: tuple[None, ...] = (None,) * 32
_GONE: Any = object()

Node = dict[Any, Any] | tuple[Any, ...]


def _build(entries: list[tuple[Any, Any]], shift: int) -> Node:
    """Make a node of entries with different keys."""
    if len(entries) <= _LEAF or shift > _DEEPEST:
        return dict(entries)
    places: list[list[tuple[Any, Any]]] = [[] for _ in _EMPTY_BRANCH]
    for entry in entries:
        places[(hash(entry[0]) >> shift) & _MASK].append(entry)
    return tuple(_build(place, shift + _BITS) if place else None for place in places)


def _with(node: Node, shift: int, key: Any, value: Any) -> Node:
    """Return the node with a key set."""
    if type(node) is dict:
        if len(node) < _LEAF or key in node or shift > _DEEPEST:
            leaf = node.copy()
            leaf[key] = value
            return leaf
        return _build([*node.items(), (key, value)], shift)
    place = (hash(key) >> shift) & _MASK
    child = node[place]
    changed = {key: value} if child is None else _with(child, shift + _BITS, key, value)
    return (*node[:place], changed, *node[place + 1 :])


def _without(node: Node, shift: int, key: Any) -> Node | None:
    """Return the node without a key that it has; None if nothing is left of it."""
    if type(node) is dict:
        leaf = node.copy()
        del leaf[key]
        return leaf or None
    place = (hash(key) >> shift) & _MASK
    branch = (*node[:place], _without(node[place], shift + _BITS, key), *node[place + 1 :])
    return None if branch == _EMPTY_BRANCH else branch


def _leaf(node: Node | None, key: Any) -> dict[Any, Any]:
    """Find the leaf that has a key, if any has it."""
    bits = hash(key)
    while type(node) is tuple:
        node, bits = node[bits & _MASK], bits >> _BITS
    return cast("dict[Any, Any]", node) if node is not None else {}


def _entries(node: Node) -> Iterator[tuple[Any, Any]]:
    if type(node) is dict:
        yield from node.items()
    else:
        for child in node:
            if child is not None:
                yield from _entries(child)


class _Items(ItemsView[K, V]):
    """The entries of a trie, without a search for each."""

    __slots__ = ()

    @override
    def __iter__(self) -> Iterator[tuple[K, V]]:
        return _entries(self._mapping._root)  # type: ignore[attr-defined]


class TrieMap(Mapping[K, V]):
    """A map whose every change leaves the old version as it was."""

    __slots__ = ("__weakref__", "_count", "_hash", "_root")

    _root: Node
    _count: int
    _hash: int | None

    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = (), /) -> None:
        if isinstance(entries, TrieMap):
            self._root, self._count, self._hash = entries._root, entries._count, entries._hash
            return
        given = dict(entries)
        self._root = given if len(given) <= _LEAF else _build(list(given.items()), 0)
        self._count = len(given)
        self._hash = None

    def set(self, key: K, value: V) -> TrieMap[K, V]:
        """Return the map with a key set."""
        root = self._root
        if type(root) is dict and (len(root) < _LEAF or key in root):
            leaf = root.copy()
            leaf[key] = value
            return _made(leaf, len(leaf))
        return _made(_with(root, 0, key, value), self._count + (key not in _leaf(root, key)))

    def delete(self, key: K) -> TrieMap[K, V]:
        """Return the map without a key; `KeyError` if it has not got it."""
        root = self._root
        if type(root) is dict:
            leaf = root.copy()
            del leaf[key]
            return _made(leaf, len(leaf))
        if key not in _leaf(root, key):
            raise KeyError(key)
        rest = _without(root, 0, key) or {}
        count = self._count - 1
        return _made(dict(_entries(rest)) if count <= _LEAF // 2 else rest, count)

    def update(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = (), /) -> TrieMap[K, V]:
        """Return the map with several keys set."""
        given = dict(entries)
        if not given:
            return self
        if len(given) * 4 > self._count:
            whole = dict(self.items())
            whole.update(given)
            return TrieMap(whole)
        changed = self
        for key, value in given.items():
            changed = changed.set(key, value)
        return changed

    def mutate(self) -> Mutation[K, V]:
        """Return an open version, for many changes in a row."""
        return Mutation(self)

    @override
    def get(self, key: Any, default: Any = None, /) -> Any:
        root = self._root
        return root.get(key, default) if type(root) is dict else _leaf(root, key).get(key, default)

    @override
    def __getitem__(self, key: K) -> V:
        root = self._root
        return cast("V", root[key] if type(root) is dict else _leaf(root, key)[key])

    @override
    def __contains__(self, key: object) -> bool:
        root = self._root
        return key in (root if type(root) is dict else _leaf(root, key))

    @override
    def __iter__(self) -> Iterator[K]:
        root = self._root
        return iter(root) if type(root) is dict else (key for key, _ in _entries(root))

    @override
    def items(self) -> ItemsView[K, V]:
        root = self._root
        return root.items() if type(root) is dict else _Items(self)

    @override
    def __len__(self) -> int:
        return self._count

    @override
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TrieMap):
            return NotImplemented
        if self._root is other._root:
            return True
        if self._count != other._count:
            return False
        return all(other.get(key, _GONE) == value for key, value in self.items())

    @override
    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.items()))
        return self._hash

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return TrieMap, (dict(self.items()),)

    @override
    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.items())!r})"

    @classmethod
    def __class_getitem__(cls, item: Any) -> GenericAlias:
        return GenericAlias(cls, item)


def _made(root: Node, count: int) -> TrieMap[Any, Any]:
    made: TrieMap[Any, Any] = TrieMap.__new__(TrieMap)
    made._root, made._count, made._hash = root, count, None
    return made


class Mutation(Generic[K, V]):
    """A map under change; `finish` gives the map."""

    __slots__ = ("_map",)

    def __init__(self, start: TrieMap[K, V]) -> None:
        self._map = start

    def pop(self, key: K, default: Any) -> Any:
        """Take a key out, and return its value or the default."""
        value = self._map.get(key, _GONE)
        if value is _GONE:
            return default
        self._map = self._map.delete(key)
        return value

    def finish(self) -> TrieMap[K, V]:
        """Return the map."""
        return self._map
