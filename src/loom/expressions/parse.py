"""From text to tree: the grammar of expressions, by recursive descent. Pure.

    expr    := literal | name '(' [expr (',' expr)*] ')' access*
    access  := ['?'] ('.' name | '[' expr ']')

Each level of the grammar's nesting is one level of the parser's, and there are at most `MAX_NESTING` of them; a row of
accesses is a loop. May import `scan`, `syntax`, `errors` and `limits`.
"""

from __future__ import annotations

from loom.expressions.limits import MAX_LENGTH, MAX_NESTING
from loom.expressions.scan import Scanner
from loom.expressions.syntax import Access, Call, Expression, Literal

_KEYWORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def parse(text: str, start: int, *, closed: bool, lenient: bool = False) -> tuple[Expression, int]:
    """Read the expression that begins at `start`, up to its `}` if it is `closed` by one, else up to the end.

    Returns the tree, and where the text goes on. `lenient` ignores an `@` before a name inside an expression.
    """
    scanner = Scanner(text, start)
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
    """One method for each rule of the grammar."""

    __slots__ = ("lenient", "scanner")

    def __init__(self, scanner: Scanner, lenient: bool) -> None:
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

    def _call(self, name: str, position: int, depth: int) -> Call:
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
        return Call(name, tuple(arguments), tuple(accesses), position)

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
