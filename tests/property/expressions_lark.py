"""A second parser of template strings, from a grammar that lark reads: whoever agrees with it parses well.

It knows no limits of length, depth or integers, so those who compare keep below them.
"""

from __future__ import annotations

import re
from typing import Any

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput

from loom.expressions.parser import Access, FunctionCall, Interpolation, Literal, Single, Text

GRAMMAR = r"""
template: (TEXT | escape | interpolated)*
escape: "@@{"
interpolated: "@{" expression "}"

single: expression

?expression: literal | call
literal: STRING | FLOAT | INTEGER | KEYWORD
call: NAME "(" [expression ("," expression)*] ")" access*
access: OPTIONAL? (property | element)
property: DOT NAME
element: BRACKET expression "]"

DOT: "."
BRACKET: "["
OPTIONAL: "?"
STRING: /'([^']|'')*'(?!')/
FLOAT.4: /([+-]?[0-9]+\.[0-9]*|[+-]\.[0-9]+)([eE][+-]?[0-9]+)?(?=[.,(){}@\[\]?'\s]|$)/
    | /[+-]?[0-9]+[eE][+-]?[0-9]+(?=[.,(){}@\[\]?'\s]|$)/
INTEGER.3: /[+-]?[0-9]+(?=[.,(){}@\[\]?'\s]|$)/
KEYWORD.2: /(?i:true|false|null)(?=[.,(){}@\[\]?'\s]|$)(?!\s*\()/
NAME: /[^.,(){}@\[\]?'\s]+/
TEXT.9: /(?:(?!@@?\{)[\s\S])+/
SPACE: /\s+/
%ignore SPACE
"""

PARSER = Lark(GRAMMAR, parser="lalr", lexer="contextual", start=["template", "single"], maybe_placeholders=False)


class Trees(Transformer[Token, Any]):
    """Makes the trees that Loom's own parser makes."""

    def __init__(self, offset: int) -> None:
        super().__init__()
        self.offset = offset

    def at(self, token: Token) -> int:
        assert token.start_pos is not None
        return token.start_pos + self.offset

    @v_args(inline=True)
    def literal(self, token: Token) -> Literal:
        value: Any = {"true": True, "false": False, "null": None}.get(token.lower())
        if token.type == "STRING":
            value = token[1:-1].replace("''", "'")
        elif token.type == "FLOAT":
            value = float(token)
        elif token.type == "INTEGER":
            value = int(token)
        return Literal(value, self.at(token))

    @v_args(inline=True)
    def property(self, dot: Token, name: Token) -> tuple[Token, Literal]:
        return dot, Literal(str(name), self.at(name))

    @v_args(inline=True)
    def element(self, bracket: Token, key: Any) -> tuple[Token, Any]:
        return bracket, key

    def access(self, children: list[Any]) -> Access:
        first, key = children[-1]
        optional = len(children) > 1
        return Access(key, optional, self.at(children[0] if optional else first))

    def call(self, children: list[Any]) -> FunctionCall:
        name, *rest = children
        accesses = tuple(child for child in rest if isinstance(child, Access))
        return FunctionCall(str(name), tuple(rest[: len(rest) - len(accesses)]), accesses, self.at(name))

    def single(self, children: list[Any]) -> Single:
        return Single(children[0])

    def escape(self, _: list[Any]) -> str:
        return "@{"

    def interpolated(self, children: list[Any]) -> Any:
        return children[0]

    def template(self, children: list[Any]) -> Any:
        parts: list[Any] = []
        for child in children:
            if isinstance(child, str) and parts and isinstance(parts[-1], str):
                parts[-1] += str(child)
            else:
                parts.append(str(child) if isinstance(child, str) else child)
        if all(isinstance(part, str) for part in parts):
            return Text("".join(parts))
        return Interpolation(tuple(parts))


def lark_template(text: str) -> Any:
    """What the text stands for, None if it is no template string."""
    if re.match(r"\[\[?\s*[A-Za-z_][\w.]*\s*\(", text) and text.endswith("]"):
        return Text(text)
    if text.startswith("@@"):
        return Text(text[1:])
    is_single = len(text) > 1 and text[0] == "@" and text[1] != "{"
    try:
        tree = PARSER.parse(text[1:] if is_single else text, start="single" if is_single else "template")
    except UnexpectedInput:
        return None
    return Trees(int(is_single)).transform(tree)
