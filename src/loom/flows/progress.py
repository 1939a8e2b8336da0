"""The progress of a flow, for people: loops, actions under way, and the state of each action.

It is made of a run's state alone, so it can be asked of any run at any time. Secure data is masked, and large values
are cut to a preview.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from loom.core.persistent import Map
from loom.expressions.calls import Constant
from loom.expressions.dotnet.timestamps import epoch_seconds
from loom.flows.action_types import type_words
from loom.flows.calls import MASK
from loom.flows.nodes.loops import LIMIT_REACHED, MAX_EXCEEDED, TIMED_OUT, TIMEOUT_AFTER, ConditionLoop
from loom.flows.outcomes import block_outcome, record_dict
from loom.flows.state import EachState, Record, iterations_around

if TYPE_CHECKING:
    from loom.flows.calls import FlowEnd
    from loom.flows.program import Node, Program, Value
    from loom.flows.state import FlowPlan, Frame, LoopState

PREVIEW = 2_000
"""Characters of a value's JSON that are shown. A larger value is cut and becomes a text."""


class LoopProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A loop, under way or over. Times are seconds since 1970, lengths of time are seconds."""

    name: str
    path: str
    """The loop and its iteration within those around it, such as `outer[2]/inner[5]`; iterations count from 0."""
    type: str
    """until, while, doUntil or foreach."""
    status: Literal["running", "complete", "failed", "timeout"]
    """Timeout: time has ended it. One that waits for its next iteration is running, with `next_iteration_at`."""
    condition: str | None
    """As its author wrote it; None for a foreach."""
    condition_result: bool | None
    """Result of the last test; None before the first."""
    iteration: int
    """Number of iterations that have begun; of a foreach, of iterations that are over."""
    max_iterations: int | None
    """The limit; of a foreach, the number of its elements. None: it is over, and the limit is not known any more."""
    timeout: float | None
    start_time: float
    duration: float
    last_result: Any
    """The outputs of the iteration that ended last, by action name."""
    next_iteration_at: float | None
    parent: str | None
    """The path of the iteration that the loop lies in."""


class ActionProgress(msgspec.Struct, frozen=True, kw_only=True):
    """An action under way that is no container: something outside does it, or it waits."""

    name: str
    path: str
    type: str
    status: Literal["running", "waiting", "retrying"]
    since: float
    due: float | None
    """Time at which it goes on; None if that is not known."""
    attempt: int
    """The number of the attempt that runs or comes next, from 1."""
    error: str | None
    """Error of the attempt before; None if there was none."""
    parent: str | None
    max_attempts: int = 1
    """Number of attempts that its policy allows."""
    code: str | None = None
    """The code of the error that the attempt before failed with."""
    failed_at: float | None = None
    """End of the attempt before; None if there was none."""
    attempt_since: float | None = None
    """Start of the attempt under way; None between two attempts."""


class ActionState(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an action so far; of its last repetition, if there are several."""

    name: str
    path: str
    type: str
    status: str
    """Pending, Running, Waiting, or how it ended."""
    code: str | None = None
    inputs: Any = None
    outputs: Any = None
    error: Any = None
    iterations: int | None = None
    started: float | None = None
    ended: float | None = None


class _Position(NamedTuple):
    """A place in the tree of loops."""

    order: tuple[int, ...]
    """The loops around it, by their numbers, then its own."""
    parent: str | None


def loop_progress(program: Program, plan: FlowPlan, at: float) -> list[LoopProgress]:
    """List all loops under way, outer ones first."""
    delays = {wait.frame: wait.due for wait in plan.waits.values() if wait.purpose == "delay"}
    running = {frame.loop for frame in plan.frames.values() if frame.loop >= 0}
    found = []
    for state in (*plan.loops.values(), *plan.eaches.values()):
        position = _position(program, plan, plan.frames[state.frame], state.id)
        if isinstance(state, EachState):
            shown = _each(program, state, position, at)
        else:
            shown = _loop(program, state, position, at, state.id in running, delays.get(state.id))
        found.append((position.order, shown))
    return [shown for _, shown in sorted(found, key=lambda pair: pair[0])]


def _loop(
    program: Program, state: LoopState, position: _Position, at: float, runs: bool, due: float | None
) -> LoopProgress:
    node = program.nodes[state.node]
    begun = min(state.iteration + (1 if runs else 0), state.last_allowed)
    return LoopProgress(
        name=node.name,
        path=_joined(position.parent, f"{node.name}[{max(begun - 1, 0)}]"),
        type=state.type,
        status="running",
        condition=state.condition,
        condition_result=state.condition_result,
        iteration=begun,
        max_iterations=state.last_allowed,
        timeout=state.timeout,
        start_time=state.start_time,
        duration=max(0.0, at - state.start_time),
        last_result=_masked(state.last_result, node.secure_outputs),
        next_iteration_at=due,
        parent=position.parent,
    )


def _each(program: Program, state: EachState, position: _Position, at: float) -> LoopProgress:
    node = program.nodes[state.node]
    done = state.next - state.running - len(state.again) + state.turns
    last = max(state.iterations, default=None)
    return LoopProgress(
        name=node.name,
        path=_joined(position.parent, f"{node.name}[{max(state.next - 1, 0)}]"),
        type="foreach",
        status="running",
        condition=None,
        condition_result=None,
        iteration=done,
        max_iterations=len(state.items),
        timeout=None,
        start_time=state.start_time,
        duration=max(0.0, at - state.start_time),
        last_result=None if last is None else _masked(_outputs(program, node, state, last), node.secure_outputs),
        next_iteration_at=None,
        parent=position.parent,
    )


def _outputs(program: Program, node: Node, state: EachState, index: int) -> dict[str, Any]:
    records = state.iterations[index]
    body = [program.nodes[number] for number in program.blocks[node.blocks[0]].nodes]
    return {
        n.name: records[n.index].outputs for n in body if n.index in records and records[n.index].status != "Skipped"
    }


def action_progress(program: Program, plan: FlowPlan) -> list[ActionProgress]:
    """List all actions under way that are no containers, in the order in which they began."""
    found = []
    for mark, wait in sorted(plan.waits.items()):
        if wait.purpose == "delay":
            continue
        frame, node = plan.frames[wait.frame], program.nodes[wait.node]
        tries = frame.tries.get(wait.node)
        position = _position(program, plan, frame, mark)
        found.append(
            ActionProgress(
                name=node.name,
                path=_joined(position.parent, node.name),
                type=type_words(node.type),
                status=_STATUSES[wait.purpose],
                since=frame.entered.get(wait.node, plan.started) if tries is None else tries.first_at,
                due=wait.due,
                attempt=1 if tries is None else tries.count + 1,
                error=None if tries is None else _last_error(node, tries.history),
                parent=position.parent,
                max_attempts=max_attempts(node),
                code=tries.history[-1].get("code") if tries is not None and tries.history else None,
                failed_at=tries.history[-1].get("endTime") if tries is not None and tries.history else None,
                attempt_since=frame.entered.get(wait.node),
            )
        )
    return found


def max_attempts(node: Node) -> int:
    """Return the number of attempts that an action's policy allows; 1 without a policy."""
    return node.retry.count + 1 if node.retry is not None and node.retry.type != "none" else 1


_STATUSES: dict[str, Literal["running", "waiting", "retrying"]] = {
    "call": "running",
    "wait": "waiting",
    "retry": "retrying",
}


def _last_error(node: Node, history: tuple[Any, ...]) -> str | None:
    error = history[-1].get("error") if history else None
    if error is None:
        return None
    return MASK if node.secure_inputs or node.secure_outputs else str(error.get("message", ""))


def action_list(program: Program, plan: FlowPlan) -> list[ActionState]:
    """List the states of all actions of a flow, in the order of the document."""
    waits = {(wait.frame, wait.node) for wait in plan.waits.values() if wait.purpose in ("wait", "retry")}
    newest: dict[int, tuple[Frame, Record]] = {}
    for number, frame in sorted(plan.frames.items()):
        newest |= {index: (frame, record) for index, record in frame.records.items()}
        begun = {index for index in frame.entered if index not in plan.frames[frame.scope].records}
        asleep = {node for inside, node in waits if inside == number}
        for index in begun | asleep:
            status = "Waiting" if index in asleep else "Running"
            entered = frame.entered.get(index, frame.started)
            newest[index] = (frame, Record(status, None, frame.inputs.get(index), "", None, entered))
    return [_action(program, plan, node, newest.get(node.index)) for node in program.nodes]


def _action(program: Program, plan: FlowPlan, node: Node, found: tuple[Frame, Record] | None) -> ActionState:
    if found is None:
        around = "/".join(program.nodes[loop].name for loop in node.loops)
        return ActionState(
            name=node.name, path=_joined(around or None, node.name), type=type_words(node.type), status="Pending"
        )
    frame, record = found
    return repetition_state(node, _joined(_around(program, plan, frame, node), node.name), record)


def repetition_state(node: Node, path: str, record: Record) -> ActionState:
    """Make the state of one repetition of an action, which the path names."""
    shown = record_dict(node, record, masked=True)
    is_over = record.status not in ("Running", "Waiting")
    return ActionState(
        name=node.name,
        path=path,
        type=type_words(node.type),
        status=record.status,
        code=shown["code"] if is_over else None,
        inputs=preview(shown["inputs"]),
        outputs=preview(shown["outputs"]),
        error=preview(shown.get("error")),
        iterations=record.iterations,
        started=record.started,
        ended=record.ended if is_over else None,
    )


def ended_actions(program: Program, end: FlowEnd) -> list[ActionState]:
    """List the states of all actions of a flow that has ended."""
    return [_ended(program, node, end.actions[node.name]) for node in program.nodes if node.name in end.actions]


def _ended(program: Program, node: Node, record: dict[str, Any]) -> ActionState:
    return ActionState(
        name=node.name,
        path="/".join([*(program.nodes[loop].name for loop in node.loops), node.name]),
        type=type_words(node.type),
        status=record["status"],
        code=record.get("code"),
        inputs=preview(record.get("inputs")),
        outputs=preview(record.get("outputs")),
        error=preview(record.get("error")),
        iterations=record.get("iterations"),
        started=epoch_seconds(record["startTime"]),
        ended=epoch_seconds(record["endTime"]),
    )


# -- loops that are over -----------------------------------------------------------------------------------------------


def ended_loops(program: Program, actions: list[ActionState]) -> list[LoopProgress]:
    """List the loops that are over, by what became of the actions. Condition and limits are those of the document."""
    by_name = {action.name: action for action in actions}
    return [
        _ended_loop(program, node, action, by_name)
        for node in program.nodes
        if (action := by_name.get(node.name)) is not None and action.iterations is not None and action.ended is not None
    ]


def _ended_loop(program: Program, node: Node, action: ActionState, by_name: dict[str, ActionState]) -> LoopProgress:
    loop = node.operation if isinstance(node.operation, ConditionLoop) else None
    iterations = action.iterations or 0
    limit = _limit_that_ended(program, node, action, by_name) if loop is not None else None
    status: Literal["complete", "failed", "timeout"] = "complete" if action.status == "Succeeded" else "failed"
    if limit == "time" or (limit is None and action.status == "TimedOut"):
        status = "timeout"
    most, timeout = (_constant(loop.count), _constant(loop.timeout_s)) if loop is not None else (None, None)
    if limit == "count" or (loop is None and status == "complete"):
        most = iterations
    met = None
    if loop is not None and (limit is not None or (status == "complete" and loop.fails_at_limit)):
        met = loop.negated is (limit is not None)
    began, ended = action.started or 0.0, action.ended or 0.0
    return LoopProgress(
        name=action.name,
        path=action.path,
        type=loop.kind if loop is not None else "foreach",
        status=status,
        condition=loop.text if loop is not None else None,
        condition_result=met,
        iteration=iterations,
        max_iterations=most,
        timeout=timeout,
        start_time=began,
        duration=max(0.0, ended - began),
        last_result=action.outputs,
        next_iteration_at=None,
        parent=action.path.rpartition("/")[0] or None,
    )


def _limit_that_ended(
    program: Program, node: Node, action: ActionState, by_name: dict[str, ActionState]
) -> Literal["count", "time"] | None:
    """Tell which limit has ended a loop; None: another end. Runs under older rules have one code for both."""
    error = action.error if isinstance(action.error, dict) else {}
    code, message = error.get("code"), str(error.get("message", ""))
    if code not in (TIMED_OUT, LIMIT_REACHED, "ActionTimedOut") or _iteration_failed(program, node, by_name):
        return None
    if code == TIMED_OUT or message.startswith(TIMEOUT_AFTER):
        return "time"
    return "count" if message.startswith(MAX_EXCEEDED) else None


def _iteration_failed(program: Program, node: Node, by_name: dict[str, ActionState]) -> bool:
    """Tell whether a loop has its error from its last iteration: a loop in it may have ended by a limit."""
    operation, block = node.operation, program.blocks[node.blocks[0]]
    if isinstance(operation, ConditionLoop) and not operation.loom:
        return False  # such a loop goes on after a failed iteration
    inside = {index: by_name.get(program.nodes[index].name) for index in block.nodes}
    records = {index: Record(found.status) for index, found in inside.items() if found is not None}
    return len(records) == len(block.nodes) and block_outcome(program, block, Map(records))[0] != "Succeeded"


def _constant(value: Value) -> Any:
    """Return the literal that a document has; None for an expression, whose value was known in the run only."""
    return value.value if isinstance(value, Constant) else None


def _around(program: Program, plan: FlowPlan, frame: Frame, node: Node) -> str | None:
    """Name the iterations around an action. Of loops that are over, only the names are known."""
    indexes = [scope.index for scope in reversed(iterations_around(plan.frames, frame))]
    names = [program.nodes[loop].name for loop in node.loops]
    known = [f"{name}[{index}]" for name, index in zip(names, indexes, strict=False)]
    return "/".join([*known, *names[len(known) :]]) or None


def _position(program: Program, plan: FlowPlan, frame: Frame, number: int) -> _Position:
    order, names = [number], []
    for scope in iterations_around(plan.frames, frame):
        order += [scope.index, scope.loop]
        names.append(f"{program.nodes[program.blocks[scope.block].owner].name}[{scope.index}]")
    return _Position(tuple(reversed(order)), "/".join(reversed(names)) or None)


def _joined(parent: str | None, name: str) -> str:
    return f"{parent}/{name}" if parent is not None else name


def _masked(value: Any, secure: bool) -> Any:
    return MASK if secure and value is not None else preview(value)


def preview(value: Any, size: int = PREVIEW) -> Any:
    """Return a value, or the beginning of its JSON if that is long."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value if len(value) <= size else f"{value[:size]}…"
    text = ""
    # Piece by piece: a result of a hundred megabytes need not be written to show its beginning.
    for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(value):
        text += piece
        if len(text) > size:
            return f"{text[:size]}…"
    return value
