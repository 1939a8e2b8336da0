"""Actions on variables. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.flows.diagnostics import at
from loom.flows.lowering.context import Action, Lowered, constant
from loom.flows.lowering.sources import Located
from loom.flows.nodes.variables import (
    AppendToArray,
    AppendToString,
    ChangeVariable,
    InitializeVariables,
    SetVariable,
    VariableSpec,
)

if TYPE_CHECKING:
    from loom.flows.program import Value

VARIABLE_TYPES = ("Boolean", "Integer", "Float", "String", "Array", "Object")
LOOP_VARIABLES = ("loopIndex", "loopCount", "loopResult", "loopStartTime")
"""What every loop of Loom's sets for its body and its condition; an outer loop's as `<loop>_loopIndex` and so on."""

_RESERVED = {name.lower() for name in LOOP_VARIABLES}
_KNOWN = {name.lower() for name in VARIABLE_TYPES}


def initialize(action: Action) -> Lowered:
    """One or several variables with their types and first values."""
    if action.place.owner >= 0:
        message = "a variable is initialised inside a container; it belongs to the whole run all the same"
        action.low.problems.warn(action.source.path, message)
    specs = [spec for part in _variables(action) if (spec := _spec(action, part)) is not None]
    return Lowered(InitializeVariables(variables=tuple(specs)))


def _variables(action: Action) -> list[Located]:
    part = action.source.input("variables")
    if part is None and action.loom and (single := action.source.top("inputs")) is not None:
        return [single]
    if action.required("variables", found=part) is None or part is None:
        return []
    if not isinstance(part.value, list):
        action.low.problems.error(part.path, "the variables must be an array of objects with 'name' and 'type'")
        return []
    return [Located(item, at(part.path, index)) for index, item in enumerate(part.value)]


def _spec(action: Action, part: Located) -> VariableSpec | None:
    name, kind = part.child("name"), part.child("type")
    if name is not None:
        _declare(action, name)
    if name is None or kind is None:
        action.low.problems.error(part.path, f"a variable needs '{'name' if name is None else 'type'}'")
        return None
    return VariableSpec(
        name=action.value(name),
        type=_type(action, kind),
        value=action.value(value) if (value := part.child("value")) is not None else None,
    )


def _declare(action: Action, name: Located) -> None:
    if not isinstance(name.value, str):
        return
    action.low.assigned.append((action.index, name))
    if "@" in name.value:
        return
    _refuse_reserved(action, name)
    action.low.variables[name.value.lower()] = name.value


def _refuse_reserved(action: Action, name: Located) -> None:
    key = name.value.lower()
    if action.loom and (key in _RESERVED or key.endswith(tuple(f"_{one}" for one in _RESERVED))):
        message = f"'{name.value}' is set by the loops themselves, so no variable may have this name"
        action.low.problems.error(name.path, message)


def _type(action: Action, part: Located) -> str:
    kind: Any = part.value
    if isinstance(kind, str) and kind.lower() in _KNOWN:
        return kind.lower()
    message = f"{kind!r} is no type of a variable: {', '.join(VARIABLE_TYPES)}"
    action.low.problems.error(part.path, message, action.low.problems.near(str(kind), VARIABLE_TYPES))
    return "object"


def set_variable(action: Action) -> Lowered:
    """Another value for a variable; in Loom's dialect its first one, if nobody has declared it."""
    part = action.source.input("name")
    if action.loom and part is not None and isinstance(part.value, str) and "@" not in part.value:
        _refuse_reserved(action, part)
        action.low.variables.setdefault(part.value.lower(), part.value)
    return Lowered(SetVariable(name=_name(action), value=_value(action), creates=action.loom))


def increment(action: Action) -> Lowered:
    """Add to a number, 1 by default."""
    return Lowered(ChangeVariable(name=_name(action), value=_step(action), sign=1))


def decrement(action: Action) -> Lowered:
    """Take from a number, 1 by default."""
    return Lowered(ChangeVariable(name=_name(action), value=_step(action), sign=-1))


def append_to_array(action: Action) -> Lowered:
    """One more element."""
    return Lowered(AppendToArray(name=_name(action), value=_value(action)))


def append_to_string(action: Action) -> Lowered:
    """More text."""
    return Lowered(AppendToString(name=_name(action), value=_value(action)))


def _name(action: Action) -> Value:
    part = action.required("name", found=action.source.input("name"))
    if part is not None and isinstance(part.value, str):
        action.low.assigned.append((action.index, part))
    return action.value(part)


def _value(action: Action) -> Value:
    return action.value(action.source.input("value"))


def _step(action: Action) -> Value:
    part = action.source.input("value")
    return constant(1) if part is None or part.value is None else action.value(part)
