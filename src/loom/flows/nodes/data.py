"""Actions that only compute: operations on data, and variables.

Variables belong to the run, and one action on one of them is one indivisible change.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import override

from loom.core.persistent import EMPTY_FIFO
from loom.expressions import ExpressionError
from loom.expressions.calls import call_function
from loom.expressions.errors import FunctionError
from loom.expressions.meter import BOX, CALL, MAX_TEXT, NODE, SLOT
from loom.expressions.value_text import text_of
from loom.expressions.values import is_envelope, is_number, kind_of
from loom.flows.plain import check_weight, plain_result
from loom.flows.program import Operation, Value
from loom.flows.state import Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.flows.program import Node
    from loom.flows.state import Frame
    from loom.flows.walk import Walk


class Compose(Operation, frozen=True):
    """Gives a value a name."""

    value: Value

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        value = self.value(walk.env)
        walk.succeed(frame, node, value, value)


class ParseJson(Operation, frozen=True):
    """Reads JSON text, or takes what is JSON already, and checks it against a schema."""

    content: Value
    check: Callable[[Any], str | None] | None

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        content = self.content(walk.env)
        inputs = {"content": content}
        if content is None:
            walk.fail(frame, node, "InvalidTemplate", "The content to parse is null.", inputs)
            return
        try:
            is_text = isinstance(content, str) or is_envelope(content)
            body = plain_result(call_function("json", content)) if is_text else content
            objection = self.check(body) if self.check is not None else None
        except (FunctionError, ValueError) as error:
            walk.fail(frame, node, "InvalidContent", str(error), inputs)
            return
        if objection is not None:
            walk.fail(frame, node, "ValidationFailed", f"The schema validation failed: {objection}", inputs)
            return
        walk.succeed(frame, node, {"body": body}, inputs)


def _array(walk: Walk, frame: Frame, node: Node, source: Value) -> list[Any] | None:
    """Evaluate the array that a data operation works on. If it is no array, fail the action and return None."""
    items = source(walk.env)
    if isinstance(items, list):
        return items
    message = f"The 'from' property must be an array, and is of type '{kind_of(items)}'."
    walk.fail(frame, node, "ExpressionEvaluationFailed", message, {"from": items})
    return None


class Select(Operation, frozen=True):
    """Makes another array, element by element."""

    source: Value
    select: Value

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        items = _array(walk, frame, node, self.source)
        if items is not None:
            walk.meter.spend(len(items) * node.calls * CALL, len(items) * SLOT)
            made = [self.select(walk.env.with_element(item)) for item in items]
            check_weight(made)
            walk.succeed(frame, node, {"body": made}, {"from": items})


class Query(Operation, frozen=True):
    """Keeps the elements for which a condition holds."""

    source: Value
    where: Value

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        items = _array(walk, frame, node, self.source)
        if items is None:
            return
        kept = []
        walk.meter.spend(len(items) * node.calls * CALL)
        for item in items:
            holds = self.where(walk.env.with_element(item))
            if not isinstance(holds, bool):
                message = f"The 'where' condition must give a boolean, and gave a value of type '{kind_of(holds)}'."
                walk.fail(frame, node, "ExpressionEvaluationFailed", message, {"from": items})
                return
            if holds:
                kept.append(item)
        walk.succeed(frame, node, {"body": kept}, {"from": items})


class Join(Operation, frozen=True):
    """Joins the texts of the elements."""

    source: Value
    separator: Value

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        items = _array(walk, frame, node, self.source)
        if items is not None:
            separator = self.separator(walk.env)
            text = call_function("join", items, text_of(separator)) if walk.meter.counts else _joined(items, separator)
            walk.succeed(frame, node, {"body": text}, {"from": items, "joinWith": separator})


def _joined(items: list[Any], separator: Any) -> str:
    return text_of(separator).join(text_of(item) for item in items)


class Table(Operation, frozen=True):
    """Writes an array as a table, in CSV or HTML."""

    source: Value
    format: Value
    columns: tuple[tuple[Value, Value], ...] | None

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        items = _array(walk, frame, node, self.source)
        if items is None:
            return
        form = text_of(self.format(walk.env)).upper()
        if form not in ("CSV", "HTML"):
            walk.fail(
                frame, node, "InvalidTemplate", f"A table's format is CSV or HTML, not '{form}'.", {"from": items}
            )
            return
        walk.meter.spend(len(items) * node.calls * CALL)
        rows = self._rows(walk, items)
        if rows is None:
            message = "Without 'columns' the elements of a table must be objects."
            walk.fail(frame, node, "ExpressionEvaluationFailed", message, {"from": items})
            return
        cells = sum(map(len, rows))
        size = sum(len(cell) for row in rows for cell in row)
        walk.meter.spend(cells * NODE + 2 * size, 2 * size)
        text = _csv(rows) if form == "CSV" else _html(rows)
        walk.succeed(frame, node, {"body": text}, {"from": items, "format": form})

    def _rows(self, walk: Walk, items: list[Any]) -> list[list[str]] | None:
        """Make the header and the rows, as texts."""
        env = walk.env
        if self.columns is not None:
            header = [text_of(head(env)) for head, _ in self.columns]
            return [header, *([text_of(value(env.with_element(i))) for _, value in self.columns] for i in items)]
        if not all(isinstance(item, dict) for item in items):
            return None
        names = list(dict.fromkeys(name for item in items for name in item))
        # A row for each element, a cell for each name in any of them: a product of two lengths.
        walk.meter.spend(len(items) * len(names) * NODE, len(items) * len(names) * BOX)
        return [names, *([text_of(item.get(name)) for name in names] for item in items)]


def _csv(rows: list[list[str]]) -> str:
    return "\r\n".join(",".join(_csv_cell(cell) for cell in row) for row in rows)


def _csv_cell(cell: str) -> str:
    if any(mark in cell for mark in ',"\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _html(rows: list[list[str]]) -> str:
    from html import escape  # with all names of characters, which few flows need

    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class TimeExpression(Operation, frozen=True):
    """The designer's date and time actions. Each is a call of one function."""

    kind: str
    inputs: Value

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        inputs = self.inputs(walk.env)
        given = {key.lower(): value for key, value in inputs.items()} if isinstance(inputs, dict) else {}
        if self.kind not in _TIME_FUNCTIONS:
            message = f"'{self.kind}' is no kind of an Expression that can be evaluated: {', '.join(_TIME_FUNCTIONS)}."
            walk.fail(frame, node, "InvalidTemplate", message, inputs)
            return
        name, arguments = _TIME_FUNCTIONS[self.kind]
        values = [given.get(argument) for argument in arguments]
        while values and values[-1] is None:
            values.pop()
        try:
            walk.succeed(frame, node, {"body": call_function(name, *values, env=walk.env)}, inputs)
        except (FunctionError, ExpressionError) as error:
            walk.fail(frame, node, "InvalidTemplate", str(error), inputs)


_TIME_FUNCTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "addtotime": ("addToTime", ("basetime", "interval", "timeunit", "formatstring")),
    "subtractfromtime": ("subtractFromTime", ("basetime", "interval", "timeunit", "formatstring")),
    "converttimezone": ("convertTimeZone", ("basetime", "sourcetimezone", "destinationtimezone", "formatstring")),
    "currenttime": ("utcNow", ("formatstring",)),
    "getfuturetime": ("getFutureTime", ("interval", "timeunit", "formatstring")),
    "getpasttime": ("getPastTime", ("interval", "timeunit", "formatstring")),
}


# -- variables ---------------------------------------------------------------------------------------------------------

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
_WRONG_KIND = "InvalidVariableOperation"


def type_of(value: Any) -> str:
    """Find the type of variable that holds such a value; empty for null, which fits several."""
    return next((name for kind, name in _TYPES if isinstance(value, kind)), "")


def _fitting(variable: Variable, value: Any) -> Any:
    """Convert a value to what the variable holds. Raises `FunctionError` if it is of another type."""
    if not variable.type or variable.type not in _KINDS:
        return value
    if not _KINDS[variable.type](value):
        raise FunctionError(
            f"The variable '{variable.name}' is of type '{variable.type.capitalize()}', and the value is of type "
            f"'{kind_of(value)}'."
        )
    return float(value) if variable.type == "float" and isinstance(value, int | Decimal) else value


class VariableSpec(Struct, frozen=True):
    """A variable that an action declares."""

    name: Value
    type: str
    value: Value | None


class InitializeVariables(Operation, frozen=True):
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
                walk.fail(frame, node, _WRONG_KIND, f"The variable '{name}' has been initialized already.")
                return
            variable = Variable(name, spec.type, by=node.index)
            try:
                if existing is not None and existing.preset:
                    value = existing.value
                # Real flows begin variables of any type with null.
                value = _fitting(variable, value) if value is not None else None
            except FunctionError as error:
                walk.fail(frame, node, _WRONG_KIND, str(error))
                return
            changed = changed.set(name.lower(), replace(variable, value=value))
            declared.append({"name": name, "type": spec.type.capitalize(), "value": value})
        walk.variables = changed
        walk.succeed(frame, node, None, {"variables": declared})


def _change(
    walk: Walk, frame: Frame, node: Node, name: str, inputs: Any, change: Callable[[Variable], Variable]
) -> None:
    """Change a variable by a function of its current value, and end the action."""
    variable = walk.variables.get(name.lower())
    if variable is None:
        message = f"The variable '{name}' has not been initialized: it needs an InitializeVariable action before."
        walk.fail(frame, node, "VariableNotFound", message, inputs)
        return
    try:
        changed = change(variable)
    except FunctionError as error:
        walk.fail(frame, node, _WRONG_KIND, str(error), inputs)
        return
    walk.variables = walk.variables.set(name.lower(), changed)
    walk.succeed(frame, node, {"body": {"name": variable.name, "type": variable.type.capitalize()}}, inputs)


def with_value(variable: Variable, value: Any) -> Variable:
    """Give the variable another value. Raises `FunctionError` if that is of another type."""
    return replace(variable, value=_fitting(variable, value), preset=False, appended=EMPTY_FIFO)


class SetVariable(Operation, frozen=True):
    """Gives a variable a value."""

    name: Value
    value: Value
    creates: bool = False
    """True in Loom's dialect: an undeclared variable is created."""

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        name, value = text_of(self.name(walk.env)), self.value(walk.env)
        if self.creates and name.lower() not in walk.variables:
            walk.variables = walk.variables.set(name.lower(), Variable(name, ""))
        _change(walk, frame, node, name, {"name": name, "value": value}, lambda old: with_value(old, value))


class ChangeVariable(Operation, frozen=True):
    """Adds to a number, or subtracts from it."""

    name: Value
    value: Value
    sign: int

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        name, step = text_of(self.name(walk.env)), self.value(walk.env)
        function = "add" if self.sign > 0 else "sub"
        inputs = {"name": name, "value": step}

        def changed(variable: Variable) -> Variable:
            return with_value(variable, plain_result(call_function(function, variable.value, step)))

        _change(walk, frame, node, name, inputs, changed)


class AppendToArray(Operation, frozen=True):
    """Appends an element to an array."""

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


class AppendToString(Operation, frozen=True):
    """Appends text to a text."""

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
            return with_value(variable, text + more)

        _change(walk, frame, node, name, {"name": name, "value": value}, appended)
