"""Lowering of actions that only compute: operations on data, and variables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions import compile_template
from loom.flows.action_types import is_loop_variable
from loom.flows.diagnostics import at
from loom.flows.lowering.context import ActionDraft, Located, Lowered, Lowering, constant
from loom.flows.nodes.data import (
    AppendToArray,
    AppendToString,
    ChangeVariable,
    Compose,
    InitializeVariables,
    Join,
    ParseJson,
    Query,
    Select,
    SetVariable,
    Table,
    TimeExpression,
    VariableSpec,
)
from loom.flows.schema_checks import path_problem, schema_check, unusable

if TYPE_CHECKING:
    from loom.flows.program import Value
    from loom.flows.schema_checks import SchemaCheck


_TIME_KINDS = ("AddToTime", "SubtractFromTime", "ConvertTimeZone", "CurrentTime", "GetFutureTime", "GetPastTime")


def compose(action: ActionDraft) -> Lowered:
    """Lower a value: all of `inputs`."""
    return Lowered(Compose(value=action.value(action.source.top("inputs"))))


def parse_json(action: ActionDraft) -> Lowered:
    """Lower `content` and the optional `schema` that it must fit."""
    content = action.required("content", found=action.source.input("content"))
    schema = action.source.input("schema")
    return Lowered(ParseJson(content=action.value(content), check=_check(action, schema)))


def _check(action: ActionDraft, schema: Located | None) -> SchemaCheck | None:
    if schema is None or schema.value in ({}, None, ""):
        return None
    check_paths(action.low, schema)
    try:
        return schema_check(literal(schema.value))
    except ValueError as error:
        action.low.problems.warn(schema.path, f"this JSON Schema cannot be used: {error}", "the action will fail")
        return unusable(str(error))


def check_paths(low: Lowering, schema: Located) -> None:
    """Refuse a schema whose paths multiply; in a stored document, warn of it."""
    problem = path_problem(literal(schema.value))
    if problem is None:
        return
    if low.stored:
        low.problems.warn(schema.path, problem, "a check that takes too long fails")
    else:
        low.problems.error(schema.path, problem)


def literal(data: Any) -> Any:
    """Resolve the escapes of template strings in plain data; expressions stay as they are written."""
    if isinstance(data, str):
        return _unescaped(data)
    if isinstance(data, dict):
        return {_unescaped(key): literal(value) for key, value in data.items()}
    if isinstance(data, list):
        return [literal(item) for item in data]
    return data


def _unescaped(text: str) -> str:
    if not text.startswith("@@"):
        return text
    value = compile_template(text).value
    return value if isinstance(value, str) else text


def select(action: ActionDraft) -> Lowered:
    """Lower a `select` for each element of `from`."""
    return Lowered(Select(source=_from(action), select=_field(action, "select")))


def query(action: ActionDraft) -> Lowered:
    """Lower a filter: the elements of `from` for which `where` holds."""
    return Lowered(Query(source=_from(action), where=_field(action, "where")))


def join(action: ActionDraft) -> Lowered:
    """Lower a text: the elements of `from`, joined by `joinWith`."""
    separator = action.value(action.source.input("joinWith"), default="")
    return Lowered(Join(source=_from(action), separator=separator))


def table(action: ActionDraft) -> Lowered:
    """Lower a table: the elements of `from` as CSV or HTML."""
    columns = action.source.input("columns")
    return Lowered(Table(source=_from(action), format=_field(action, "format"), columns=_columns(action, columns)))


def _columns(action: ActionDraft, part: Located | None) -> tuple[tuple[Value, Value], ...] | None:
    if part is None or not part.value:
        return None
    if not isinstance(part.value, list) or not all(isinstance(item, dict) for item in part.value):
        action.low.problems.error(part.path, "the columns must be an array of objects with 'header' and 'value'")
        return None
    columns = [Located(item, at(part.path, index)) for index, item in enumerate(part.value)]
    return tuple((action.value(column.child("header"), ""), action.value(column.child("value"))) for column in columns)


def expression(action: ActionDraft) -> Lowered:
    """Lower one of the kinds that compute a time."""
    kind = action.source.data.get("kind")
    known = {name.lower() for name in _TIME_KINDS}
    if not isinstance(kind, str) or kind.lower() not in known:
        hint = action.low.problems.near(str(kind), _TIME_KINDS)
        message = f"an Expression's kind is one of {', '.join(_TIME_KINDS)}"
        action.low.problems.warn(at(action.source.path, "kind"), message, hint)
    name = kind.lower() if isinstance(kind, str) else ""
    return Lowered(TimeExpression(kind=name, inputs=action.value(action.source.inputs())))


def _from(action: ActionDraft) -> Value:
    return _field(action, "from")


def _field(action: ActionDraft, key: str) -> Value:
    return action.value(action.required(key, found=action.source.input(key)))


# -- variables ---------------------------------------------------------------------------------------------------------

VARIABLE_TYPES = ("Boolean", "Integer", "Float", "String", "Array", "Object")
_VARIABLE_TYPES = {name.lower() for name in VARIABLE_TYPES}


def initialize(action: ActionDraft) -> Lowered:
    """Lower declarations of variables, with their types and first values."""
    if action.place.owner >= 0:
        message = "a variable is initialised inside a container; it belongs to the whole run all the same"
        action.low.problems.warn(action.source.path, message)
    specs = [spec for part in _variables(action) if (spec := _spec(action, part)) is not None]
    return Lowered(InitializeVariables(variables=tuple(specs)))


def _variables(action: ActionDraft) -> list[Located]:
    part = action.source.input("variables")
    if part is None and action.loom and (single := action.source.top("inputs")) is not None:
        return [single]
    if action.required("variables", found=part) is None or part is None:
        return []
    if not isinstance(part.value, list):
        action.low.problems.error(part.path, "the variables must be an array of objects with 'name' and 'type'")
        return []
    return [Located(item, at(part.path, index)) for index, item in enumerate(part.value)]


def _spec(action: ActionDraft, part: Located) -> VariableSpec | None:
    name, kind = part.child("name"), part.child("type")
    if name is not None:
        _declare(action, name)
    if name is None or kind is None:
        action.low.problems.error(part.path, f"a variable needs '{'name' if name is None else 'type'}'")
        return None
    return VariableSpec(
        name=action.value(name),
        type=_variable_type(action, kind),
        value=action.value(value) if (value := part.child("value")) is not None else None,
    )


def _declare(action: ActionDraft, name: Located) -> None:
    if not isinstance(name.value, str):
        return
    action.low.assigned.append((action.index, name))
    if "@" in name.value:
        return
    _refuse_reserved(action, name)
    action.low.variables[name.value.lower()] = name.value


def _refuse_reserved(action: ActionDraft, name: Located) -> None:
    if action.loom and is_loop_variable(name.value):
        message = f"'{name.value}' is set by the loops themselves, so no variable may have this name"
        action.low.problems.error(name.path, message)


def _variable_type(action: ActionDraft, part: Located) -> str:
    kind: Any = part.value
    if isinstance(kind, str) and kind.lower() in _VARIABLE_TYPES:
        return kind.lower()
    message = f"{kind!r} is no type of a variable: {', '.join(VARIABLE_TYPES)}"
    action.low.problems.error(part.path, message, action.low.problems.near(str(kind), VARIABLE_TYPES))
    return "object"


def set_variable(action: ActionDraft) -> Lowered:
    """Lower a new value for a variable. In Loom's dialect it also declares the variable."""
    part = action.source.input("name")
    if action.loom and part is not None and isinstance(part.value, str) and "@" not in part.value:
        _refuse_reserved(action, part)
        action.low.variables.setdefault(part.value.lower(), part.value)
    return Lowered(SetVariable(name=_variable_name(action), value=_variable_value(action), creates=action.loom))


def increment(action: ActionDraft) -> Lowered:
    """Lower an addition to a number, by 1 if the document says nothing."""
    return Lowered(ChangeVariable(name=_variable_name(action), value=_step(action), sign=1))


def decrement(action: ActionDraft) -> Lowered:
    """Lower a subtraction from a number, by 1 if the document says nothing."""
    return Lowered(ChangeVariable(name=_variable_name(action), value=_step(action), sign=-1))


def append_to_array(action: ActionDraft) -> Lowered:
    """Lower an element that is appended to an array."""
    return Lowered(AppendToArray(name=_variable_name(action), value=_variable_value(action)))


def append_to_string(action: ActionDraft) -> Lowered:
    """Lower a text that is appended to a text."""
    return Lowered(AppendToString(name=_variable_name(action), value=_variable_value(action)))


def _variable_name(action: ActionDraft) -> Value:
    part = action.required("name", found=action.source.input("name"))
    if part is not None and isinstance(part.value, str):
        action.low.assigned.append((action.index, part))
    return action.value(part)


def _variable_value(action: ActionDraft) -> Value:
    return action.value(action.source.input("value"))


def _step(action: ActionDraft) -> Value:
    part = action.source.input("value")
    return constant(1) if part is None or part.value is None else action.value(part)
