"""Actions that only work on data: compose, parseJson, select, query, join, table, inline time expressions. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from loom.expressions import ExpressionError
from loom.expressions.errors import FunctionError
from loom.expressions.invoke import call_function
from loom.expressions.limits import BOX, CALL, NODE, SLOT
from loom.expressions.values import is_envelope, kind_of, text_of
from loom.flows.operation import Operation
from loom.flows.plain import check_weight, plain_result
from loom.flows.program import Value

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.state import Frame
    from loom.flows.walk import Walk


@dataclass(frozen=True, slots=True)
class Compose(Operation):
    """Gives a value a name."""

    value: Value

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        value = self.value(walk.env)
        walk.succeed(frame, node, value, value)


@dataclass(frozen=True, slots=True)
class ParseJson(Operation):
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
    """The array that a data operation works on; None if it is none, and the action has failed."""
    items = source(walk.env)
    if isinstance(items, list):
        return items
    message = f"The 'from' property must be an array, and is of type '{kind_of(items)}'."
    walk.fail(frame, node, "ExpressionEvaluationFailed", message, {"from": items})
    return None


@dataclass(frozen=True, slots=True)
class Select(Operation):
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


@dataclass(frozen=True, slots=True)
class Query(Operation):
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


@dataclass(frozen=True, slots=True)
class Join(Operation):
    """Puts the elements' texts together."""

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


@dataclass(frozen=True, slots=True)
class Table(Operation):
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
        """The header and the rows, as texts."""
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
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True, slots=True)
class TimeExpression(Operation):
    """The designer's date and time actions: each is a function call in another dress."""

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
