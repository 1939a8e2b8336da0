"""Containers that are no loops: scope, parallel, if, switch, retry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from typing_extensions import override

from loom.expressions.values import kind_of
from loom.flows.outcomes import outputs_in
from loom.flows.program import Operation, Value

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.state import Frame, Record
    from loom.flows.walk import Walk


def _end_container(
    walk: Walk, inner: Frame, node: Node, status: str, cause: Record | None, outputs: Any = None
) -> None:
    """End a container with the status of its block, and the error of the action that failed in it."""
    error = code = None
    if status != "Succeeded":
        code = "ActionFailed" if status == "Failed" else "ActionTimedOut"
        reason = f": {cause.error['message']}" if cause is not None and cause.error is not None else ""
        error = {"code": code, "message": f"An action in '{node.name}' has ended {status}{reason}"}
    record = walk.record(status, outputs, code=code or "", error=error)
    walk.finish(walk.frames[inner.parent], node, replace(record, unfinished=walk.left_by(inner, status)))


class Scope(Operation, frozen=True):
    """A group of actions."""

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        walk.open_block(walk.begin(frame, node), node.blocks[0])

    @override
    def block_ended(self, walk: Walk, inner: Frame, node: Node, status: str, cause: Record | None) -> None:
        _end_container(walk, inner, node, status, cause)


class Parallel(Operation, frozen=True):
    """Branches that start at once; their outputs by name are its own."""

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        walk.open_block(walk.begin(frame, node), node.blocks[0])

    @override
    def block_ended(self, walk: Walk, inner: Frame, node: Node, status: str, cause: Record | None) -> None:
        _end_container(walk, inner, node, status, cause, outputs_by_name(walk, inner))


class If(Operation, frozen=True):
    """Takes one branch or the other."""

    condition: Value

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        holds = self.condition(walk.env)
        if not isinstance(holds, bool):
            message = f"The condition must give a boolean, and gave a value of type '{kind_of(holds)}'."
            walk.fail(frame, node, "ExpressionEvaluationFailed", message)
            return
        taken, other = node.blocks if holds else node.blocks[::-1]
        frame = walk.begin(frame, node, {"expressionResult": holds})
        walk.skip_block(frame, other)
        walk.open_block(walk.frames[frame.id], taken)

    @override
    def block_ended(self, walk: Walk, inner: Frame, node: Node, status: str, cause: Record | None) -> None:
        _end_container(walk, inner, node, status, cause)


class Switch(Operation, frozen=True):
    """Takes the branch whose literal is the value, else the default one."""

    on: Value
    cases: tuple[Any, ...]
    has_default: bool
    single: tuple[bool, ...]
    """For each case, whether it is one action, whose outputs are the switch's."""

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        value = self.on(walk.env)
        chosen = next((n for n, case in enumerate(self.cases) if _same(case, value)), len(self.cases))
        frame = walk.begin(frame, node, {"expressionResult": value})
        for position, block in enumerate(node.blocks):
            if position != chosen:
                walk.skip_block(frame, block)
        if chosen < len(node.blocks):
            walk.open_block(walk.frames[frame.id], node.blocks[chosen])
        else:
            walk.finish(frame, node, walk.record("Succeeded"))

    @override
    def block_ended(self, walk: Walk, inner: Frame, node: Node, status: str, cause: Record | None) -> None:
        position = node.blocks.index(inner.block)
        outputs = None
        if position < len(self.single) and self.single[position]:
            outputs = next(iter(outputs_by_name(walk, inner).values()), None)
        _end_container(walk, inner, node, status, cause, outputs)


def _same(case: Any, value: Any) -> bool:
    """Compare a case exactly: the text "2" is not the number 2, and a boolean is no number."""
    return type(case) is type(value) and bool(case == value)


class Retry(Operation, frozen=True):
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


def outputs_by_name(walk: Walk, inner: Frame) -> dict[str, object]:
    """Collect the outputs of a block's actions that have run, by name."""
    records = inner.records if inner.scope == inner.id else walk.frames[inner.scope].records
    return outputs_in(walk.program, inner.block, records)
