"""Reading characters: a cursor in a template string that knows the words of the language. Pure.

What a run of characters means depends on where it is (`.5` is a property after a call and no number anywhere), so the
parser asks for the word it wants. May import `errors` and `values`.
"""

from __future__ import annotations

import re

from loom.expressions.errors import ExpressionError
from loom.expressions.values import INT_MAX, INT_MIN

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


class Scanner:
    """A cursor. What it reads it passes over, and the white space behind it."""

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
        """What is at the cursor, for a message."""
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
