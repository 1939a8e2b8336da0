"""The retry action: another action, tried again by a policy of its own. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace
from typing_extensions import override

from loom.flows.nodes.base import outputs_by_name
from loom.flows.operation import Operation

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.state import Frame, Record
    from loom.flows.walk import Walk


@dataclass(frozen=True, slots=True)
class Retry(Operation):
    """A block of one action, which has the policy. It ends as that action does, with its outputs and its error."""

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        walk.open_block(walk.begin(frame, node), node.blocks[0])

    @override
    def block_ended(self, walk: Walk, inner: Frame, node: Node, status: str, cause: Record | None) -> None:
        outputs = next(iter(outputs_by_name(walk, inner).values()), None)
        error = cause.error if cause is not None else None
        code = cause.code if cause is not None else ""
        record = walk.record(status, outputs, code=code, error=error)
        walk.finish(walk.frames[inner.parent], node, replace(record, unfinished=walk.left_by(inner, status)))
