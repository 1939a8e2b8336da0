"""Template strings: plain text, one expression, or text with expressions in it. Pure.

`parse_template` says which and reads the expressions. May import `parse` and `syntax`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

from loom.expressions.parse import parse
from loom.expressions.syntax import Expression

_ARM = re.compile(r"\[\[?\s*[A-Za-z_][\w.]*\s*\(")
"""How a string begins that belongs to the resource template around the definition, not to the definition."""


@dataclass(frozen=True, slots=True)
class Text:
    """No expression at all: what the string stands for."""

    value: str


@dataclass(frozen=True, slots=True)
class Single:
    """`@expression`: the value keeps its kind."""

    expression: Expression


@dataclass(frozen=True, slots=True)
class Interpolation:
    """Texts and `@{expression}`s, joined to one text."""

    parts: tuple[str | Expression, ...]


Parsed: TypeAlias = Text | Single | Interpolation


def parse_template(text: str, *, lenient: bool = False) -> Parsed:
    """Read a template string. `lenient` ignores an `@` before a name inside an expression."""
    if "@" not in text or is_opaque(text):
        return Text(text)
    if text.startswith("@@"):
        return Text(text[1:])
    if text.startswith("@") and len(text) > 1 and text[1] != "{":
        return Single(parse(text, 1, closed=False, lenient=lenient)[0])
    return _interpolation(text, lenient) if "@{" in text else Text(text)


def is_opaque(text: str) -> bool:
    """Whether the string is an expression of a resource template, `[name(…)]`, which nobody here may look into."""
    return text.endswith("]") and _ARM.match(text) is not None


def _interpolation(text: str, lenient: bool) -> Parsed:
    parts: list[str | Expression] = []
    plain = ""
    position = 0
    while (at := text.find("@{", position)) >= 0:
        if at > position and text[at - 1] == "@":  # `@@{` stands for `@{`.
            plain += text[position : at - 1] + "@{"
            position = at + 2
            continue
        plain += text[position:at]
        if plain:
            parts.append(plain)
            plain = ""
        expression, position = parse(text, at + 2, closed=True, lenient=lenient)
        parts.append(expression)
    plain += text[position:]
    if not parts:
        return Text(plain)
    if plain:
        parts.append(plain)
    return Interpolation(tuple(parts))
