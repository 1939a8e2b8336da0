"""Find where the parts of a document stand: from a JSON path to line and column, or to a JSON Pointer.

The map is made only to report a problem, so it need not be fast.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.flows.diagnostics import at

if TYPE_CHECKING:
    from collections.abc import Iterator


@cache
def _part() -> re.Pattern[str]:
    """Compile the pattern of a path's part, on first use: only problems have paths."""
    return re.compile(r"\.?(?P<name>[A-Za-z_$][\w$]*)|\[(?P<index>[0-9]+)\]|\['(?P<quoted>(?:[^']|'')*)'\]")


def pointer_of(path: str) -> str:
    """Convert a problem's path, such as `actions['a b'].inputs[0]`, to a JSON Pointer."""
    parts: list[str] = []
    position = 0
    while found := _part().match(path, position):
        parts.append(found["name"] or found["index"] or (found["quoted"] or "").replace("''", "'"))
        position = found.end()
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)


class Spot(NamedTuple):
    """A position in a text, both numbers from 1."""

    line: int
    column: int


class SourceMap:
    """Positions of all values of a JSON or YAML text, by JSON path."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: dict[str, Spot] | None = None

    def find(self, path: str) -> Spot | None:
        """Find the position of a value, or, for a missing value, of the nearest part around it."""
        if not path:
            return None
        if self._found is None:
            is_json = self._text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[")
            self._found = dict(_in_json(self._text) if is_json else _in_yaml(self._text))
        while path and path not in self._found:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._found.get(path)


@cache
def _token() -> re.Pattern[str]:
    """Compile the pattern of a token of JSON, on first use."""
    return re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


def _in_json(text: str) -> Iterator[tuple[str, Spot]]:
    """Yield paths and positions in JSON that is known to parse. A property stands where its name does."""
    lines = _Lines(text)
    open_: list[tuple[str, int | None]] = []  # paths of what is open, and the index of a list's next element
    named: tuple[str, Spot] | None = None  # the last name in an object, and where
    wants_name = False
    for found in _token().finditer(text):
        sign, spot = found[0], lines.spot(found.start())
        if wants_name and sign.startswith('"'):
            named, wants_name = (at(open_[-1][0], _unquoted(sign)), spot), False
        elif sign in "]}":
            open_.pop()
            wants_name = False
        elif sign == ",":
            wants_name = bool(open_) and open_[-1][1] is None
        elif sign != ":":
            here, spot = _next_value(open_, named, spot)
            named = None
            if here:
                yield here, spot
            if sign in "[{":
                open_.append((here, 0 if sign == "[" else None))
                wants_name = sign == "{"


def _next_value(open_: list[tuple[str, int | None]], named: tuple[str, Spot] | None, spot: Spot) -> tuple[str, Spot]:
    if named is not None:
        return named
    if not open_:
        return "", spot
    path, index = open_[-1]
    open_[-1] = (path, (index or 0) + 1)
    return at(path, index or 0), spot


def _unquoted(sign: str) -> str:
    import json

    name: str = json.loads(sign, strict=False)
    return name


class _Lines:
    """Converts offsets, which must only grow, to lines and columns."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line = 1
        self._start = 0

    def spot(self, offset: int) -> Spot:
        while (end := self._text.find("\n", self._start, offset)) >= 0:
            self._line, self._start = self._line + 1, end + 1
        return Spot(self._line, offset - self._start + 1)


def _in_yaml(text: str) -> Iterator[tuple[str, Spot]]:
    """Yield paths and positions in YAML that is known to parse."""
    import yaml

    root = yaml.compose(text, Loader=yaml.SafeLoader)
    inside: list[tuple[str, Any]] = [("", root)]
    while inside:
        path, node = inside.pop()
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = at(path, str(key.value))
                yield here, Spot(key.start_mark.line + 1, key.start_mark.column + 1)
                inside.append((here, value))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                here = at(path, index)
                yield here, Spot(value.start_mark.line + 1, value.start_mark.column + 1)
                inside.append((here, value))
