"""The loop over the elements of an array, one after the other or several at a time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from immutables import Map
from msgspec.structs import replace
from typing_extensions import override

from loom.core.persistent import EMPTY_MAP
from loom.expressions import ExpressionError
from loom.expressions.values import kind_of
from loom.flows.operation import Operation
from loom.flows.outcomes import invalid_template, skipped, without_unfinished
from loom.flows.plain import check_weight
from loom.flows.program import Value
from loom.flows.records import outputs_in
from loom.flows.retried import reopen
from loom.flows.rules import RETRIES_GO_ON
from loom.flows.state import EachState, Record, Unfinished

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.retried import Resumption
    from loom.flows.state import Frame
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
            walk.fail(frame, node, _EVALUATION_FAILED, invalid_template(node, error, _EVALUATION_FAILED)["message"])
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
        free = 0 if stopped else state.width - state.running
        turns = state.again[state.turns : state.turns + free]
        first = state.next
        last = min(len(state.items), first + free - len(turns))
        running = state.running + len(turns) + last - first
        if not running:
            self._end(walk, state, node)
            return
        state = replace(state, next=last, running=running, turns=state.turns + len(turns))
        walk.eaches = walk.eaches.set(state.id, state)
        if turns:
            reopen(walk, [replace(one, records=state.iterations[one.index], started=walk.at) for one in turns])
        for index in range(first, last):
            frame = walk.frames[state.frame]
            walk.open_iteration(frame, node.blocks[0], state.id, index, state.items[index])

    @override
    def block_ended(self, walk: Walk, inner: Frame, node: Node, status: str, cause: Record | None) -> None:
        """One iteration is over."""
        state = walk.eaches[inner.loop]
        failure, failed = state.failure, state.failed
        if status != "Succeeded":
            if failure is None or inner.index < failure[2]:
                failure = [status, cause.error if cause is not None else None, inner.index]
            if walk.rules >= RETRIES_GO_ON:
                failed = failed.set(inner.index, replace(inner, records=EMPTY_MAP))
        self._go_on(
            walk,
            replace(
                state,
                running=state.running - 1,
                failure=failure,
                failed=failed,
                iterations=state.iterations.set(inner.index, inner.records),
            ),
            node,
        )

    def _end(self, walk: Walk, state: EachState, node: Node) -> None:
        walk.eaches = walk.eaches.delete(state.id) if state.id in walk.eaches else walk.eaches
        iterations = [records for _, records in sorted(state.iterations.items())]
        if state.width > 1 and iterations:
            # Iterations side by side end in any order, but the last one is that of the last element.
            walk.merge(walk.frames[state.frame], without_unfinished(iterations[-1]))
        outputs = [outputs_in(walk.program, node.blocks[0], records) for records in iterations]
        check_weight(outputs)
        record = walk.record("Succeeded", outputs)
        if state.failure is not None:
            record = self._failed(walk, state, node, outputs)
        repetitions = tuple(map(without_unfinished, iterations)) if node.keeps_iterations else ()
        left = _unfinished(state) if state.failed else None
        walk.finish(
            walk.frames[state.frame],
            node,
            replace(record, iterations=len(iterations), repetitions=repetitions, unfinished=left),
        )

    @override
    def resume(self, resumption: Resumption, node: Node, unfinished: Unfinished, record: Record | None) -> None:
        """Go on with the iterations that failed, then with those that never began. The others keep their results."""
        state, walk = unfinished.each, resumption.walk
        assert state is not None
        if record is None:  # it was under way
            walk.eaches = walk.eaches.set(state.id, state)
            for inner in unfinished.frames:
                resumption.reopen(inner)
            if state.failed:
                self._go_on(walk, _with_failed_again(state), node)
            return
        iterations = _finished(walk, node, record)
        iterations |= dict(state.iterations)
        iterations |= {inner.index: inner.records for inner in unfinished.frames}
        again = tuple(replace(inner, records=EMPTY_MAP) for inner in unfinished.frames)
        self._go_on(walk, replace(state, iterations=Map(iterations), again=again), node)

    def _failed(self, walk: Walk, state: EachState, node: Node, outputs: list[Any]) -> Record:
        status, error, _ = state.failure
        if not self.loom or error is None:
            reason = f": {error['message']}" if error is not None else ""
            error = {"code": "ActionFailed", "message": f"An iteration of '{node.name}' has ended {status}{reason}"}
            status = status if self.loom else "Failed"
        return walk.record(status, outputs, code=error["code"], error=error)


def _unfinished(state: EachState) -> Unfinished:
    """Tell what a failed loop leaves: its failed iterations with their records, and where the next ones begin.

    Of the finished ones it leaves the last alone, which is what is seen of the loop from outside. The outputs of the
    others are in the loop's record.
    """
    failed = sorted(state.failed.items())
    frames = tuple(replace(inner, records=state.iterations[index]) for index, inner in failed)
    last = max(state.iterations)
    kept = EMPTY_MAP if last in state.failed else Map({last: state.iterations[last]})
    each = replace(state, iterations=kept, failure=None, failed=EMPTY_MAP, again=(), turns=0)
    return Unfinished(frames, each=each)


def _with_failed_again(state: EachState) -> EachState:
    """Queue the iterations that failed before the run ended for another turn, after those that still wait for one."""
    failed = tuple(inner for _, inner in sorted(state.failed.items()))
    return replace(state, failure=None, failed=EMPTY_MAP, again=(*state.again[state.turns :], *failed), turns=0)


def _finished(walk: Walk, node: Node, record: Record) -> dict[int, Map[int, Record]]:
    """The records of a failed loop's iterations, from what its own record holds of them."""
    if node.keeps_iterations:
        return dict(enumerate(record.repetitions))
    body = [walk.program.nodes[index] for index in walk.program.blocks[node.blocks[0]].nodes]
    return {
        index: Map({n.index: Record("Succeeded", by_name[n.name]) if n.name in by_name else never for n in body})
        for never in (skipped(walk.at),)
        for index, by_name in enumerate(record.outputs)
    }
