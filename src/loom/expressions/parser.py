"""Template strings and the expressions in them: from text to tree. Pure.

`parse_template` says whether a string is plain text, one expression (`@expression`) or text with expressions in it
(`@{expression}`), and reads the expressions by recursive descent:

    expr    := literal | name '(' [expr (',' expr)*] ')' access*
    access  := ['?'] ('.' name | '[' expr ']')

Each level of the grammar's nesting is one level of the parser's, at most `MAX_NESTING`; a row of accesses is a loop.
There is no separate pass for tokens, because characters mean different things in different places: `.5` is a property
after a call and a number nowhere. The parser asks the cursor for the word that it wants. Positions in trees and errors
are indexes into the whole template string.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from msgspec import Struct

from loom.expressions.errors import ExpressionError
from loom.expressions.meter import MAX_LENGTH, MAX_NESTING
from loom.expressions.values import INT_MAX, INT_MIN

# --- the tree ---------------------------------------------------------------------------------------------------------


class Literal(Struct, frozen=True):
    """A value as it is written: a text, a number, true, false or null."""

    value: str | int | float | bool | None
    position: int


class Access(Struct, frozen=True):
    """One step into a value: `.name`, `['name']`, `[0]` or `[any expression]`."""

    key: Expression
    optional: bool
    """With `?`: what is not there reads as null."""
    position: int


class FunctionCall(Struct, frozen=True):
    """A call of a function, and the steps into its result from left to right."""

    name: str
    arguments: tuple[Expression, ...]
    accesses: tuple[Access, ...]
    position: int


Expression: TypeAlias = Literal | FunctionCall


# --- template strings -------------------------------------------------------------------------------------------------

_ARM = re.compile(r"\[\[?\s*[A-Za-z_][\w.]*\s*\(")
"""The beginning of a string that belongs to the resource template around the definition."""


class Text(Struct, frozen=True):
    """A string without expressions: the text that it means."""

    value: str


class Single(Struct, frozen=True):
    """`@expression`: the value keeps its kind."""

    expression: Expression


class Interpolation(Struct, frozen=True):
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
    """Say whether the string is an expression of a resource template, `[name(…)]`, which stays as it is."""
    return text.endswith("]") and _ARM.match(text) is not None


def _interpolation(text: str, lenient: bool) -> Parsed:
    parts: list[str | Expression] = []
    plain = ""
    position = 0
    while (at := text.find("@{", position)) >= 0:
        if at > position and text[at - 1] == "@":  # `@@{` is a plain `@{`.
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


# --- the grammar ------------------------------------------------------------------------------------------------------

_KEYWORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def parse(text: str, start: int, *, closed: bool, lenient: bool = False) -> tuple[Expression, int]:
    """Read the expression that begins at `start`, up to its `}` if it is `closed` by one, else up to the end.

    Returns the tree, and where the text goes on. `lenient` ignores an `@` before a name inside an expression.
    """
    scanner = _Cursor(text, start)
    tree = _Parser(scanner, lenient).expression(MAX_NESTING)
    end = scanner.position
    if closed:
        if not scanner.peek():
            raise scanner.error("'@{' is never closed: expected '}'", start - 2)
        if not scanner.text.startswith("}", end):
            raise scanner.error(f"expected '}}' at the end of the expression, but {scanner.found()}")
        end += 1
    elif end != len(text):
        raise scanner.error(f"expected the end of the expression, but {scanner.found()}")
    if end - start > MAX_LENGTH:
        raise scanner.error(f"the expression has {end - start:,} characters, at most {MAX_LENGTH:,} are allowed", start)
    return tree, end


class _Parser:
    """The grammar, with one method for each rule."""

    __slots__ = ("lenient", "scanner")

    def __init__(self, scanner: _Cursor, lenient: bool) -> None:
        self.scanner = scanner
        self.lenient = lenient

    def expression(self, depth: int) -> Expression:
        scanner = self.scanner
        if not depth:
            raise scanner.error(f"the expression is nested more than {MAX_NESTING} levels deep")
        if self.lenient and scanner.peek() == "@":
            scanner.take("@")
        position = scanner.position
        if scanner.peek() == "'":
            return self._without_access(Literal(scanner.quoted(), position))
        number = scanner.number()
        if number is not None:
            return self._without_access(Literal(number, position))
        name = scanner.name()
        if name is None:
            raise scanner.error(f"expected a function call, a text in quotes or a number, but {scanner.found()}")
        if scanner.peek() == "(":
            return self._call(name, position, depth)
        if name.lower() in _KEYWORDS:
            return self._without_access(Literal(_KEYWORDS[name.lower()], position))
        raise scanner.error(
            f"'{name[:40]}' means nothing by itself: a function needs parentheses, a text needs quotes", position
        )

    def _without_access(self, literal: Literal) -> Literal:
        following = self.scanner.peek()
        if following and following in ".[?(":
            raise self.scanner.error(f"a literal cannot be followed by '{following}'")
        return literal

    def _call(self, name: str, position: int, depth: int) -> FunctionCall:
        scanner = self.scanner
        scanner.take("(")
        arguments: list[Expression] = []
        if not scanner.take(")"):
            arguments.append(self.expression(depth - 1))
            while scanner.take(","):
                arguments.append(self.expression(depth - 1))
            if not scanner.take(")"):
                raise scanner.error(f"expected ',' or ')' after an argument of '{name}', but {scanner.found()}")
        accesses: list[Access] = []
        while scanner.peek() and scanner.peek() in "?.[":
            accesses.append(self._access(depth))
        if scanner.peek() == "(":
            raise scanner.error(f"the result of '{name}' cannot be called")
        return FunctionCall(name, tuple(arguments), tuple(accesses), position)

    def _access(self, depth: int) -> Access:
        scanner = self.scanner
        position = scanner.position
        optional = scanner.take("?")
        if scanner.take("."):
            at = scanner.position
            name = scanner.name()
            if name is None:
                raise scanner.error(f"expected the name of a property after '.', but {scanner.found()}")
            return Access(Literal(name, at), optional, position)
        if scanner.take("["):
            key = self.expression(depth - 1)
            if not scanner.take("]"):
                raise scanner.error(f"expected ']', but {scanner.found()}")
            return Access(key, optional, position)
        raise scanner.error(f"expected '.' or '[' after '?', but {scanner.found()}")


# --- words ------------------------------------------------------------------------------------------------------------

_NAME = re.compile(r"[^.,(){}@\[\]?'\s]+")
_EXPONENT = r"[eE][+-]?[0-9]+"
_NUMBER = re.compile(
    rf"(?P<float>[+-]?[0-9]+\.[0-9]*(?:{_EXPONENT})?|[+-]\.[0-9]+(?:{_EXPONENT})?|[+-]?[0-9]+{_EXPONENT})"
    r"(?![^.,(){}@\[\]?'\s])"
    r"|[+-]?[0-9]+(?![^.,(){}@\[\]?'\s])"
)
_NUMBER_STARTS = frozenset("+-0123456789")
_TEXT = re.compile(r"'((?:[^']+|'')*+)'")
_INT64_DIGITS = 20
"""Sign and digits of the longest integer there is."""


class _Cursor:
    """A cursor in a template string that knows the words of the language.

    It passes over what it reads, and over the white space after that.
    """

    __slots__ = ("position", "text")

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position
        self.skip_space()

    def skip_space(self) -> None:
        """Pass over white space and line ends."""
        while self.text[self.position : self.position + 1].isspace():
            self.position += 1

    def peek(self) -> str:
        """The character at the cursor, an empty text at the end."""
        return self.text[self.position : self.position + 1]

    def take(self, character: str) -> bool:
        """Read this character, if it is here."""
        if not self.text.startswith(character, self.position):
            return False
        self.position += 1
        self.skip_space()
        return True

    def name(self) -> str | None:
        """Read a name, if there is one here."""
        match = _NAME.match(self.text, self.position)
        if match is None:
            return None
        self._pass(match)
        return match.group()

    def quoted(self) -> str:
        """Read the quoted text that begins here."""
        match = _TEXT.match(self.text, self.position)
        if match is None:
            raise self.error("the quote that opens here is never closed; a quote inside a text is written twice")
        self._pass(match)
        return match.group(1).replace("''", "'")

    def number(self) -> int | float | None:
        """Read a number, if there is one here."""
        match = _NUMBER.match(self.text, self.position) if self.peek() in _NUMBER_STARTS else None
        if match is None:
            return None
        digits = match.group()
        if match.group("float"):
            self._pass(match)
            return float(digits)
        sign = "-" if digits.startswith("-") else ""
        significant = sign + (digits.lstrip("+-").lstrip("0") or "0")
        if len(significant) > _INT64_DIGITS or not INT_MIN <= int(significant) <= INT_MAX:
            raise self.error(f"the integer {digits[:40]} does not fit into 64 bits")
        self._pass(match)
        return int(significant)

    def found(self) -> str:
        """Describe what is at the cursor, for a message."""
        if self.position >= len(self.text):
            return "the text ends"
        word = _NAME.match(self.text, self.position)
        return f"there is '{word.group()[:40] if word else self.peek()}'"

    def error(self, message: str, position: int | None = None) -> ExpressionError:
        """An error at the cursor, or where it says. The caller raises it."""
        return ExpressionError(message, self.text, self.position if position is None else position)

    def _pass(self, match: re.Match[str]) -> None:
        self.position = match.end()
        self.skip_space()
