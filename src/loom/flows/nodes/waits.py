"""Waiting for time to pass: a timer of the run, which survives crashes and releases. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from loom.expressions.values import is_number
from loom.flows.operation import Operation
from loom.flows.program import Value

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.state import Frame
    from loom.flows.walk import Walk


@dataclass(frozen=True, slots=True)
class Wait(Operation):
    """Waits for some time, or until a moment. What lies in the past is over at once."""

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
