"""How a flow ends: its result, as its caller and the run's row see it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from loom.core.patience import bear
from loom.core.planner import Complete
from loom.core.records import EventRecord, Failure
from loom.expressions import ExpressionError
from loom.flows.budget import OVER_BUDGET, STEP
from loom.flows.calls import END_KIND, FlowEnd
from loom.flows.records import MASK, record_dict, shown_error
from loom.flows.state import Record

if TYPE_CHECKING:
    from loom.flows.walk import Walk

RunEnd = Literal["completed", "failed", "cancelled"]
_ENDS: dict[str, RunEnd] = {"Succeeded": "completed", "Cancelled": "cancelled"}


def end_flow(walk: Walk, status: str, cause: Record | None, error: Any = None) -> None:
    """The run is over. With a status other than Succeeded and Cancelled it has failed, but has a result."""
    walk.ended = True
    if cause is not None and error is None:
        error = cause.error or {"code": cause.code, "message": f"An action has ended {cause.status}."}
    outputs: dict[str, Any] = {}
    if status == "Succeeded":
        outputs, problem = _outputs(walk)
        if problem is not None:
            status, error = "Failed", problem
    culprit, hidden = _culprit(walk, cause)
    shown = shown_error(error, hidden) if error is not None else None
    run_end = _ENDS.get(status, "failed")
    text = _traceback(walk, cause) if run_end == "failed" and not hidden else ""
    walk.last_traceback = None  # the end has it
    end = FlowEnd(status, outputs, walk.response, _actions(walk), _variables(walk), shown, text)
    failure = None
    if run_end == "failed":
        failure = Failure("FlowFailed", f"{status}: {shown['message']}" if shown else status, traceback=text)
    walk.intents.append(Complete(EventRecord(END_KIND, end), run_end, culprit, failure))


def _traceback(walk: Walk, cause: Record | None) -> str:
    """Tell where the handler raised that the failure comes from: in the culprit, or in an action inside of it."""
    newest = walk.last_traceback
    if newest is None or cause is None:
        return ""
    for node in walk.program.nodes:
        if walk.frames[1].records.get(node.index) is cause:
            return newest.text if newest.item == node.index or newest.item in node.descendants else ""
    return ""


def _outputs(walk: Walk) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The values of the flow's outputs, or what is wrong with one of them."""
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
    """The name of the action that a failure comes from, and whether it may be told."""
    if cause is None:
        return walk.program.name, False
    for node in walk.program.nodes:
        if walk.frames[1].records.get(node.index) is cause:
            return node.name, node.secure_inputs or node.secure_outputs
    return walk.program.name, False


def _actions(walk: Walk) -> dict[str, dict[str, Any]]:
    """All actions as they stand at the end, in the order of the document."""
    bear(len(walk.program.nodes) * STEP)
    records = dict(walk.frames[1].records)
    begun = _begun(walk)
    for frame in sorted(walk.frames.values(), key=lambda frame: frame.id):
        records.update(frame.records)
        ended = walk.frames[frame.scope].records
        # What was under way when the run ended, or was to be tried again, whatever an earlier iteration has left of it.
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
    """How many iterations have begun of each loop under way, by its frame and its node."""
    running = {frame.loop for frame in walk.frames.values()}
    begun = {(loop.frame, loop.node): loop.iteration + (loop.id in running) for loop in walk.loops.values()}
    return begun | {(each.frame, each.node): each.next for each in walk.eaches.values()}


def _variables(walk: Walk) -> dict[str, Any]:
    secure = walk.program.secure_variables
    found = sorted(walk.variables.items(), key=lambda entry: entry[1].name)
    return {variable.name: MASK if key in secure else variable.whole() for key, variable in found}
