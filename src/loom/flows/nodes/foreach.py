"""The loop over the elements of an array, one after the other or several at a time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from typing_extensions import override

from loom.expressions import ExpressionError
from loom.expressions.values import kind_of
from loom.flows.operation import Operation
from loom.flows.outcomes import invalid_template
from loom.flows.plain import check_weight
from loom.flows.program import Value
from loom.flows.state import EachState

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.state import Frame, Record
    from loom.flows.walk import Walk

_EVALUATION_FAILED = "ExpressionEvaluationFailed"


@dataclass(frozen=True, slots=True)
class Foreach(Operation):
    """Runs its body for each element. Every iteration runs, unless Loom's rules end the loop at the first failure."""

    items: Value
    width: Value
    loom: bool

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        try:
            items = self.items(walk.env)
            width = self.width(walk.env)
        except ExpressionError as error:
            walk.fail(frame, node, _EVALUATION_FAILED, invalid_template(node, error)["message"])
            return
        if not isinstance(items, list):
            message = (
                f"The execution of '{node.name}' failed: the value to go through is of type '{kind_of(items)}'. "
                "The result must be a valid array."
            )
            walk.fail(frame, node, _EVALUATION_FAILED, message)
            return
        if not isinstance(width, int) or isinstance(width, bool) or width < 1:
            message = f"'concurrency.repetitions' must be an integer of at least 1, not {width!r}."
            walk.fail(frame, node, "InvalidTemplate", message)
            return
        walk.begin(frame, node)
        state = EachState(walk.next_id(), frame.id, node.index, items, width, walk.at)
        self._go_on(walk, state, node)

    def _go_on(self, walk: Walk, state: EachState, node: Node) -> None:
        """Begin as many iterations as may run; the loop is over when none is left."""
        stopped = self.loom and state.failure is not None
        first = state.next
        last = first if stopped else min(len(state.items), first + state.width - state.running)
        if not state.running and first >= last:
            self._end(walk, state, node)
            return
        walk.eaches = walk.eaches.set(state.id, replace(state, next=last, running=state.running + last - first))
        for index in range(first, last):
            frame = walk.frames[state.frame]
            walk.open_iteration(frame, node.blocks[0], state.id, index, state.items[index])

    @override
    def block_ended(self, walk: Walk, inner: Frame, node: Node, status: str, cause: Record | None) -> None:
        """One iteration is over."""
        state = walk.eaches[inner.loop]
        failure = state.failure
        if status != "Succeeded" and (failure is None or inner.index < failure[2]):
            failure = [status, cause.error if cause is not None else None, inner.index]
        self._go_on(
            walk,
            replace(
                state,
                running=state.running - 1,
                failure=failure,
                iterations=state.iterations.set(inner.index, inner.records),
            ),
            node,
        )

    def _end(self, walk: Walk, state: EachState, node: Node) -> None:
        walk.eaches = walk.eaches.delete(state.id) if state.id in walk.eaches else walk.eaches
        body = [walk.program.nodes[index] for index in walk.program.blocks[node.blocks[0]].nodes]
        iterations = [records for _, records in sorted(state.iterations.items())]
        if state.width > 1 and iterations:
            # Iterations side by side end in any order, but the last one is that of the last element.
            walk.merge(walk.frames[state.frame], iterations[-1])
        outputs = [{n.name: r[n.index].outputs for n in body if r[n.index].status != "Skipped"} for r in iterations]
        check_weight(outputs)
        record = walk.record("Succeeded", outputs)
        if state.failure is not None:
            record = self._failed(walk, state, node, outputs)
        repetitions = tuple(iterations) if node.keeps_iterations else ()
        walk.finish(
            walk.frames[state.frame], node, replace(record, iterations=len(iterations), repetitions=repetitions)
        )

    def _failed(self, walk: Walk, state: EachState, node: Node, outputs: list[Any]) -> Record:
        status, error, _ = state.failure
        if not self.loom or error is None:
            reason = f": {error['message']}" if error is not None else ""
            error = {"code": "ActionFailed", "message": f"An iteration of '{node.name}' has ended {status}{reason}"}
            status = status if self.loom else "Failed"
        return walk.record(status, outputs, code=error["code"], error=error)
