"""Loops: until, while and doUntil, which go by a condition, and foreach.

A loop is a `LoopState` or an `EachState` in the run's state. A test, an iteration and a delay are agenda entries or
timers of the run, so a run can leave memory at any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace
from typing_extensions import override

from loom.core.persistent import EMPTY_MAP, Map
from loom.core.planner import Publish
from loom.core.records import EventRecord
from loom.expressions import ExpressionError
from loom.expressions.values import kind_of
from loom.flows.calls import LOOP_KIND, MASK, LoopIteration
from loom.flows.nodes.containers import outputs_by_name
from loom.flows.outcomes import invalid_template, outputs_in, skipped, without_unfinished
from loom.flows.plain import CARRIED_CUT, CARRIED_MOST, check_weight, cut_below
from loom.flows.program import Operation, Value
from loom.flows.retries import reopen
from loom.flows.rules import LOOP_RESULTS_ARE_CUT, LOOP_TIMEOUTS_HAVE_A_CODE, RETRIES_GO_ON
from loom.flows.state import NEXT, EachState, LoopState, Record, Unfinished, bare_loop

if TYPE_CHECKING:
    from loom.flows.program import Node
    from loom.flows.retries import Resumption
    from loom.flows.state import Frame
    from loom.flows.walk import Walk


LIMIT_REACHED, TIMED_OUT = "LoopLimitReached", "LoopTimedOut"
"""Codes of loops that the number of iterations, or time, has ended by Loom's rules."""
MAX_EXCEEDED, TIMEOUT_AFTER = "Loop exceeded maximum iterations: ", "Loop timeout after "
"""How the messages of their errors begin."""


_CUT = (
    f"The result of the iteration was nested more than {CARRIED_MOST} levels deep, because it carries loopResult in "
    f"itself; what lay deeper than {CARRIED_CUT} levels is null."
)


class ConditionLoop(Operation, frozen=True):
    """A loop with a condition and limits."""

    kind: Literal["until", "while", "doUntil"]
    condition: Value
    text: str
    test_first: bool
    negated: bool
    """True if the loop goes on while the condition holds, False if until it holds."""
    count: Value
    timeout_s: Value
    delay_s: Value | None
    loom: bool
    """True for Loom's rules: a reached limit, or a failed iteration, fails the loop at once."""
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
        """Test the condition, check the limits, and begin the iteration."""
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
            self._limit_reached(walk, state, node, LIMIT_REACHED, f"{MAX_EXCEEDED}{state.max_iterations}")
            return
        since = state.start_time if state.timeout_from is None else state.timeout_from
        if state.iteration > state.limit_from and walk.at - since > state.timeout:
            code = TIMED_OUT if walk.rules >= LOOP_TIMEOUTS_HAVE_A_CODE else LIMIT_REACHED
            self._limit_reached(walk, state, node, code, f"{TIMEOUT_AFTER}{round(state.timeout * 1000)}ms")
            return
        if self._delays(walk, state, node):
            return
        walk.loops = walk.loops.set(state.id, state)
        walk.open_iteration(walk.frames[state.frame], node.blocks[0], state.id, state.iteration)

    def _delays(self, walk: Walk, state: LoopState, node: Node) -> bool:
        """Delay the next iteration, if the body comes before the test. Return whether the loop waits."""
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
        """Take in the end of an iteration."""
        state = walk.loops[inner.loop]
        kept = state.iterations
        if node.keeps_iterations:
            kept = kept.set(inner.index, without_unfinished(inner.records))
        outputs = outputs_by_name(walk, inner)
        depth = check_weight(outputs)  # they may hold outputs of the iteration before, which hold outputs before them
        is_cut = depth > CARRIED_MOST and walk.rules >= LOOP_RESULTS_ARE_CUT
        if is_cut:
            outputs = cut_below(outputs, CARRIED_CUT)
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
            is_cut=is_cut,
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
        """Publish the end of an iteration on the stream."""
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
            _CUT if state.is_cut else "",
        )
        walk.intents.append(Publish(EventRecord(LOOP_KIND, event)))

    def _limit_reached(self, walk: Walk, state: LoopState, node: Node, code: str, message: str) -> None:
        if self.loom:
            error, left = {"code": code, "message": message}, Unfinished(loop=state, at_limit=True)
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
        """End the loop. `left` is what a retry of the run goes on with; None if the loop has not failed."""
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

        Time until the retry does not count. A limit that was reached is granted anew.
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
    """Return the status and error of a loop that its condition ended: the last iteration counts."""
    return state.last_status, state.last_error if state.last_status != "Succeeded" else None


def _wrong_limit(count: Any, timeout: Any) -> str:
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return f"A loop's limit.count must be an integer of at least 1, not {count!r} ({kind_of(count)})."
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or timeout < 0:
        return f"A loop's limit.timeout must be an ISO 8601 duration, not {timeout!r} ({kind_of(timeout)})."
    return ""


# -- foreach -----------------------------------------------------------------------------------------------------------

_EVALUATION_FAILED = "ExpressionEvaluationFailed"


class Foreach(Operation, frozen=True):
    """Runs its body for each element, several at a time if asked. Loom's rules end it at the first failure."""

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
        """Begin as many iterations as may run; end the loop if none is left."""
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
        """Take in the end of an iteration."""
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
        """Go on with failed iterations, then with iterations that never began. The others keep their results."""
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
    """Collect what a failed loop leaves: its failed iterations with their records, and where the next ones begin.

    Of the finished iterations only the last is kept, because it is what expressions outside the loop see. Outputs of
    the others are in the loop's record.
    """
    failed = sorted(state.failed.items())
    frames = tuple(replace(inner, records=state.iterations[index]) for index, inner in failed)
    last = max(state.iterations)
    kept = EMPTY_MAP if last in state.failed else Map({last: state.iterations[last]})
    each = replace(state, iterations=kept, failure=None, failed=EMPTY_MAP, again=(), turns=0)
    return Unfinished(frames, each=each)


def _with_failed_again(state: EachState) -> EachState:
    """Queue iterations that failed before the run ended, after iterations that still wait for their turn."""
    failed = tuple(inner for _, inner in sorted(state.failed.items()))
    return replace(state, failure=None, failed=EMPTY_MAP, again=(*state.again[state.turns :], *failed), turns=0)


def _finished(walk: Walk, node: Node, record: Record) -> dict[int, Map[int, Record]]:
    """Restore the records of a failed loop's iterations from the loop's own record."""
    if node.keeps_iterations:
        return dict(enumerate(record.repetitions))
    body = [walk.program.nodes[index] for index in walk.program.blocks[node.blocks[0]].nodes]
    return {
        index: Map({n.index: Record("Succeeded", by_name[n.name]) if n.name in by_name else never for n in body})
        for never in (skipped(walk.at),)
        for index, by_name in enumerate(record.outputs)
    }
