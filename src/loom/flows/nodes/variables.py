"""Variables: they belong to the run, and one action on one of them is one indivisible change. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from typing_extensions import override

from loom.core.persistent import EMPTY_FIFO
from loom.expressions.errors import FunctionError
from loom.expressions.invoke import call_function
from loom.expressions.limits import MAX_TEXT
from loom.expressions.values import is_number, kind_of, text_of
from loom.flows.operation import Operation
from loom.flows.plain import plain_result
from loom.flows.program import Value
from loom.flows.state import Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.flows.program import Node
    from loom.flows.state import Frame
    from loom.flows.walk import Walk

_DEFAULTS: dict[str, Any] = {"boolean": False, "integer": 0, "float": 0.0, "string": "", "array": [], "object": None}
_KINDS: dict[str, Callable[[Any], bool]] = {
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": is_number,
    "string": lambda value: value is None or isinstance(value, str),
    "array": lambda value: value is None or isinstance(value, list),
    "object": lambda value: value is None or isinstance(value, dict),
}
_TYPES = ((bool, "boolean"), (int, "integer"), (float, "float"), (str, "string"), (list, "array"), (dict, "object"))
WRONG_KIND = "InvalidVariableOperation"


def type_of(value: Any) -> str:
    """The type of variable that holds such a value; empty for null, which fits several."""
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "")


def _fitting(variable: Variable, value: Any) -> Any:
    """The value as the variable holds it. A FunctionError if it is of another kind."""
    if not variable.type or variable.type not in _KINDS:
        return value
    if not _KINDS[variable.type](value):
        raise FunctionError(
            f"The variable '{variable.name}' is of type '{variable.type.capitalize()}', and the value is of type "
            f"'{kind_of(value)}'."
        )
    return float(value) if variable.type == "float" and isinstance(value, int | Decimal) else value


@dataclass(frozen=True, slots=True)
class VariableSpec:
    """A variable that an action declares."""

    name: Value
    type: str
    value: Value | None


@dataclass(frozen=True, slots=True)
class InitializeVariables(Operation):
    """Declares variables and gives them their first values."""

    variables: tuple[VariableSpec, ...]

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        declared = []
        changed = walk.variables
        for spec in self.variables:
            name = text_of(spec.name(walk.env))
            existing = changed.get(name.lower())
            value = spec.value(walk.env) if spec.value is not None else _DEFAULTS.get(spec.type)
            is_taken = existing is not None and not existing.preset and existing.by != node.index
            if is_taken and not frame.depth:
                walk.fail(frame, node, WRONG_KIND, f"The variable '{name}' has been initialized already.")
                return
            variable = Variable(name, spec.type, by=node.index)
            try:
                if existing is not None and existing.preset:
                    value = existing.value
                # Real flows begin variables of any type with null.
                value = _fitting(variable, value) if value is not None else None
            except FunctionError as error:
                walk.fail(frame, node, WRONG_KIND, str(error))
                return
            changed = changed.set(name.lower(), replace(variable, value=value))
            declared.append({"name": name, "type": spec.type.capitalize(), "value": value})
        walk.variables = changed
        walk.succeed(frame, node, None, {"variables": declared})


def _change(
    walk: Walk, frame: Frame, node: Node, name: str, inputs: Any, change: Callable[[Variable], Variable]
) -> None:
    """Give a variable another value, made from what it is now."""
    variable = walk.variables.get(name.lower())
    if variable is None:
        message = f"The variable '{name}' has not been initialized: it needs an InitializeVariable action before."
        walk.fail(frame, node, "VariableNotFound", message, inputs)
        return
    try:
        changed = change(variable)
    except FunctionError as error:
        walk.fail(frame, node, WRONG_KIND, str(error), inputs)
        return
    walk.variables = walk.variables.set(name.lower(), changed)
    walk.succeed(frame, node, {"body": {"name": variable.name, "type": variable.type.capitalize()}}, inputs)


def _with(variable: Variable, value: Any) -> Variable:
    """The variable with another value; a FunctionError if that is of another kind."""
    return replace(variable, value=_fitting(variable, value), preset=False, appended=EMPTY_FIFO)


@dataclass(frozen=True, slots=True)
class SetVariable(Operation):
    """Gives a variable a value."""

    name: Value
    value: Value
    creates: bool = False
    """In Loom's dialect a variable that nobody has declared begins here."""

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        name, value = text_of(self.name(walk.env)), self.value(walk.env)
        if self.creates and name.lower() not in walk.variables:
            walk.variables = walk.variables.set(name.lower(), Variable(name, ""))
        _change(walk, frame, node, name, {"name": name, "value": value}, lambda old: _with(old, value))


@dataclass(frozen=True, slots=True)
class ChangeVariable(Operation):
    """Adds to a number, or takes from it."""

    name: Value
    value: Value
    sign: int

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        name, step = text_of(self.name(walk.env)), self.value(walk.env)
        function = "add" if self.sign > 0 else "sub"
        inputs = {"name": name, "value": step}

        def changed(variable: Variable) -> Variable:
            return _with(variable, plain_result(call_function(function, variable.value, step)))

        _change(walk, frame, node, name, inputs, changed)


@dataclass(frozen=True, slots=True)
class AppendToArray(Operation):
    """Puts one more element at the end of an array."""

    name: Value
    value: Value

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        name, value = text_of(self.name(walk.env)), self.value(walk.env)

        def appended(variable: Variable) -> Variable:
            if value is None or isinstance(value, list):
                raise FunctionError(f"A value of type '{kind_of(value)}' cannot be appended to an array.")
            if variable.type not in ("", "array") or not isinstance(variable.value, list | None):
                raise FunctionError(f"The variable '{variable.name}' is no array.")
            return replace(variable, appended=variable.appended.push_back(value), preset=False)

        _change(walk, frame, node, name, {"name": name, "value": value}, appended)


@dataclass(frozen=True, slots=True)
class AppendToString(Operation):
    """Puts more text at the end of a text."""

    name: Value
    value: Value

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        name, value = text_of(self.name(walk.env)), self.value(walk.env)

        def appended(variable: Variable) -> Variable:
            if variable.value is not None and not isinstance(variable.value, str):
                raise FunctionError(f"The variable '{variable.name}' is no text.")
            text, more = variable.value or "", text_of(value)
            if len(text) + len(more) > MAX_TEXT:
                raise FunctionError(f"The variable '{variable.name}' would have more than {MAX_TEXT:,} characters.")
            return _with(variable, text + more)

        _change(walk, frame, node, name, {"name": name, "value": value}, appended)
