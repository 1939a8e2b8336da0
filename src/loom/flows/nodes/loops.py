"""Loops that go by a condition: until, while, doUntil, and Azure's Until. Pure.

A loop is a `LoopState` in the run's state. Before an iteration, or after it where the body comes first, the condition
is tested. A test, an iteration and a delay are entries on the agenda or timers of the run, so a loop can be left and
taken up at any of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from immutables import Map
from msgspec.structs import replace
from typing_extensions import override

from loom.core.persistent import EMPTY_MAP
from loom.core.planner import Publish
from loom.core.records import EventRecord
from loom.expressions.values import kind_of
from loom.flows.calls import LOOP_KIND, LoopIteration
from loom.flows.nodes.base import outputs_by_name
from loom.flows.operation import Operation
from loom.flows.outcomes import without_unfinished
from loom.flows.plain import check_weight
from loom.flows.program import Value
from loom.flows.records import MASK
from loom.flows.rules import RETRIES_GO_ON
from loom.flows.state import LoopState, Unfinished
from loom.flows.walk import NEXT, bare_loop

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.retried import Resumption
    from loom.flows.state import Frame, Record
    from loom.flows.walk import Walk


@dataclass(frozen=True, slots=True)
class Loop(Operation):
    """A loop with a condition and limits."""

    kind: Literal["until", "while", "doUntil"]
    condition: Value
    text: str
    test_first: bool
    negated: bool
    """It goes on while the condition holds."""
    count: Value
    timeout_s: Value
    delay_s: Value | None
    loom: bool
    """Loom's rules: a reached limit is a failure, and so is a failed iteration, at once."""
    fails_at_limit: bool

    @override
    def enter(self, walk: Walk, frame: Frame, node: Node) -> None:
        count, timeout = self.count(walk.env), self.timeout_s(walk.env)
        wrong = _wrong_limit(count, timeout)
        if wrong:
            walk.fail(frame, node, "InvalidLoopLimit", wrong)
            return
        walk.begin(frame, node)
        state = LoopState(walk.next_id(), frame.id, node.index, self.kind, self.text, count, float(timeout), walk.at)
        walk.loops = walk.loops.set(state.id, state)
        walk.agenda.append((NEXT, state.id, 0))

    @override
    def next_iteration(self, walk: Walk, state: LoopState, frame: Frame, node: Node) -> None:
        """Test, look at the limits, and begin the iteration."""
        has_waited = not self.test_first and 0 < state.iteration == state.delayed
        if (self.test_first or state.iteration) and not has_waited:
            holds = self._test(walk)
            if holds is None:
                kind = "The loop's condition must give a boolean."
                error = {"code": "ExpressionEvaluationFailed", "message": kind}
                self._end(walk, state, node, "Failed", error, Unfinished(loop=state))
                return
            if not self.test_first and state.told < state.iteration:
                self._tell(walk, state, node, holds)
                if walk.rules >= RETRIES_GO_ON:
                    state = replace(state, told=state.iteration)
                    walk.loops = walk.loops.set(state.id, state)
            state = replace(state, condition_result=holds)
            if holds is not self.negated:
                self._end(walk, state, node, *_last(state), state.failed)
                return
        if state.iteration >= state.last_allowed:
            self._limit_reached(walk, state, node, f"Loop exceeded maximum iterations: {state.max_iterations}")
            return
        since = state.start_time if state.timeout_from is None else state.timeout_from
        if state.iteration > state.limit_from and walk.at - since > state.timeout:
            self._limit_reached(walk, state, node, f"Loop timeout after {round(state.timeout * 1000)}ms")
            return
        if self._delays(walk, state, node):
            return
        walk.loops = walk.loops.set(state.id, state)
        walk.open_iteration(walk.frames[state.frame], node.blocks[0], state.id, state.iteration)

    def _delays(self, walk: Walk, state: LoopState, node: Node) -> bool:
        """Where the body comes first, the delay stands between the test and the next iteration."""
        if self.test_first or self.delay_s is None or state.delayed == state.iteration:
            return False
        delay = self.delay_s(walk.env)
        if not delay or delay <= 0:
            return False
        walk.loops = walk.loops.set(state.id, replace(state, delayed=state.iteration))
        walk.wait("delay", state.id, node.index, walk.at + delay)
        return True

    def _test(self, walk: Walk) -> bool | None:
        holds = self.condition(walk.env)
        return holds if isinstance(holds, bool) else None

    @override
    def block_ended(self, walk: Walk, inner: Frame, node: Node, status: str, cause: Record | None) -> None:
        """An iteration is over."""
        state = walk.loops[inner.loop]
        kept = state.iterations
        if node.keeps_iterations:
            kept = kept.set(inner.index, without_unfinished(inner.records))
        outputs = outputs_by_name(walk, inner)
        check_weight(outputs)  # they may hold those of the iteration before, which hold those before them
        failed = None
        if walk.rules >= RETRIES_GO_ON and status != "Succeeded":
            failed = Unfinished((inner,), bare_loop(state))
        state = replace(
            state,
            iteration=state.iteration + 1,
            last_result=outputs,
            last_status=status,
            last_error=cause.error if cause is not None else None,
            iteration_started=inner.started,
            iterations=kept,
            failed=failed,
        )
        if self.test_first:
            self._tell(walk, state, node, state.condition_result)
        if self.loom and status != "Succeeded":
            self._end(walk, state, node, status, state.last_error, state.failed)
            return
        walk.loops = walk.loops.set(state.id, state)
        if self.test_first and self.delay_s is not None and state.iteration < state.last_allowed:
            walk.env.stand_at(walk.frames[state.frame], node, loop=state)
            delay = self.delay_s(walk.env)
            if delay and delay > 0:
                walk.wait("delay", state.id, node.index, walk.at + delay)
                return
        walk.agenda.append((NEXT, state.id, 0))

    def _tell(self, walk: Walk, state: LoopState, node: Node, holds: bool | None) -> None:
        """Put the iteration that has ended on the stream."""
        event = LoopIteration(
            walk.run_id,
            node.name,
            self.kind,
            state.iteration - 1,
            holds,
            MASK if node.secure_outputs else state.last_result,
            walk.at - state.iteration_started,
            walk.at,
            state.last_allowed,
            state.last_status,
            walk.path(walk.frames[state.frame], node, state.iteration - 1),
        )
        walk.intents.append(Publish(EventRecord(LOOP_KIND, event)))

    def _limit_reached(self, walk: Walk, state: LoopState, node: Node, message: str) -> None:
        if self.loom:
            error, left = {"code": "LoopLimitReached", "message": message}, Unfinished(loop=state, at_limit=True)
            self._end(walk, state, node, "Failed", error, left)
        elif self.fails_at_limit:
            error, left = {"code": "ActionTimedOut", "message": message}, Unfinished(loop=state, at_limit=True)
            self._end(walk, state, node, "TimedOut", error, left)
        else:
            again = replace(state.failed, at_limit=True) if state.failed is not None else None
            self._end(walk, state, node, *_last(state), again)

    def _end(
        self, walk: Walk, state: LoopState, node: Node, status: str, error: Any, left: Unfinished | None = None
    ) -> None:
        """The loop is over. `left` is what a retry of the run goes on with, if the loop has failed."""
        walk.loops = walk.loops.delete(state.id)
        code = "" if error is None else error.get("code", "")
        record = walk.record(status, state.last_result, code=code, error=error)
        repetitions = tuple(records for _, records in sorted(state.iterations.items()))
        if left is None or left.loop is None or walk.rules < RETRIES_GO_ON:
            left = None
        else:
            left = replace(left, loop=bare_loop(left.loop))
        walk.finish(
            walk.frames[state.frame],
            node,
            replace(record, iterations=state.iteration, repetitions=repetitions, unfinished=left),
        )

    @override
    def resume(self, resumption: Resumption, node: Node, unfinished: Unfinished, record: Record | None) -> None:
        """Go on with the failed iteration, or with the test that the loop ended at.

        The time that passed until the retry does not count. A limit that was reached is granted anew.
        """
        state, walk = unfinished.loop, resumption.walk
        assert state is not None
        if record is not None:
            kept = Map(enumerate(record.repetitions)) if record.repetitions else EMPTY_MAP
            state = replace(state, iterations=kept, failed=None)
        if unfinished.at_limit:
            state = replace(state, limit_from=state.iteration)
        walk.loops = walk.loops.set(state.id, replace(state, timeout_from=walk.at))
        for inner in unfinished.frames:
            resumption.reopen(replace(inner, started=walk.at))
        if not unfinished.frames:
            walk.agenda.append((NEXT, state.id, 0))


def _last(state: LoopState) -> tuple[str, Any]:
    """What a loop ends with that is over by its condition: the last iteration counts."""
    return state.last_status, state.last_error if state.last_status != "Succeeded" else None


def _wrong_limit(count: Any, timeout: Any) -> str:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return f"A loop's limit.count must be an integer of at least 1, not {count!r} ({kind_of(count)})."
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or timeout < 0:
        return f"A loop's limit.timeout must be an ISO 8601 duration, not {timeout!r} ({kind_of(timeout)})."
    return ""
