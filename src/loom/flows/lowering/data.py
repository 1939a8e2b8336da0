"""Operations on data: compose, parseJson, select, query, join, table and the inline kinds of time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions import compile_template
from loom.flows.diagnostics import at
from loom.flows.lowering.context import Action, Lowered, Lowering
from loom.flows.lowering.sources import Located
from loom.flows.nodes.data import Compose, Join, ParseJson, Query, Select, Table, TimeExpression
from loom.flows.schema_checks import path_problem, schema_check, unusable

if TYPE_CHECKING:
    from loom.flows.program import Value
    from loom.flows.schema_checks import SchemaCheck

TIME_KINDS = ("AddToTime", "SubtractFromTime", "ConvertTimeZone", "CurrentTime", "GetFutureTime", "GetPastTime")


def compose(action: Action) -> Lowered:
    """`inputs` is the value."""
    return Lowered(Compose(value=action.value(action.source.top("inputs"))))


def parse_json(action: Action) -> Lowered:
    """`content` and, if wanted, the `schema` that it must keep to."""
    content = action.required("content", found=action.source.input("content"))
    schema = action.source.input("schema")
    return Lowered(ParseJson(content=action.value(content), check=_check(action, schema)))


def _check(action: Action, schema: Located | None) -> SchemaCheck | None:
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
    """Plain data in which the escapes of template strings are resolved; expressions stay as they are written."""
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


def select(action: Action) -> Lowered:
    """`select` of each element of `from`."""
    return Lowered(Select(source=_from(action), select=_field(action, "select")))


def query(action: Action) -> Lowered:
    """The elements of `from` for which `where` holds."""
    return Lowered(Query(source=_from(action), where=_field(action, "where")))


def join(action: Action) -> Lowered:
    """The elements of `from`, joined by `joinWith`."""
    separator = action.value(action.source.input("joinWith"), default="")
    return Lowered(Join(source=_from(action), separator=separator))


def table(action: Action) -> Lowered:
    """The elements of `from` as CSV or HTML."""
    columns = action.source.input("columns")
    return Lowered(Table(source=_from(action), format=_field(action, "format"), columns=_columns(action, columns)))


def _columns(action: Action, part: Located | None) -> tuple[tuple[Value, Value], ...] | None:
    if part is None or not part.value:
        return None
    if not isinstance(part.value, list) or not all(isinstance(item, dict) for item in part.value):
        action.low.problems.error(part.path, "the columns must be an array of objects with 'header' and 'value'")
        return None
    columns = [Located(item, at(part.path, index)) for index, item in enumerate(part.value)]
    return tuple((action.value(column.child("header"), ""), action.value(column.child("value"))) for column in columns)


def expression(action: Action) -> Lowered:
    """One of the kinds that work out a time."""
    kind = action.source.data.get("kind")
    known = {name.lower() for name in TIME_KINDS}
    if not isinstance(kind, str) or kind.lower() not in known:
        hint = action.low.problems.near(str(kind), TIME_KINDS)
        message = f"an Expression's kind is one of {', '.join(TIME_KINDS)}"
        action.low.problems.warn(at(action.source.path, "kind"), message, hint)
    name = kind.lower() if isinstance(kind, str) else ""
    return Lowered(TimeExpression(kind=name, inputs=action.value(action.source.inputs())))


def _from(action: Action) -> Value:
    return _field(action, "from")


def _field(action: Action, key: str) -> Value:
    return action.value(action.required(key, found=action.source.input(key)))
