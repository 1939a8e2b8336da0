"""XPath 1.0 over a document, with every visited node counted. Pure.

A path is parsed to closures, and a closure takes a context: a node, its position and the number of nodes. Sets are
lists without repeats in the order of the document. Each node that a step looks at is paid for before the next step. So
no path can cost more than the budget of its action, whatever the document looks like.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from loom.expressions.errors import FunctionError
from loom.expressions.functions.xpath_nodes import (
    ATTRIBUTE,
    AXES,
    COMMENT_NODE,
    ELEMENT_NODE,
    INSTRUCTION,
    NAMESPACE,
    REVERSED,
    TEXT_NODE,
    XML_NAMESPACE,
    Tree,
    XNode,
)
from loom.expressions.functions.xpath_values import FUNCTIONS, boolean_of, compared, number_of
from loom.expressions.meter import ELEMENT, MAX_LENGTH, NODE, spend

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_NESTING = 50
"""How deep parentheses, predicates and arguments may be nested."""

Kind = Literal["nodes", "number", "string", "boolean"]


class PathContext(NamedTuple):
    """The node for which an expression is evaluated, its position and the number of nodes around it."""

    node: XNode
    position: int
    size: int
    tree: Tree


class Expr(NamedTuple):
    """A part of a path, ready to be evaluated."""

    kind: Kind
    run: Callable[[PathContext], Any]
    positional: bool = False
    """Whether it asks for the position or the number of the nodes around."""


class Step(NamedTuple):
    """A step along an axis."""

    axis: str
    test: Callable[[XNode], bool] | None
    """None: every node."""
    predicates: tuple[Expr, ...]


def select(tree: Tree, path: str) -> Any:
    """Select with a path, from the outermost element on: a list of nodes, a float, a text or a boolean."""
    if len(path) > MAX_LENGTH:
        raise FunctionError(f"the path has more than {MAX_LENGTH:,} characters")
    expr = _PathParser(path).whole()
    outermost = next((node for node in tree.root.children if node.kind == ELEMENT_NODE), tree.root)
    return expr.run(PathContext(outermost, 1, 1, tree))


# -- reading a path ---------------------------------------------------------------------------------------------------

_NAME = r"[^\W\d][\w.\-·]*"
_TOKEN = re.compile(
    rf"\s*(?:(?P<number>\d+(?:\.\d*)?|\.\d+)|(?P<text>\"[^\"]*\"|'[^']*')"
    rf"|(?P<sign>\.\.|::|//|!=|<=|>=|[()\[\].@,/|+\-=<>*$])|(?P<name>{_NAME}(?::(?:{_NAME}|\*))?))"
)
_ENDS_OPERAND = frozenset({")", "]", "..", ".", "*"})
_WORDS = frozenset({"and", "or", "div", "mod"})
_NODE_TYPES = frozenset({"node", "text", "comment", "processing-instruction"})


class _Token(NamedTuple):
    kind: str
    text: str


def _tokens(path: str) -> list[_Token]:
    """The tokens of a path. A `*` or a word after an operand is an operator."""
    found: list[_Token] = []
    position, end = 0, len(path.rstrip(" \t\r\n"))
    while position < end:
        match = _TOKEN.match(path, position)
        if match is None or match.lastgroup is None:
            raise FunctionError(f"it means nothing at position {position}")
        kind, text = match.lastgroup, match[match.lastgroup]
        after = found[-1] if found else None
        is_behind = after is not None and (after.kind in ("number", "text", "name") or after.text in _ENDS_OPERAND)
        if is_behind and after is not None and after.kind != "operator" and (text == "*" or text in _WORDS):
            kind = "operator"
        found.append(_Token(kind, text))
        position = match.end()
    found.append(_Token("end", ""))
    return found


_LEVELS = (("or",), ("and",), ("=", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "div", "mod"))


class _PathParser:
    """Reads a path from left to right."""

    def __init__(self, path: str) -> None:
        self.tokens = _tokens(path)
        self.at = 0
        self.depth = 0

    def whole(self) -> Expr:
        expr = self.expression(0)
        if self.peek().kind != "end":
            raise FunctionError(f"it does not go on with '{self.peek().text[:40]}'")
        return expr

    def peek(self, ahead: int = 0) -> _Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def take(self, *texts: str, kind: str = "sign") -> bool:
        token = self.peek()
        if token.text not in texts or token.kind not in (kind, "operator"):
            return False
        self.at += 1
        return True

    def need(self, text: str) -> None:
        if not self.take(text):
            raise FunctionError(f"there must be '{text}' instead of '{self.peek().text[:40] or 'the end'}'")

    def expression(self, level: int) -> Expr:
        if level == 0:
            self.depth += 1
            if self.depth > MAX_NESTING:
                raise FunctionError(f"the path is nested more than {MAX_NESTING} levels deep")
        left = self.expression(level + 1) if level < len(_LEVELS) - 1 else self.unary()
        while self.peek().kind in ("sign", "operator") and self.peek().text in _LEVELS[level]:
            operator = self.peek().text
            self.at += 1
            right = self.expression(level + 1) if level < len(_LEVELS) - 1 else self.unary()
            left = _operation(operator, left, right)
        if level == 0:
            self.depth -= 1
        return left

    def unary(self) -> Expr:
        minuses = 0
        while self.take("-"):
            minuses += 1
        expr = self.union()
        if not minuses:
            return expr
        sign = -1.0 if minuses % 2 else 1.0
        return Expr("number", lambda context: sign * number_of(expr.run(context)), expr.positional)

    def union(self) -> Expr:
        expr = self.path()
        while self.take("|"):
            other = self.path()
            if expr.kind != "nodes" or other.kind != "nodes":
                raise FunctionError("'|' stands between sets of nodes")
            expr = _union(expr, other)
        return expr

    def path(self) -> Expr:
        token = self.peek()
        if self.is_primary(token):
            expr, filtered = self.primary(), False
            while self.peek().text == "[" and self.peek().kind == "sign":
                filtered = True
                predicate = self.predicate()
                expr = _filtered(expr, predicate)
            if self.peek().kind == "sign" and self.peek().text in ("/", "//"):
                filtered = True
                return _walk(_nodes_only(expr), self.steps(optional=False))
            return _nodes_only(expr) if filtered else expr
        if token.text == "/" and token.kind == "sign" and not self.begins_step(self.peek(1)):
            self.at += 1
            return _ROOT
        if token.kind == "sign" and token.text in ("/", "//"):
            return _walk(_ROOT, self.steps(optional=False))
        return _walk(_HERE, [self.step(), *self.steps(optional=True)])

    def is_primary(self, token: _Token) -> bool:
        if token.kind in ("number", "text") or (token.kind == "sign" and token.text in ("(", "$")):
            return True
        after = self.peek(1)
        return token.kind == "name" and after.text == "(" and after.kind == "sign" and token.text not in _NODE_TYPES

    def begins_step(self, token: _Token) -> bool:
        return token.kind == "name" or (token.kind == "sign" and token.text in (".", "..", "@", "*"))

    def primary(self) -> Expr:
        token = self.peek()
        self.at += 1
        if token.kind == "number":
            value = float(token.text)
            return Expr("number", lambda _: value)
        if token.kind == "text":
            text = token.text[1:-1]
            return Expr("string", lambda _: text)
        if token.text == "$":
            raise FunctionError("there are no variables in a path")
        if token.text == "(":
            expr = self.expression(0)
            self.need(")")
            return expr
        return self.call(token.text)

    def call(self, name: str) -> Expr:
        found = FUNCTIONS.get(name)
        if found is None:
            raise FunctionError(f"there is no function '{name[:40]}'")
        self.need("(")
        arguments: list[Expr] = []
        while not self.take(")"):
            if arguments:
                self.need(",")
            arguments.append(self.expression(0))
        if not found.least <= len(arguments) <= found.most:
            raise FunctionError(f"the function '{name}' does not take {len(arguments)} arguments")
        if found.wants_nodes and any(argument.kind != "nodes" for argument in arguments):
            raise FunctionError(f"the function '{name}' takes a set of nodes")
        runs, call = [argument.run for argument in arguments], found.call
        positional = name in ("position", "last") or any(argument.positional for argument in arguments)

        def run(context: PathContext) -> Any:
            spend(NODE)
            return call(context, *[each(context) for each in runs])

        return Expr(found.kind, run, positional)

    # -- steps --------------------------------------------------------------------------------------------------------

    def steps(self, *, optional: bool) -> list[Step]:
        """Read the steps after `/` and `//`; if not `optional`, at least one."""
        found: list[Step] = []
        while self.peek().kind == "sign" and self.peek().text in ("/", "//"):
            if self.take("//"):
                found.append(_EVERYWHERE)
            else:
                self.need("/")
            found.append(self.step())
        if not found and not optional:
            raise FunctionError("there is no step")
        return _joined(found)

    def step(self) -> Step:
        if self.take("."):
            return Step("self", None, ())
        if self.take(".."):
            return Step("parent", None, ())
        axis = "child"
        if self.take("@"):
            axis = "attribute"
        elif self.peek().kind == "name" and self.peek(1).text == "::":
            axis = self.peek().text
            self.at += 2
            if axis not in AXES:
                raise FunctionError(f"there is no axis '{axis[:40]}'")
        test = self.test(axis)
        predicates: list[Expr] = []
        while self.peek().text == "[" and self.peek().kind == "sign":
            predicates.append(self.predicate())
        return Step(axis, test, tuple(predicates))

    def predicate(self) -> Expr:
        self.need("[")
        expr = self.expression(0)
        self.need("]")
        return expr

    def test(self, axis: str) -> Callable[[XNode], bool] | None:
        token = self.peek()
        principal = {"attribute": ATTRIBUTE, "namespace": NAMESPACE}.get(axis, ELEMENT_NODE)
        if token.text == "*" and token.kind == "sign":
            self.at += 1
            return lambda node: node.kind == principal
        if token.kind != "name":
            raise FunctionError(f"there is no step in '{token.text[:40] or 'the end'}'")
        self.at += 1
        if self.peek().text == "(" and self.peek().kind == "sign":
            return self.type_test(token.text)
        prefix, colon, local = token.text.partition(":")
        if not colon:
            name = token.text
            return lambda node: node.local == name and node.kind == principal and not node.uri
        if prefix != "xml":
            raise FunctionError(f"the prefix '{prefix[:40]}' has no namespace")
        if local == "*":
            return lambda node: node.kind == principal and node.uri == XML_NAMESPACE
        return lambda node: node.kind == principal and node.uri == XML_NAMESPACE and node.local == local

    def type_test(self, name: str) -> Callable[[XNode], bool] | None:
        self.need("(")
        target = None
        if name == "processing-instruction" and self.peek().kind == "text":
            target = self.peek().text[1:-1]
            self.at += 1
        self.need(")")
        if name == "node":
            return None
        if name == "text":
            return lambda node: node.kind == TEXT_NODE
        if name == "comment":
            return lambda node: node.kind == COMMENT_NODE
        if name != "processing-instruction":
            raise FunctionError(f"there is no kind of nodes '{name[:40]}'")
        return lambda node: node.kind == INSTRUCTION and (target is None or node.name == target)


_EVERYWHERE = Step("descendant-or-self", None, ())
_ROOT = Expr("nodes", lambda context: [context.tree.root])
_HERE = Expr("nodes", lambda context: [context.node])


def _nodes_only(expr: Expr) -> Expr:
    if expr.kind != "nodes":
        raise FunctionError("only a set of nodes has steps and predicates")
    return expr


def _joined(steps: list[Step]) -> list[Step]:
    """`//a` as one step along descendants, unless `a` is asked for its position among its siblings."""
    found: list[Step] = []
    for step in steps:
        is_plain = not any(each.kind == "number" or each.positional for each in step.predicates)
        if found and found[-1] is _EVERYWHERE and step.axis == "child" and is_plain:
            found[-1] = Step("descendant", step.test, step.predicates)
        else:
            found.append(step)
    return found


# -- evaluating -------------------------------------------------------------------------------------------------------


def _walk(start: Expr, steps: list[Step]) -> Expr:
    def run(context: PathContext) -> list[XNode]:
        nodes: list[XNode] = start.run(context)
        for step in steps:
            nodes = _stepped(nodes, step, context.tree)
        return nodes

    return Expr("nodes", run, start.positional)


def _stepped(nodes: list[XNode], step: Step, tree: Tree) -> list[XNode]:
    """The nodes that a step gives for all nodes of a set."""
    axis, test, is_reversed = tree.axis(step.axis), step.test, step.axis in REVERSED
    groups: list[list[XNode]] = []
    for node in nodes:
        found = axis(node)
        spend(NODE + len(found) * ELEMENT)
        if test is not None:
            found = [each for each in found if test(each)]
        for predicate in step.predicates:
            found = _kept(found, predicate, tree)
        if found:
            groups.append(found[::-1] if is_reversed else found)
    return groups[0] if len(groups) == 1 else _ordered(groups)


def _ordered(groups: list[list[XNode]]) -> list[XNode]:
    """Join several sets to one, in the order of the document."""
    spend(sum(map(len, groups)) * ELEMENT)
    if all(before[-1].order < after[0].order for before, after in pairwise(groups)):
        return [node for group in groups for node in group]
    unique = {(node.order, node.index if node.kind == NAMESPACE else 0): node for group in groups for node in group}
    return [unique[key] for key in sorted(unique)]


def _kept(nodes: list[XNode], predicate: Expr, tree: Tree) -> list[XNode]:
    """The nodes for which a predicate holds; a number asks for the position."""
    size, run, kept = len(nodes), predicate.run, []
    spend(size * NODE)
    for position, node in enumerate(nodes, 1):
        value = run(PathContext(node, position, size, tree))
        if value == position if isinstance(value, float) else boolean_of(value):
            kept.append(node)
    return kept


def _filtered(expr: Expr, predicate: Expr) -> Expr:
    nodes = _nodes_only(expr)
    return Expr("nodes", lambda context: _kept(nodes.run(context), predicate, context.tree), expr.positional)


def _union(left: Expr, right: Expr) -> Expr:
    def run(context: PathContext) -> list[XNode]:
        return _ordered([group for group in (left.run(context), right.run(context)) if group])

    return Expr("nodes", run, left.positional or right.positional)


def _operation(operator: str, left: Expr, right: Expr) -> Expr:
    first, second = left.run, right.run
    positional = left.positional or right.positional
    if operator == "or":
        return Expr("boolean", lambda c: boolean_of(first(c)) or boolean_of(second(c)), positional)
    if operator == "and":
        return Expr("boolean", lambda c: boolean_of(first(c)) and boolean_of(second(c)), positional)
    if operator in ("=", "!=", "<", "<=", ">", ">="):
        return Expr("boolean", lambda c: compared(operator, first(c), second(c)), positional)
    calculate = _ARITHMETIC[operator]
    return Expr("number", lambda c: calculate(number_of(first(c)), number_of(second(c))), positional)


def _quotient(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if not a or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _remainder(a: float, b: float) -> float:
    return math.fmod(a, b) if b and math.isfinite(a) else math.nan


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "div": _quotient,
    "mod": _remainder,
}
