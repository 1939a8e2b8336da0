"""From trees to closures, once for each template string or JSON value. Pure.

`compile_template` compiles one template string. `compile_value` compiles a JSON value whose strings and keys are
template strings; a part without expressions is the same object again and costs nothing. A closure is nested as deep as
its expression, which the parser limits; a row of accesses is a loop.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.expressions.calls import Compiled, Constant, SourceLocation, compile_call, metered, with_allowance
from loom.expressions.errors import ExpressionError, FunctionError
from loom.expressions.functions.registry import check_size
from loom.expressions.meter import MAX_DEPTH
from loom.expressions.parser import Access, Expression, Literal, Single, Text, parse_template
from loom.expressions.strings import remembered
from loom.expressions.value_text import text_of
from loom.expressions.values import kind_of, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.expressions.environment import Environment


class CallSite(NamedTuple):
    """A call in a template, for the checks of definitions before they run."""

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


# --- template strings -------------------------------------------------------------------------------------------------

_NESTED_ACCESSES = 8
_UNMETERED_CALLS = 16
"""The most calls that cannot build too much, even if each of them builds as much as it may."""


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
        place = SourceLocation(self.text, tree.position, tree.name)
        call = compile_call(tree.name, arguments, place, forgiving=self.lenient_reads)
        if self.metering:
            call = metered(call, place)
        return self._accesses(call, tree.accesses)

    def _accesses(self, value: Compiled, accesses: tuple[Access, ...]) -> Compiled:
        """Short rows are nested closures, which are faster; long ones are a loop, which cannot be too deep."""
        steps = [
            _Step(
                self.expression(access.key),
                access.optional or self.lenient_reads,
                SourceLocation(self.text, access.position),
            )
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
        place = SourceLocation(self.text, 0)

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
        place = SourceLocation(self.text, part.position)

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
    place: SourceLocation


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
    """Take any steps, one after the other."""

    def get(env: Environment) -> Any:
        current = value(env)
        for key, optional, place in steps:
            try:
                current = read(current, key(env), optional)
            except FunctionError as error:
                raise place.error(str(error)) from error
        return current

    return get


# --- JSON values ------------------------------------------------------------------------------------------------------

_PLAIN_NAME = re.compile(r"[A-Za-z_$][\w$]*")


class _How(NamedTuple):
    lenient: bool
    lenient_reads: bool


def compile_value(data: Any, *, path: str = "", lenient: bool = False, lenient_reads: bool = False) -> Compiled:
    """Compile a JSON value, in which every string and every key is a template string.

    Errors name the place inside the value, which begins with `path`: `inputs.headers['X']`. Evaluating it gives a new
    value, but for the parts without expressions, which are shared; nobody may change them.
    """
    return _compile(data, path, MAX_DEPTH, _How(lenient, lenient_reads))


def templates_in(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The strings and keys in a JSON value that may be templates, each with its path, in the order of the text."""
    waiting = [(path, data)]
    while waiting:
        at, value = waiting.pop()
        if isinstance(value, str):
            if "@" in value:
                yield at, value
        elif isinstance(value, list):
            waiting.extend((f"{at}[{index}]", item) for index, item in reversed(list(enumerate(value))))
        elif isinstance(value, dict):
            for key, item in reversed(value.items()):
                waiting.append((join_path(at, key), item))
                waiting.append((join_path(at, key), key))


def join_path(path: str, key: str) -> str:
    """The path of a property: `a.b`, or `a['b c']` if the name is no plain word."""
    if _PLAIN_NAME.fullmatch(key):
        return f"{path}.{key}" if path else key
    quoted = key.replace("'", "''")
    return f"{path}['{quoted}']"


def _compile(data: Any, path: str, depth: int, how: _How) -> Compiled:
    if isinstance(data, str):
        return _compile_text(data, path, how)
    if not isinstance(data, dict | list):
        return Constant(data)
    if not depth:
        raise ExpressionError(f"the value is nested more than {MAX_DEPTH} levels deep", path=path)
    if isinstance(data, list):
        return _compile_array(data, path, depth - 1, how)
    return _compile_object(data, path, depth - 1, how)


def _compile_text(text: str, path: str, how: _How) -> Compiled:
    if "@" not in text:
        return Constant(text)
    try:
        template = compile_template(text, lenient=how.lenient, lenient_reads=how.lenient_reads)
    except ExpressionError as error:
        error.path = path
        raise
    if template.is_constant:
        return Constant(template.value)
    evaluate = template.evaluate

    def value(env: Environment) -> Any:
        try:
            return evaluate(env)
        except ExpressionError as error:
            error.path = path
            raise

    return value


def _compile_array(data: list[Any], path: str, depth: int, how: _How) -> Compiled:
    items = [_compile(item, f"{path}[{index}]", depth, how) for index, item in enumerate(data)]
    if all(isinstance(item, Constant) and item.value is was for item, was in zip(items, data, strict=True)):
        return Constant(data)

    def array(env: Environment) -> list[Any]:
        return [item(env) for item in items]

    return array


def _compile_object(data: dict[str, Any], path: str, depth: int, how: _How) -> Compiled:
    items = [
        (_compile_key(key, join_path(path, key), how), _compile(item, join_path(path, key), depth, how))
        for key, item in data.items()
    ]
    if all(
        isinstance(key, Constant) and key.value == name and isinstance(item, Constant) and item.value is data[name]
        for name, (key, item) in zip(data, items, strict=True)
    ):
        return Constant(data)

    def record(env: Environment) -> dict[str, Any]:
        return {key(env): item(env) for key, item in items}

    return record


def _compile_key(key: str, path: str, how: _How) -> Compiled:
    compiled = _compile_text(key, path, how)
    if isinstance(compiled, Constant) and isinstance(compiled.value, str):
        return compiled

    def name(env: Environment) -> str:
        value = compiled(env)
        if isinstance(value, str):
            return value
        raise ExpressionError(f"a key must be a string, not {kind_of(value)}", key, 0, path=path)

    return name
