"""Actions that something outside does: the walk hands them over with their inputs, and takes their outcome. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import override

from loom.core.planner import RunStep
from loom.core.records import EventRecord, Traceback
from loom.flows.calls import ACTOR_STEP, CALL_KIND, ActionCall, ActionOutcome
from loom.flows.operation import Operation
from loom.flows.program import Value
from loom.flows.state import Record

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.state import Frame
    from loom.flows.walk import Walk


class Awaited(NamedTuple):
    """The event that an action waits for, as far as the document tells."""

    event: str | None
    """Its name; None: the run works it out."""
    schema: Any = None
    """What its data must fit, if the document has it word for word."""


@dataclass(frozen=True, slots=True)
class Call(Operation):
    """An HTTP request, an activity, an actor, a connector, …"""

    inputs: Value
    options: tuple[str, ...]
    kind: str
    awaits: Awaited | None = None

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        inputs = self.inputs(walk.env)
        timeout = node.timeout_s(walk.env) if node.timeout_s is not None else None
        frame = walk.begin(frame, node, inputs)
        tries = frame.tries.get(node.index)
        call = ActionCall(
            action=node.name,
            type=node.type,
            inputs=inputs,
            options=self.options,
            kind=self.kind,
            timeout_s=float(timeout) if timeout is not None else None,
            first_at=walk.at if tries is None else tries.first_at,
            attempt=0 if tries is None else tries.count,
            key=f"{walk.run_id}:{node.name}:{frame.id}",
            secure=node.secure_inputs or node.secure_outputs,
        )
        mark = walk.wait("call", frame.id, node.index)
        walk.intents.append(RunStep(_step(node, inputs), EventRecord(CALL_KIND, call), mark))


def _step(node: Node, inputs: Any) -> str:
    """The step that does it. Messages to an actor without an id must not overtake each other."""
    if node.type == "actor" and not (isinstance(inputs, dict) and inputs.get("actorId") is not None):
        return ACTOR_STEP
    return node.name


def called(walk: Walk, frame: Frame, node: Node, outcome: ActionOutcome) -> None:
    """The outcome of a call has come."""
    error = None
    if outcome.status != "Succeeded":
        code = outcome.code or "ActionFailed"
        error = {"code": code, "message": outcome.message or f"The action '{node.name}' has ended {outcome.status}."}
    record = Record(
        outcome.status,
        outcome.outputs,
        None,
        outcome.code,
        error,
        walk.at,
        walk.at,
        error_type=outcome.error_type,
        retry_after=outcome.retry_after_s,
    )
    if outcome.traceback:
        walk.last_traceback = Traceback(node.name, node.index, outcome.traceback)
    elif walk.last_traceback is not None and walk.last_traceback.item == node.index:
        walk.last_traceback = None
    walk.finish(frame, node, record)
