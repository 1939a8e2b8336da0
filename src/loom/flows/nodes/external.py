"""Actions that reach beyond the walk: calls, waits, the answer to the caller, and the end of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import override

from loom.core.planner import Publish, RunStep
from loom.core.records import EventRecord, Traceback
from loom.expressions.value_text import text_of
from loom.expressions.values import is_number
from loom.flows.calls import ACTOR_STEP, CALL_KIND, MASK, RESPONSE_KIND, ActionCall, ActionOutcome, FlowResponse
from loom.flows.outcomes import end_flow
from loom.flows.program import Operation, Value
from loom.flows.state import Record

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.state import Frame
    from loom.flows.walk import Walk


class Awaited(NamedTuple):
    """The event that an action waits for, as far as the document tells."""

    event: str | None
    """Name of the event; None: an expression gives it in the run."""
    schema: Any = None
    """JSON Schema for its data, if the document has it without expressions; else None."""


class ExternalCall(Operation, frozen=True):
    """An action that the effects do: an HTTP request, an activity, an actor, a connector, …"""

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
    """Choose the step that does it. Messages to an actor without an id must not overtake each other."""
    if node.type == "actor" and not (isinstance(inputs, dict) and inputs.get("actorId") is not None):
        return ACTOR_STEP
    return node.name


def called(walk: Walk, frame: Frame, node: Node, outcome: ActionOutcome) -> None:
    """Finish an action with the outcome of its call."""
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


class Wait(Operation, frozen=True):
    """Waits for some time, or until a moment, by a timer of the run. A moment in the past is over at once."""

    delay_s: Value | None
    until: Value | None

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        value: Any = self.delay_s(walk.env) if self.delay_s is not None else None
        if value is None and self.until is not None:
            moment = self.until(walk.env)
            value = moment - walk.at if is_number(moment) else None
        if not is_number(value):
            walk.fail(frame, node, "InvalidTemplate", "A wait needs 'interval' or 'until', and has neither.")
            return
        due = walk.at + max(0.0, float(value))
        if due <= walk.at:
            walk.succeed(frame, node, None)
            return
        walk.begin(frame, node, None, "Waiting")
        walk.wait("wait", frame.id, node.index, due)


_STATUSES = {"succeeded": "Succeeded", "failed": "Failed", "cancelled": "Cancelled"}


class Terminate(Operation, frozen=True):
    """Ends the run at once with a status."""

    status: Value
    code: Value
    message: Value

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        wanted = text_of(self.status(walk.env))
        status = _STATUSES.get(wanted.lower())
        if status is None:
            message = f"'runStatus' is Succeeded, Failed or Cancelled, not '{wanted}'."
            walk.fail(frame, node, "InvalidTemplate", message)
            return
        code, message = text_of(self.code(walk.env)), text_of(self.message(walk.env))
        walk.succeed(frame, node, None, {"runStatus": status})
        error = {"code": code or "Terminated", "message": message or "The run was terminated."}
        if node.secure_inputs:
            error = {"code": "Terminated", "message": MASK}
        end_flow(walk, status, None, None if status == "Succeeded" else error)


class Response(Operation, frozen=True):
    """Answers the caller that started the run. A run answers once."""

    status_code: Value
    headers: Value
    body: Value
    is_asynchronous: bool = False
    """True if the caller gets it later, at an address of its own. To the run that is all one."""

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        env = walk.env
        status_code = self.status_code(env)
        response = {
            "statusCode": status_code if status_code is not None else 200,
            "headers": self.headers(env) or {},
            "body": self.body(env),
        }
        if walk.response is not None:
            walk.fail(frame, node, "ResponseAlreadySent", "The run has answered its caller already.", response)
            return
        walk.response = response
        walk.intents.append(Publish(EventRecord(RESPONSE_KIND, FlowResponse(**_fields(response)))))
        walk.succeed(frame, node, response, response)


def _fields(response: dict[str, object]) -> dict[str, object]:
    return {"status_code": response["statusCode"], "headers": response["headers"], "body": response["body"]}
