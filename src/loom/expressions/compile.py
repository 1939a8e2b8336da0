"""From tree to closures, once for each template string. Pure.

May import the parser, `calls`, `access` and the tree. A closure is nested as deep as its expression, which the parser
limits; a row of accesses is a loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loom.expressions.access import read
from loom.expressions.arguments import check_size
from loom.expressions.calls import Compiled, Constant, Place, compile_call
from loom.expressions.errors import FunctionError
from loom.expressions.metering import metered, with_allowance
from loom.expressions.remembered import remembered
from loom.expressions.syntax import Access, Expression, Literal
from loom.expressions.template import Single, Text, parse_template
from loom.expressions.values import text_of

if TYPE_CHECKING:
    from loom.expressions.environment import Environment

_NESTED_ACCESSES = 8
_UNMETERED_CALLS = 16
"""So few calls cannot build too much, even if each of them builds as much as it may."""


class CallSite(NamedTuple):
    """A call in a template, for those who check definitions before they run."""

    function: str
    argument: str | None
    """The first argument, if it is a text written in quotes."""
    position: int
    arguments: int
    """How many arguments it has."""


class Template:
    """A template string, compiled."""

    __slots__ = ("calls", "evaluate", "is_constant", "is_literal", "text", "value")

    def __init__(self, text: str, evaluate: Compiled, calls: tuple[CallSite, ...], is_literal: bool) -> None:
        self.text = text
        """As it was written."""
        self.evaluate = evaluate
        """Its value in an environment."""
        self.calls = calls
        """The calls in it, from left to right, outer ones first."""
        self.is_literal = is_literal
        """Whether there is no expression in it."""
        self.is_constant = isinstance(evaluate, Constant)
        """Whether it is always the same value: a literal, or an expression like `@true`."""
        self.value: Any = evaluate.value if isinstance(evaluate, Constant) else None
        """Its value, if it is constant."""


@remembered(8192, longest=4096)
def compile_template(text: str, *, lenient: bool = False, lenient_reads: bool = False) -> Template:
    """Compile a template string; raises `ExpressionError` if it does not parse.

    `lenient` ignores an `@` before a name inside an expression. `lenient_reads` reads what is not there yet as null: a
    missing property, a part of null, an action or a variable that has no value so far.
    """
    parsed = parse_template(text, lenient=lenient)
    compiler = _Compiler(text, lenient_reads, metering=text.count("(") > _UNMETERED_CALLS)
    if isinstance(parsed, Text):
        return Template(text, Constant(parsed.value), (), True)
    if isinstance(parsed, Single):
        evaluate = compiler.expression(parsed.expression)
    else:
        evaluate = compiler.interpolation(parsed.parts)
    if compiler.metering and compiler.calls:
        evaluate = with_allowance(evaluate)
    return Template(text, evaluate, tuple(compiler.calls), False)


class _Compiler:
    """Compiles the expressions of one template string."""

    __slots__ = ("calls", "lenient_reads", "metering", "text")

    def __init__(self, text: str, lenient_reads: bool, metering: bool) -> None:
        self.text = text
        self.lenient_reads = lenient_reads
        self.metering = metering
        self.calls: list[CallSite] = []

    def expression(self, tree: Expression) -> Compiled:
        """A literal, or a call and the steps into its result."""
        if isinstance(tree, Literal):
            return Constant(tree.value)
        head = tree.arguments[0] if tree.arguments else None
        argument = head.value if isinstance(head, Literal) and isinstance(head.value, str) else None
        self.calls.append(CallSite(tree.name, argument, tree.position, len(tree.arguments)))
        arguments = [self.expression(argument) for argument in tree.arguments]
        place = Place(self.text, tree.position, tree.name)
        call = compile_call(tree.name, arguments, place, forgiving=self.lenient_reads)
        if self.metering:
            call = metered(call, place)
        return self._accesses(call, tree.accesses)

    def _accesses(self, value: Compiled, accesses: tuple[Access, ...]) -> Compiled:
        """Short rows are nested closures, which are faster; long ones are a loop, which cannot be too deep."""
        steps = [
            _Step(self.expression(access.key), access.optional or self.lenient_reads, Place(self.text, access.position))
            for access in accesses
        ]
        if len(steps) > _NESTED_ACCESSES:
            return _row(value, steps)
        for step in steps:
            key = step.key
            if isinstance(key, Constant) and isinstance(key.value, str):
                value = _property(value, key.value, step)
            else:
                value = _row(value, [step])
        return value

    def interpolation(self, parts: tuple[str | Expression, ...]) -> Compiled:
        """The texts of all parts, joined."""
        compiled = [self._text(part) for part in parts]
        place = Place(self.text, 0)

        def joined(env: Environment) -> str:
            texts = [part(env) for part in compiled]
            try:
                check_size(sum(map(len, texts)))
            except FunctionError as error:
                raise place.error(f"the template {error}") from error
            return "".join(texts)

        return joined

    def _text(self, part: str | Expression) -> Compiled:
        if isinstance(part, str):
            return Constant(part)
        value = self.expression(part)
        place = Place(self.text, part.position)

        def text(env: Environment) -> str:
            try:
                return text_of(value(env))
            except FunctionError as error:
                raise place.error(str(error)) from error

        return text


class _Step(NamedTuple):
    """A step into a value."""

    key: Compiled
    optional: bool
    place: Place


def _property(value: Compiled, name: str, step: _Step) -> Compiled:
    """A property whose name is known."""

    def get(env: Environment) -> Any:
        parent = value(env)
        if isinstance(parent, dict) and name in parent:
            return parent[name]
        try:
            return read(parent, name, step.optional)
        except FunctionError as error:
            raise step.place.error(str(error)) from error

    return get


def _row(value: Compiled, steps: list[_Step]) -> Compiled:
    """Any steps, one after the other."""

    def get(env: Environment) -> Any:
        current = value(env)
        for key, optional, place in steps:
            try:
                current = read(current, key(env), optional)
            except FunctionError as error:
                raise place.error(str(error)) from error
        return current

    return get
