"""Ending the run, and answering its caller. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from loom.core.planner import Publish
from loom.core.records import EventRecord
from loom.expressions.values import text_of
from loom.flows.calls import RESPONSE_KIND, FlowResponse
from loom.flows.ending import end_flow
from loom.flows.operation import Operation
from loom.flows.program import Value
from loom.flows.records import MASK

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.state import Frame
    from loom.flows.walk import Walk

_STATUSES = {"succeeded": "Succeeded", "failed": "Failed", "cancelled": "Cancelled"}


@dataclass(frozen=True, slots=True)
class Terminate(Operation):
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


@dataclass(frozen=True, slots=True)
class Response(Operation):
    """Answers whoever has started the run. A run answers once."""

    status_code: Value
    headers: Value
    body: Value

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
