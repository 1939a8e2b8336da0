"""YAML with JSON's types and nothing else: `on`, `no` and dates stay text, and tags are refused.

A module of its own, because PyYAML is imported only for a document that is no JSON.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from typing_extensions import override
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from collections.abc import Callable


MAX_REPEATED = 100_000
"""Most values that the aliases of a text may add to it."""

_SCALARS = (
    (re.compile(r"null|~|"), lambda _: None),
    (re.compile(r"true|false"), lambda text: text == "true"),
    (re.compile(r"-?(0|[1-9][0-9]{0,400})"), int),
    (re.compile(r"-?(0|[1-9][0-9]{0,400})(\.[0-9]+)?([eE][-+]?[0-9]+)?"), float),
)


def load_yaml(
    text: str, make: Callable[[list[tuple[str, Any]]], dict[str, Any]], max_aliases: int, max_depth: int
) -> Any:
    """Parse one YAML document; `make` builds its objects. Raises `yaml.YAMLError`, or `RecursionError`."""
    loader = _Composer(text)
    loader.aliases_left, loader.levels_left = max_aliases, max_depth + 1
    try:
        root = loader.get_single_node()
        return None if root is None else _Builder(make).build(root)
    finally:
        loader.dispose()


class _Composer(yaml.SafeLoader):
    """Composes nodes, and counts aliases. It stops at once where a text nests too deep, which takes long to scan."""

    aliases_left = 0
    levels_left = 0

    @override
    def compose_node(self, parent: Any, index: Any) -> Node | None:
        if self.check_event(yaml.AliasEvent):
            self.aliases_left -= 1
            if self.aliases_left < 0:
                raise yaml.YAMLError("it has too many aliases")
        if not self.levels_left:
            raise RecursionError
        self.levels_left -= 1
        node: Node | None = super().compose_node(parent, index)
        self.levels_left += 1
        return node


class _Builder:
    """Makes data of nodes. A node with many aliases is made once."""

    def __init__(self, make: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> None:
        self._make = make
        self._made: dict[int, tuple[Any, int]] = {}
        """Data by node, with its number of values."""
        self._open: set[int] = set()
        self._values = self._repeated = 0

    def build(self, node: Node) -> Any:
        """Make the value of a node."""
        if isinstance(node, ScalarNode):
            self._values += 1
            return _scalar(node)
        key = id(node)
        if key in self._open:
            raise yaml.MarkedYAMLError(problem="a value contains itself", problem_mark=node.start_mark)
        if key in self._made:
            return self._again(*self._made[key])
        before = self._values
        self._values += 1
        self._open.add(key)
        made = self._collection(node)
        self._open.discard(key)
        self._made[key] = made, self._values - before
        return made

    def _again(self, made: Any, values: int) -> Any:
        """Count a value that an alias repeats, because a short text could grow without bounds."""
        self._values += values
        self._repeated += values
        if self._repeated > MAX_REPEATED:
            raise yaml.YAMLError(f"its aliases repeat more than {MAX_REPEATED:,} values")
        return made

    def _collection(self, node: Node) -> Any:
        if node.tag not in ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"):
            raise _unsupported(node)
        if isinstance(node, SequenceNode):
            return [self.build(item) for item in node.value]
        assert isinstance(node, MappingNode)
        pairs = []
        for name, value in node.value:
            if not isinstance(name, ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be text", problem_mark=name.start_mark)
            pairs.append((name.value, self.build(value)))
        return self._make(pairs)


def _scalar(node: ScalarNode) -> Any:
    text: str = node.value
    tag = node.tag.removeprefix("tag:yaml.org,2002:")
    if tag.startswith("!"):
        raise _unsupported(node)
    if node.style is None:  # a plain one: its type is guessed, but only among JSON's
        for form, convert in _SCALARS:
            if form.fullmatch(text):
                return convert(text)
        return text
    if tag == "str":
        return text
    raise _unsupported(node)


def _unsupported(node: Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=f"the tag {node.tag} is not supported", problem_mark=node.start_mark)
