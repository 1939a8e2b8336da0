"""Conditions: a template, a plain boolean, or a tree of function calls. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions import ExpressionError
from loom.expressions.calls import Place, compile_call
from loom.expressions.functions import find
from loom.expressions.values import kind_of
from loom.flows.diagnostics import at
from loom.flows.lowering.context import constant
from loom.flows.lowering.sources import Located

if TYPE_CHECKING:
    from loom.expressions import Environment
    from loom.flows.lowering.context import Action
    from loom.flows.program import Value

_WORDS = {"true": True, "false": False}
_LOGICAL = frozenset({"and", "or", "not"})


def condition(action: Action, part: Located) -> Value:
    """What an `if` or a loop asks: its value is a boolean, or evaluating it fails."""
    data, path = part
    if isinstance(data, bool):
        return constant(data)
    if isinstance(data, str):
        return _boolean(_text(action, part), action.low.within(path))
    if isinstance(data, dict):
        return _boolean(_tree(action, part), action.low.within(path))
    action.low.problems.error(path, 'a condition is a text or an object such as {"and": [...]}')
    return constant(None)


def condition_text(data: Any) -> str:
    """A condition as people read it: a tree in the notation of expressions."""
    return data if isinstance(data, str) else f"@{_shown(data)}"


def _text(action: Action, part: Located) -> Value:
    word = part.value.strip().lower()
    if action.loom and word in _WORDS:
        return constant(_WORDS[word])
    template = action.low.text(part, lenient=action.loom, lenient_reads=action.loom)
    if template is None:
        return constant(None)
    if template.is_literal:
        hint = "an expression begins with @" if "(" in word else ""
        action.low.problems.warn(part.path, f"the condition {part.value!r} is a text, neither true nor false", hint)
    return template.evaluate


def _boolean(value: Value, path: str) -> Value:
    def evaluate(env: Environment) -> bool:
        try:
            result = value(env)
            if result is True or result is False:
                return result
            raise ExpressionError(f"the condition must be true or false, and is of type '{kind_of(result)}'")
        except ExpressionError as error:
            error.path = error.path or path
            raise

    return evaluate


def _tree(action: Action, part: Located) -> Value:
    """One call: an object whose only key is the function's name."""
    data, path = part
    if len(data) != 1:
        action.low.problems.error(path, f"a condition is one function with its arguments, not {len(data)} keys")
        return constant(None)
    ((name, given),) = data.items()
    inner = Located(given, at(path, name))
    parts = [inner]
    if isinstance(given, list):
        parts = [Located(item, at(inner.path, index)) for index, item in enumerate(given)]
    key = name.strip()
    action.low.refer(inner.path, key, _literal(parts), len(parts))
    arguments = [_argument(action, one, key.lower() in _LOGICAL) for one in parts]
    return compile_call(key, arguments, Place(_shown(data), None, key), forgiving=action.loom)


def _literal(parts: list[Located]) -> str | None:
    first = parts[0].value if parts else None
    return first if isinstance(first, str) and "@" not in first else None


def _argument(action: Action, part: Located, logical: bool) -> Value:
    data = part.value
    if isinstance(data, dict) and len(data) == 1 and (logical or find(next(iter(data)).strip()) is not None):
        return _tree(action, part)
    if isinstance(data, str) and (logical or "@" in data):
        template = action.low.text(part, lenient=action.loom, lenient_reads=action.loom)
        return template.evaluate if template is not None else constant(None)
    return action.value(part)


def _shown(data: Any) -> str:
    if isinstance(data, dict) and len(data) == 1:
        ((name, given),) = data.items()
        parts = given if isinstance(given, list) else [given]
        return f"{name}({', '.join(_shown(part) for part in parts)})"
    if isinstance(data, str):
        return data[1:] if data.startswith("@") and not data.startswith(("@@", "@{")) else f"'{data}'"
    words = {True: "true", False: "false", None: "null"}
    return str(data) if isinstance(data, dict | list | int | float) and not isinstance(data, bool) else words[data]
