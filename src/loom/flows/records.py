"""Records of actions as expressions and people see them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions import ExpressionError
from loom.expressions.dotnet.timestamps import timestamp_text
from loom.expressions.errors import FunctionError
from loom.expressions.values import text_of
from loom.flows.calls import MASK

if TYPE_CHECKING:
    from immutables import Map

    from loom.flows.environment import FlowEnvironment
    from loom.flows.program import Node, Program, Value
    from loom.flows.state import Frame, Record
    from loom.flows.walk import Walk

__all__ = ["MASK", "MAX_TRACKED", "outputs_in", "record_dict", "result_of", "shown_error", "tracked_properties"]

MAX_TRACKED = 8_000
"""The characters that tracked properties may have, as text."""

_TELL_NOTHING = frozenset(
    {
        "ActionBranchingConditionNotSatisfied",
        "ActionDependencyFailed",
        "ActionTimedOut",
        "ActionTypeNotSupported",
    }
)
"""The codes of errors whose messages have nothing of an action's data in them."""


def record_dict(node: Node, record: Record, masked: bool = False) -> dict[str, Any]:
    """An action's record, in the form that `actions()` gives."""
    hide_inputs = masked and node.secure_inputs
    hide_outputs = masked and node.secure_outputs
    shown: dict[str, Any] = {
        "name": node.name,
        "status": record.status,
        "code": record.code or ("OK" if record.status == "Succeeded" else record.status),
        "startTime": timestamp_text(record.started),
        "endTime": timestamp_text(record.ended),
        "trackingId": f"{node.index:08d}",
        "clientTrackingId": "",
        "inputs": MASK if hide_inputs and record.inputs is not None else record.inputs,
        "outputs": MASK if hide_outputs and record.outputs is not None else record.outputs,
    }
    if record.error is not None:
        shown["error"] = shown_error(record.error, hide_inputs or hide_outputs)
    if record.iterations is not None:
        shown["iterations"] = record.iterations
    if record.tracked is not None and not (hide_inputs or hide_outputs):
        shown["trackedProperties"] = record.tracked
    if record.retries:
        shown["retryHistory"] = [
            {**entry, "startTime": timestamp_text(entry["startTime"]), "endTime": timestamp_text(entry["endTime"])}
            for entry in record.retries
        ]
        if hide_inputs or hide_outputs:
            shown["retryHistory"] = MASK
    return shown


def shown_error(error: Any, hidden: bool) -> Any:
    """An error without what it could tell of secure data, if it is about such data."""
    if not hidden or error.get("code") in _TELL_NOTHING:
        return error
    return {"code": error.get("code", ""), "message": MASK}


def result_of(walk: Walk, scope: Frame, node: Node, record: Record) -> list[Any]:
    """What `result('Scope')` gives: a scope's actions one by one, a loop's each with all of its iterations."""
    nodes = walk.program.nodes
    inside = [nodes[index] for block in node.blocks for index in walk.program.blocks[block].nodes]
    if node.keeps_iterations:
        return [
            {"name": n.name, "outputs": [record_dict(n, r[n.index]) for r in record.repetitions if n.index in r]}
            for n in inside
        ]
    return [record_dict(n, scope.records[n.index]) for n in inside if n.index in scope.records]


def outputs_in(program: Program, block: int, records: Map[int, Record]) -> dict[str, Any]:
    """The outputs of a block's actions by their names, from the records of an iteration that has ended."""
    nodes = program.nodes
    return {
        nodes[index].name: records[index].outputs
        for index in program.blocks[block].nodes
        if records[index].status != "Skipped"
    }


def tracked_properties(properties: Value, env: FlowEnvironment) -> Any:
    """What an author wants to find an action by. If it cannot be had, that is said in its place."""
    try:
        tracked = properties(env)
        if len(text_of(tracked)) > MAX_TRACKED:
            return {"error": f"The tracked properties have more than {MAX_TRACKED:,} characters."}
    except (ExpressionError, FunctionError) as error:
        return {"error": str(error)}
    return tracked
