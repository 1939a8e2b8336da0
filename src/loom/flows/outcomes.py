"""Ends of actions, blocks and flows: their records, the rule of the leaves, and the flow's result.

Records have the form that `actions()` gives. People see them masked, expressions do not.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from loom.core.planner import Complete
from loom.core.records import EventRecord, Failure
from loom.core.run import bear
from loom.expressions import ExpressionError
from loom.expressions.dotnet.timestamps import timestamp_text
from loom.expressions.errors import FunctionError, SettingNotNamed
from loom.expressions.value_text import text_of
from loom.flows.beside import SETTING_NOT_NAMED
from loom.flows.calls import END_KIND, MASK, FlowEnd
from loom.flows.state import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.core.persistent import Map
    from loom.flows.environment import FlowEnvironment
    from loom.flows.program import Block, Node, Program, Value
    from loom.flows.state import Frame
    from loom.flows.walk import Walk


STEP = 512
"""Units that the driver's patience is charged for each action that the walk enters, whatever its templates cost."""
OVER_BUDGET = "ActionBudgetExceeded"
"""The code of an action that costs more than an action may."""

_MAX_TRACKED = 8_000
"""Most characters of tracked properties, as text."""

_TELL_NOTHING = frozenset(
    {
        "ActionBranchingConditionNotSatisfied",
        "ActionDependencyFailed",
        "ActionTimedOut",
        SETTING_NOT_NAMED,
        "ActionTypeNotSupported",
        "LoopTimedOut",
    }
)
"""Codes of errors whose messages contain no data of an action."""


def record_dict(node: Node, record: Record, masked: bool = False) -> dict[str, Any]:
    """Give an action's record in the form of `actions()`. `masked` hides secure data."""
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
        shown["error"] = _shown_error(record.error, hide_inputs or hide_outputs)
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


def _shown_error(error: Any, hidden: bool) -> Any:
    """Mask an error's message if it may contain secure data."""
    if not hidden or error.get("code") in _TELL_NOTHING:
        return error
    return {"code": error.get("code", ""), "message": MASK}


def result_of(walk: Walk, scope: Frame, node: Node, record: Record) -> list[Any]:
    """Give `result('Scope')`: the actions of a scope, or those in a loop, each with all of its iterations."""
    nodes = walk.program.nodes
    inside = [nodes[index] for block in node.blocks for index in walk.program.blocks[block].nodes]
    if node.keeps_iterations:
        return [
            {"name": n.name, "outputs": [record_dict(n, r[n.index]) for r in record.repetitions if n.index in r]}
            for n in inside
        ]
    return [record_dict(n, scope.records[n.index]) for n in inside if n.index in scope.records]


def outputs_in(program: Program, block: int, records: Map[int, Record]) -> dict[str, Any]:
    """Collect the outputs of a block's actions by name, from the records of an iteration that has ended."""
    nodes = program.nodes
    return {
        nodes[index].name: records[index].outputs
        for index in program.blocks[block].nodes
        if records[index].status != "Skipped"
    }


def tracked_properties(properties: Value, env: FlowEnvironment) -> Any:
    """Evaluate the properties by which an author finds an action. An error takes their place."""
    try:
        tracked = properties(env)
        if len(text_of(tracked)) > _MAX_TRACKED:
            return {"error": f"The tracked properties have more than {_MAX_TRACKED:,} characters."}
    except (ExpressionError, FunctionError) as error:
        return {"error": str(error)}
    return tracked


# -- ends of actions and blocks ----------------------------------------------------------------------------------------

_DEPENDENCY_FAILED = (
    "ActionDependencyFailed",
    "The execution of this action was skipped: an action that it runs after did not end as its 'runAfter' asks for.",
)
BRANCH_NOT_TAKEN = (
    "ActionBranchingConditionNotSatisfied",
    "The execution of this action was skipped: the branch that it is in was not taken.",
)


@lru_cache(maxsize=8)
def skipped(at: float, code: str = _DEPENDENCY_FAILED[0], message: str = _DEPENDENCY_FAILED[1]) -> Record:
    """Make the record of a skipped action."""
    return Record("Skipped", None, None, "ActionSkipped", {"code": code, "message": message}, at, at)


def invalid_template(node: Node, error: ExpressionError | FunctionError, code: str) -> dict[str, Any]:
    """Make the error of an action whose template cannot be evaluated, with action, path and reason."""
    path = getattr(error, "path", "")
    where = f"{node.path}.{path}" if path else node.path
    if isinstance(error.__cause__, SettingNotNamed):  # it has nothing of the inputs, and only its author can help
        return {"code": SETTING_NOT_NAMED, "message": f"Action '{node.name}', {where}: {error.__cause__}"}
    if node.secure_inputs:
        return {
            "code": code,
            "message": f"Action '{node.name}', {where}: the template cannot be evaluated.",
        }
    return {"code": code, "message": f"Action '{node.name}', {where}: {error}"}


def block_outcome(program: Program, block: Block, records: Map[int, Record]) -> tuple[str, Record | None]:
    """Find the status of a block, and the record that made it fail (None: it succeeded).

    The rule of the leaves: take the actions that no action runs after. Replace a skipped one by the actions before it,
    again and again. The block is Failed if one of them failed, else TimedOut if one did, else Succeeded.
    """
    for leaf in block.leaves:
        if records[leaf].status != "Succeeded":
            break
    else:
        return "Succeeded", None
    seen = set(block.leaves)
    pending = list(block.leaves)
    timed_out: Record | None = None
    failed: list[int] = []
    while pending:
        index = pending.pop()
        record = records[index]
        status = record.status
        if status == "Succeeded":
            continue
        if status == "Skipped":
            before = [b for b, _ in program.nodes[index].after if b not in seen]
            seen.update(before)
            pending += before
        elif status == "TimedOut":
            timed_out = timed_out or record
        else:
            failed.append(index)
    if failed:
        return "Failed", records[min(failed)]
    return ("TimedOut", timed_out) if timed_out is not None else ("Succeeded", None)


def told_cause(program: Program, block: Block, records: Map[int, Record], cause: Record | None) -> Record | None:
    """Mask the error of the record that made a block fail if it is secure, before the block's owner repeats it."""
    if cause is None or cause.error is None:
        return cause
    culprit = next((program.nodes[index] for index in block.nodes if records.get(index) is cause), None)
    hidden = culprit is not None and (culprit.secure_inputs or culprit.secure_outputs)
    return replace(cause, error=_shown_error(cause.error, hidden))


def without_unfinished(records: Map[int, Record]) -> Map[int, Record]:
    """Strip the records of an iteration for the view from outside; a retry goes on in the iteration's own."""
    bare = {index: replace(record, unfinished=None) for index, record in records.items() if record.unfinished}
    return records.update(bare) if bare else records


def forgotten(program: Program, records: Map[int, Record], indexes: Iterable[int]) -> tuple[Map[int, Record], bool]:
    """Remove records of actions that will run again. Also tell whether one of them had answered the caller."""
    had_answered = False
    for index in indexes:
        record = records.get(index)
        if record is not None:
            had_answered = had_answered or (program.nodes[index].type == "response" and record.status == "Succeeded")
            records = records.delete(index)
    return records, had_answered


# -- the end of the flow -----------------------------------------------------------------------------------------------

_RunEnd = Literal["completed", "failed", "cancelled"]
_ENDS: dict[str, _RunEnd] = {"Succeeded": "completed", "Cancelled": "cancelled"}


def end_flow(walk: Walk, status: str, cause: Record | None, error: Any = None) -> None:
    """End the run. With a status other than Succeeded and Cancelled it has failed, but has a result."""
    walk.ended = True
    if cause is not None and error is None:
        error = cause.error or {"code": cause.code, "message": f"An action has ended {cause.status}."}
    outputs: dict[str, Any] = {}
    if status == "Succeeded":
        outputs, problem = _outputs(walk)
        if problem is not None:
            status, error = "Failed", problem
    culprit, hidden = _culprit(walk, cause)
    shown = _shown_error(error, hidden) if error is not None else None
    run_end = _ENDS.get(status, "failed")
    text = _traceback(walk, cause) if run_end == "failed" and not hidden else ""
    walk.last_traceback = None  # the end has it
    end = FlowEnd(status, outputs, walk.response, _actions(walk), _variables(walk), shown, text)
    failure = None
    if run_end == "failed":
        failure = Failure("FlowFailed", f"{status}: {shown['message']}" if shown else status, traceback=text)
    walk.intents.append(Complete(EventRecord(END_KIND, end), run_end, culprit, failure))


def _traceback(walk: Walk, cause: Record | None) -> str:
    """Find the traceback of the failure: that of the culprit, or of an action inside it; else empty."""
    newest = walk.last_traceback
    if newest is None or cause is None:
        return ""
    for node in walk.program.nodes:
        if walk.frames[1].records.get(node.index) is cause:
            return newest.text if newest.item == node.index or newest.item in node.descendants else ""
    return ""


def _outputs(walk: Walk) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Evaluate the flow's outputs; return them, and the error of one that fails."""
    values: dict[str, Any] = {}
    root = walk.frames[1]
    walk.meter.end()
    for name, value in walk.program.outputs.items():
        walk.env.stand_at_end(root)
        try:
            values[name] = value(walk.env)
        except ExpressionError as error:
            reason = MASK if walk.program.secure_outputs else error
            code = OVER_BUDGET if walk.meter.is_over else "InvalidTemplate"
            return {}, {"code": code, "message": f"outputs.{name}: {reason}"}
    return values, None


def _culprit(walk: Walk, cause: Record | None) -> tuple[str, bool]:
    """Name the action that a failure comes from, and tell whether its error is secure."""
    if cause is None:
        return walk.program.name, False
    for node in walk.program.nodes:
        if walk.frames[1].records.get(node.index) is cause:
            return node.name, node.secure_inputs or node.secure_outputs
    return walk.program.name, False


def _actions(walk: Walk) -> dict[str, dict[str, Any]]:
    """Give the records of all actions at the end, in the order of the document."""
    bear(len(walk.program.nodes) * STEP)
    records = dict(walk.frames[1].records)
    begun = _begun(walk)
    for frame in sorted(walk.frames.values(), key=lambda frame: frame.id):
        records.update(frame.records)
        ended = walk.frames[frame.scope].records
        # Actions under way, or to be tried again, end with the run; records of earlier iterations do not count.
        for index, tries in sorted(frame.tries.items()):
            if index not in ended:
                records[index] = Record("Cancelled", started=tries.first_at, ended=walk.at, retries=tries.history)
        for index, entered in sorted(frame.entered.items()):
            if index not in ended:
                cancelled = Record("Cancelled", inputs=frame.inputs[index], started=entered, ended=walk.at)
                records[index] = replace(cancelled, iterations=begun.get((frame.id, index)))
    never = Record("Skipped", None, None, "ActionSkipped", None, walk.at, walk.at)
    return {node.name: record_dict(node, records.get(node.index, never), masked=True) for node in walk.program.nodes}


def _begun(walk: Walk) -> dict[tuple[int, int], int]:
    """Count the iterations that have begun of each loop under way, by frame and node."""
    running = {frame.loop for frame in walk.frames.values()}
    begun = {(loop.frame, loop.node): loop.iteration + (loop.id in running) for loop in walk.loops.values()}
    return begun | {(each.frame, each.node): each.next for each in walk.eaches.values()}


def _variables(walk: Walk) -> dict[str, Any]:
    secure = walk.program.secure_variables
    found = sorted(walk.variables.items(), key=lambda entry: entry[1].name)
    return {variable.name: MASK if key in secure else variable.whole() for key, variable in found}
