"""One burst of work on a flow: from a fact until everything waits, or the fuel is out.

There is no recursion and no coroutine. What is to be done stands on an agenda, first in, first out: an action's turn,
the end of a block, a loop's next iteration. Each entry costs one unit of fuel. Entries that are left when the fuel is
out become part of the state.

An action may cost a budget of units, and a burst yields when it has cost enough. The number of a run's rules says
whether budgets hold for it (`loom.flows.rules`). The meter counts for older runs too, because the driver's patience is
measured in the same units, but refuses them nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from typing_extensions import override

from loom.core.planner import Publish, StartTimer
from loom.core.records import EventRecord
from loom.core.run import TooCostly, bear, patience
from loom.expressions import ExpressionError
from loom.expressions.errors import FunctionError
from loom.expressions.meter import CALL, MAX_BYTES, MAX_UNITS, Meter, metered_by
from loom.flows.calls import ACTION_KIND, ActionReport
from loom.flows.environment import FlowEnvironment
from loom.flows.outcomes import (
    BRANCH_NOT_TAKEN,
    OVER_BUDGET,
    STEP,
    block_outcome,
    end_flow,
    forgotten,
    invalid_template,
    skipped,
    told_cause,
    tracked_properties,
    without_unfinished,
)
from loom.flows.program import STATUS_BITS
from loom.flows.retries import limited_delay, next_delay
from loom.flows.rules import ACTIONS_HAVE_BUDGETS, AS_FIRST, RETRIES_GO_ON, RETRIES_HAVE_LIMITS
from loom.flows.state import (
    ENDED,
    ENTER,
    YIELD,
    Frame,
    PendingWait,
    Record,
    Tries,
    Unfinished,
    bare_loop,
    iterations_around,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.core.persistent import Map
    from loom.core.planner import Intent
    from loom.flows.program import Node, Program
    from loom.flows.state import FlowPlan


Watch = Callable[[tuple[int, ...], int, Record], None]
"""Is told the end of an action: the iterations around it, outermost first, its node and its record."""

FUEL = 2_000
"""Agenda entries that one burst of a new run works off."""
BURST_UNITS = 2 * 1024 * 1024
"""Units after which a burst of the walk yields, between two actions: about 20 ms."""
BURST_BYTES = 32 * 1024 * 1024
"""Bytes after which it yields."""

_BAD = frozenset({"Failed", "TimedOut"})
_TRIES_KEPT = 20
"""Newest attempts at an action that its record keeps."""
_LATEST = 253_402_300_799.0
"""The end of the year 9999. No later moment can be written, so longer waits end then."""
_LOW_64_BITS = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15


class Walk:
    """A flow's state, open for change. `freeze` makes the next state of it.

    Operations call it: `succeed`, `fail`, `begin`, `wait` and `finish` for their action, `open_block` and
    `open_iteration` for the actions inside.
    """

    __slots__ = (
        "_metering", "agenda", "at", "draws", "eaches", "ended", "env", "frames", "ids", "intents", "last_traceback",
        "loops", "meter", "parameters", "plan", "program", "response", "rules", "run_id", "trigger", "variables",
        "waits", "watch", "yielding",
    )  # fmt: skip

    def __init__(
        self, program: Program, plan: FlowPlan, at: float, rules: int = AS_FIRST, watch: Watch | None = None
    ) -> None:
        self.program = program
        self.plan = plan
        self.at = at
        self.rules = rules
        """Number of the run's rules, see `loom.flows.rules`."""
        self.run_id = plan.run_id
        self.trigger = plan.trigger
        self.watch = watch
        """Is told each record, with the iterations around it, before a later one may take its place; or None."""
        self.parameters = plan.parameters
        self.variables = plan.variables
        self.frames = plan.frames
        self.loops = plan.loops
        self.eaches = plan.eaches
        self.waits = plan.waits
        self.agenda: deque[tuple[int, int, int]] = deque(plan.agenda)
        self.yielding = plan.yielding
        self.ids = plan.ids
        self.draws = plan.draws
        self.response = plan.response
        self.last_traceback = plan.last_traceback
        self.intents: list[Intent] = []
        self.ended = False
        """True once the run has ended: the rest of the agenda is dropped."""
        self.meter = BurstMeter(rules)
        self.env = FlowEnvironment(self)
        self._metering = metered_by(self.meter)

    def __enter__(self) -> None:
        """Begin the work: the meter counts within the `with`."""
        self._metering.__enter__()

    def __exit__(self, *error: object) -> None:
        """End the work, and break the cycle of walk and environment.

        The cycle would keep all results of the actions until the next full collection of garbage.
        """
        del self.env
        self._metering.__exit__(*error)

    def freeze(self) -> FlowPlan:
        """Make the state as it is now."""
        return replace(
            self.plan,
            trigger=self.trigger,
            parameters=self.parameters,
            variables=self.variables,
            frames=self.frames,
            loops=self.loops,
            eaches=self.eaches,
            waits=self.waits,
            agenda=tuple(self.agenda),
            yielding=self.yielding,
            ids=self.ids,
            draws=self.draws,
            response=self.response,
            last_traceback=self.last_traceback,
        )

    # -- the agenda ---------------------------------------------------------------------------------------------------

    def go(self, fuel: int) -> None:
        """Work off the agenda, as far as the fuel goes. A burst that has spent its budget yields."""
        agenda, nodes, meter = self.agenda, self.program.nodes, self.meter
        while agenda and not self.ended:
            if not fuel or meter.is_spent:
                self._pause()
                return
            fuel -= 1
            kind, first, second = agenda.popleft()
            if kind == ENTER:
                self._enter(self.frames[first], nodes[second])
            elif kind == ENDED:
                self._block_ended(self.frames[first])
            else:
                self._next_iteration(first)
        meter.end()
        if self.ended:
            agenda.clear()

    def _pause(self) -> None:
        if not self.yielding:
            self.yielding = True
            self.intents.append(StartTimer(self.at, YIELD))

    def next_id(self) -> int:
        """Give a number to a frame, a loop or a wait."""
        self.ids += 1
        return self.ids

    def random_below(self, limit: int) -> int:
        """Draw the next random number."""
        self.draws += 1
        return _draw(self.plan.seed, self.draws, limit)

    def repetition(self, frame: Frame) -> tuple[int, ...]:
        """List the indexes of the iterations around a frame, outermost first."""
        return tuple(scope.index for scope in reversed(iterations_around(self.frames, frame)))

    def path(self, frame: Frame, node: Node, iteration: int) -> str:
        """Name an iteration of a loop with the iterations around it, such as `outer[2]/inner[5]`."""
        if not frame.depth:
            return f"{node.name}[{iteration}]"
        names = [self.program.nodes[loop].name for loop in node.loops]
        around = [f"{name}[{index}]" for name, index in zip(names, self.repetition(frame), strict=True)]
        return "/".join([*around, f"{node.name}[{iteration}]"])

    # -- actions ------------------------------------------------------------------------------------------------------

    def _enter(self, frame: Frame, node: Node) -> None:
        """Enter an action whose turn has come."""
        self.env.stand_at(frame, node)
        self.meter.begin(node)
        try:
            if node.static_result is not None:
                static = node.static_result
                outputs = static.outputs(self.env)
                self.finish(frame, node, self.record(static.status, outputs, code=static.code, error=static.error))
            else:
                node.operation.enter(self, frame, node)
        except (ExpressionError, FunctionError) as error:
            self.finish(frame, node, self._unreadable(node, error))

    def enter_again(self, frame_id: int, node: Node) -> None:
        """Put an action on the agenda for another try."""
        self.agenda.append((ENTER, frame_id, node.index))

    def record(
        self,
        status: str,
        outputs: Any = None,
        inputs: Any = None,
        *,
        code: str = "",
        error: Any = None,
        started: float | None = None,
    ) -> Record:
        """Make the record of an action that ends now."""
        return Record(status, outputs, inputs, code, error, self.at if started is None else started, self.at)

    def succeed(self, frame: Frame, node: Node, outputs: Any, inputs: Any = None) -> None:
        """End an action that took no time, with success."""
        self.finish(frame, node, Record("Succeeded", outputs, inputs, "", None, self.at, self.at))

    def fail(self, frame: Frame, node: Node, code: str, message: str, inputs: Any = None) -> None:
        """End an action that took no time, with a failure."""
        if self.meter.is_over and node.path not in message:
            message = f"Action '{node.name}', {node.path}: {message}"
        code = OVER_BUDGET if self.meter.is_over else code
        error = {"code": code, "message": message}
        self.finish(frame, node, self.record("Failed", None, inputs, code=code, error=error))

    def begin(self, frame: Frame, node: Node, inputs: Any = None, status: str = "Running") -> Frame:
        """Begin an action that takes time: note its start and its inputs."""
        frame = replace(
            frame, entered=frame.entered.set(node.index, self.at), inputs=frame.inputs.set(node.index, inputs)
        )
        self.frames = self.frames.set(frame.id, frame)
        self._report(frame, node, status)
        return frame

    def wait(self, purpose: Any, frame: int, node: int, due: float | None = None) -> int:
        """Let an action wait for a timer or a call. Return the mark by which its end will be known."""
        mark = self.next_id()
        due = min(due, _LATEST) if due is not None else None
        self.waits = self.waits.set(mark, PendingWait(purpose, frame, node, due))
        if due is not None:
            self.intents.append(StartTimer(due, mark))
        return mark

    def finish(self, frame: Frame, node: Node, record: Record) -> None:
        """End an action, unless its policy gives it another try."""
        frame = self.frames[frame.id]
        index = node.index
        if index in frame.entered:
            record = replace(record, started=frame.entered[index], inputs=frame.inputs[index])
            frame = replace(frame, entered=frame.entered.delete(index), inputs=frame.inputs.delete(index))
        if node.retry is not None and record.status in _BAD and self._try_again(frame, node, record):
            return
        tries = frame.tries.get(index)
        if tries is not None:
            record = replace(record, started=tries.first_at, retries=tries.history)
        if node.tracked is not None:
            record = self._tracked(frame, node, record)
        self._settle(frame, node, record)

    def _tracked(self, frame: Frame, node: Node, record: Record) -> Record:
        """Add the tracked properties to a record."""
        assert node.tracked is not None
        self.env.stand_at(frame, node, current=record)
        return replace(record, tracked=tracked_properties(node.tracked, self.env))

    def _try_again(self, frame: Frame, node: Node, record: Record) -> bool:
        """Start a timer for another try, if the policy allows one. Return whether it does."""
        assert node.retry is not None
        if node.static_result is not None or (record.status == "TimedOut" and node.timeout_s is not None):
            return False  # a mock is what it is, and a limit is one for all tries together
        tries = frame.tries.get(node.index) or Tries(0, record.started)
        delay = next_delay(node.retry, tries.count, record, self.random_below)
        if delay is not None and self.rules >= RETRIES_HAVE_LIMITS:
            delay = limited_delay(node.retry, node.retry_limits, tries, self.at, delay)
        if delay is None:
            return False
        note = {"startTime": record.started, "endTime": record.ended, "code": record.code, "error": record.error}
        tries = Tries(tries.count + 1, tries.first_at, (*tries.history, note)[-_TRIES_KEPT:])
        self.frames = self.frames.set(frame.id, replace(frame, tries=frame.tries.set(node.index, tries)))
        self._forget(self.frames[frame.scope], node.descendants)
        self._report(frame, node, "Waiting", record, tries.count)
        self.wait("retry", frame.id, node.index, self.at + delay)
        return True

    def _forget(self, scope: Frame, indexes: tuple[int, ...]) -> None:
        """Forget the records of actions inside one that is tried again."""
        records, had_answered = forgotten(self.program, scope.records, indexes)
        self.response = None if had_answered else self.response
        if records is not scope.records:
            self.frames = self.frames.set(scope.id, replace(scope, records=records))

    def _report(self, frame: Frame, node: Node, status: str, record: Record | None = None, attempt: int = 0) -> None:
        """Publish the state of an action on the stream."""
        at, message = self.at, ""
        started = at if record is None else record.started
        if record is not None and record.error is not None:
            message = "" if node.secure_inputs or node.secure_outputs else record.error.get("message", "")
        report = ActionReport(
            node.name,
            node.type,
            status,
            at,
            at - started,
            "" if record is None else record.code,
            message,
            attempt,
            self.repetition(frame) if frame.depth else (),
        )
        self.intents.append(Publish(EventRecord(ACTION_KIND, report)))

    def _settle(self, frame: Frame, node: Node, record: Record) -> None:
        """Note the final record of an action, and let its followers run."""
        self._note(frame, node.index, record)
        if node.descendants:
            self.skip_inside(self.frames[frame.id], node)  # actions of a loop that had no iteration
        self._report(frame, node, record.status, record)
        if node.followers:
            self._follow(frame.id, node)
        if not self.frames[frame.id].left:
            self.agenda.append((ENDED, frame.id, 0))

    def _note(self, frame: Frame, index: int, record: Record) -> None:
        """Store a record where expressions find it."""
        if self.watch is not None:
            self.watch(self.repetition(frame), index, record)
        left = frame.left - 1
        if frame.scope == frame.id:
            self.frames = self.frames.set(frame.id, replace(frame, left=left, records=frame.records.set(index, record)))
            return
        scope = self.frames[frame.scope]
        frames = self.frames.set(frame.id, replace(frame, left=left))
        self.frames = frames.set(scope.id, replace(scope, records=scope.records.set(index, record)))

    def _follow(self, frame_id: int, node: Node) -> None:
        """Enter or skip the actions that run after one that has ended, and followers of skipped ones in turn."""
        nodes = self.program.nodes
        ended, entered = [node], set[int]()
        while ended:
            for index in ended.pop(0).followers:
                follower = nodes[index]
                frame = self.frames[frame_id]
                records = self.frames[frame.scope].records
                if index in entered or index in records or not all(before in records for before, _ in follower.after):
                    continue
                if all(STATUS_BITS.get(records[before].status, 0) & wanted for before, wanted in follower.after):
                    # It may run after several actions that have ended just now, but its turn comes once.
                    entered.add(index)
                    self.agenda.append((ENTER, frame_id, index))
                else:
                    self._note(frame, index, skipped(self.at))
                    self.skip_inside(self.frames[frame_id], follower)
                    self._report(frame, follower, "Skipped")
                    ended.append(follower)

    def skip_inside(self, frame: Frame, node: Node) -> None:
        """Skip all actions inside an action that have not run when it ends."""
        self._skip_all(frame, node.descendants)

    def skip_block(self, frame: Frame, block: int) -> None:
        """Skip the actions of a branch that is not taken."""
        inside = [i for n in self.program.blocks[block].nodes for i in (n, *self.program.nodes[n].descendants)]
        self._skip_all(frame, inside)

    def _skip_all(self, frame: Frame, indexes: Iterable[int]) -> None:
        scope = self.frames[frame.scope]
        missing = [index for index in indexes if index not in scope.records]
        if missing:
            if self.watch is not None:
                for index in missing:
                    self.watch(self.repetition(frame), index, skipped(self.at, *BRANCH_NOT_TAKEN))
            records = scope.records.update(dict.fromkeys(missing, skipped(self.at, *BRANCH_NOT_TAKEN)))
            self.frames = self.frames.set(scope.id, replace(scope, records=records))

    # -- blocks -------------------------------------------------------------------------------------------------------

    def open_block(self, frame: Frame, block: int) -> None:
        """Begin a block that is no iteration. Its records go to the frame that has its owner's."""
        size = len(self.program.blocks[block].nodes)
        self._open(Frame(self.next_id(), block, frame.id, frame.scope, frame.depth, size, self.at))

    def open_iteration(self, frame: Frame, block: int, loop: int, index: int, item: Any = None) -> None:
        """Begin an iteration of a loop, with records of its own."""
        self.ids = number = self.ids + 1
        size = len(self.program.blocks[block].nodes)
        self._open(Frame(number, block, frame.id, number, frame.depth + 1, size, self.at, loop, index, item))

    def open_top_level(self) -> None:
        """Begin the flow."""
        number = self.next_id()
        self._open(Frame(number, 0, -1, number, 0, len(self.program.blocks[0].nodes), self.at))

    def _open(self, frame: Frame) -> None:
        self.frames = self.frames.set(frame.id, frame)
        if not frame.left:
            self.agenda.append((ENDED, frame.id, 0))
        for root in self.program.blocks[frame.block].roots:
            self.agenda.append((ENTER, frame.id, root))

    def _block_ended(self, frame: Frame) -> None:
        """End a block whose actions have all ended: its owner decides what follows."""
        block = self.program.blocks[frame.block]
        records = self.frames[frame.scope].records
        status, cause = block_outcome(self.program, block, records)
        if block.owner < 0:
            self.ended = True
            end_flow(self, status, cause)
            return
        self.frames = self.frames.delete(frame.id)
        owner, outer = self.program.nodes[block.owner], self.frames[frame.parent]
        self.env.stand_at(outer, owner)
        self.meter.begin(owner)
        if frame.scope == frame.id and frame.records:
            self.merge(outer, frame.records if status == "Succeeded" else without_unfinished(frame.records))
        try:
            told = told_cause(self.program, block, records, cause)
            owner.operation.block_ended(self, frame, owner, status, told)
        except (ExpressionError, FunctionError) as error:
            self.finish(outer, owner, self._broken(owner, error, frame.loop))

    def merge(self, outer: Frame, iteration: Map[int, Record]) -> None:
        """Show the records of an iteration outside its loop; the last iteration wins."""
        scope = self.frames[outer.scope]
        records = scope.records.update(iteration) if scope.records else iteration
        self.frames = self.frames.set(scope.id, replace(scope, records=records))

    def _next_iteration(self, loop: int) -> None:
        state = self.loops[loop]
        node, frame = self.program.nodes[state.node], self.frames[state.frame]
        self.env.stand_at(frame, node, loop=state)
        self.meter.begin(node)
        try:
            node.operation.next_iteration(self, state, frame, node)
        except (ExpressionError, FunctionError) as error:
            self.finish(frame, node, self._broken(node, error, loop))

    def _unreadable(self, node: Node, error: ExpressionError | FunctionError) -> Record:
        """Make the record of an action whose template cannot be evaluated, or costs too much."""
        code = OVER_BUDGET if self.meter.is_over else "InvalidTemplate"
        told = invalid_template(node, error, code)
        return self.record("Failed", error=told, code=told["code"])

    def _broken(self, node: Node, error: ExpressionError | FunctionError, loop: int) -> Record:
        """Make the record of a container whose own template cannot be evaluated. A loop ends by that."""
        record = self._unreadable(node, error)
        state = self.loops.get(loop)
        if state is None:
            return record
        self.loops = self.loops.delete(loop)
        if self.rules < RETRIES_GO_ON:
            return record
        repetitions = tuple(records for _, records in sorted(state.iterations.items()))
        return replace(
            record, iterations=state.iteration, repetitions=repetitions, unfinished=Unfinished(loop=bare_loop(state))
        )

    def left_by(self, inner: Frame, status: str) -> Unfinished | None:
        """Return what a retry of the run goes on with in a block that has ended; None if there is nothing."""
        if self.rules < RETRIES_GO_ON or status not in _BAD:
            return None
        return Unfinished((inner,))


def _draw(seed: int, number: int, limit: int) -> int:
    """Draw the random number of this order from a seed (splitmix64): at least 0 and below the limit.

    Chance is data: it follows from the run's seed and the number of draws before.
    """
    state = (seed + _GAMMA * (number + 1)) & _LOW_64_BITS
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _LOW_64_BITS
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _LOW_64_BITS
    state ^= state >> 31
    # The product's upper half: no remainder, and so hardly any bias.
    return (state * limit) >> 64 if limit <= _LOW_64_BITS else (state * limit) // (_LOW_64_BITS + 1)


class BurstMeter(Meter):
    """Counts the cost of one action after the other, and of all of them together."""

    __slots__ = ("_patience", "burst_bytes", "burst_units", "counts")

    def __init__(self, rules: int) -> None:
        self.counts = rules >= ACTIONS_HAVE_BUDGETS
        super().__init__(MAX_UNITS if self.counts else inf, MAX_BYTES if self.counts else inf)
        self.burst_units = self.burst_bytes = 0
        self._patience = patience()

    def begin(self, node: Node) -> None:
        """Count for another action from here on: first the calls in its templates."""
        self.end()
        self.is_over = False
        if self._patience is not None:
            bear(STEP)
            self.most_units = min(self._patience.left, MAX_UNITS if self.counts else inf)
        if node.calls:
            self.units = node.calls * CALL

    def end(self) -> None:
        """Add what the action has cost to the burst and to what the driver has borne."""
        self.burst_units += self.units
        self.burst_bytes += self.bytes
        if self._patience is not None:
            self._patience.left -= self.units
        self.units = self.bytes = 0

    @property
    def is_spent(self) -> bool:
        """True if the walk should yield before the next action."""
        units, size = self.burst_units + self.units, self.burst_bytes + self.bytes
        return self.counts and (units > BURST_UNITS or size > BURST_BYTES)

    @override
    def exceed(self) -> None:
        if (
            self._patience is not None
            and not (self.counts and self.units > MAX_UNITS)
            and self.bytes <= self.most_bytes
        ):
            raise TooCostly
        super().exceed()
