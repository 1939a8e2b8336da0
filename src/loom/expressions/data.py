"""Whole JSON values whose strings and keys are templates. Pure.

What has no expression in it is the same object again and costs nothing. May import `compile` and what it may import.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.expressions.calls import Compiled, Constant
from loom.expressions.compile import compile_template
from loom.expressions.errors import ExpressionError
from loom.expressions.limits import MAX_DEPTH
from loom.expressions.values import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom.expressions.environment import Environment

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
