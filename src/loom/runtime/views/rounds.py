"""The rounds of a flow's loops: when each iteration began and ended, and how.

An iteration begins with the first word of an action in it, and ends when all actions of the loop's body have ended.
What loops with a condition tell of their iterations adds the result of the test. Results stay on the stream: a round
knows its cursor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from loom.flows.nodes.loops import ConditionLoop
from loom.flows.outcomes import block_outcome
from loom.flows.state import Record
from loom.runtime.views.lanes import CANCELLED, DELAY, FAILED, OK, RUNNING, WORK, LaneRecord

if TYPE_CHECKING:
    from loom.flows.calls import ActionReport, LoopIteration
    from loom.flows.program import Node, Program
    from loom.runtime.views.lanes import Lanes

MAX_ROUNDS = 200_000
"""How many rounds of a run are kept. Beyond, the oldest half of the longest loop is dropped."""
_ROUND_BYTES = 200

_OVER = frozenset({"Succeeded", "Failed", "TimedOut", "Skipped", "Cancelled"})
_ENDS = {"Succeeded": OK, "Cancelled": CANCELLED}

Repetition = tuple[int, ...]


class Round(msgspec.Struct, gc=False):
    """One iteration of a loop. Times are seconds since 1970."""

    iteration: int
    begin: float
    tick: int
    """The tick that it began with."""
    last_tick: int
    """The tick of its last action so far."""
    end: float | None = None
    status: int = RUNNING
    condition_result: bool | None = None
    error: str | None = None
    cursor: int | None = None
    """Where its result is on the stream; None if no result was told."""
    bar: int | None = None


class _Settling(msgspec.Struct):
    """An iteration under way: how the actions of its body have ended so far, by node."""

    records: dict[int, Record] = {}
    errors: dict[int, str] = {}


class Rounds:
    """The rounds of all loops of a run, by loop and by the iterations around it."""

    def __init__(self, program: Program, lanes: Lanes) -> None:
        self._program = program
        self._loops = {loop for node in program.nodes for loop in node.loops}
        self._lanes = lanes
        self._rounds: dict[str, dict[Repetition, dict[int, Round]]] = {}
        self._settling: dict[tuple[str, Repetition, int], _Settling] = {}
        self._last: dict[tuple[str, Repetition], Round] = {}
        """The round that ended last, until the next one begins."""
        self._delays: dict[tuple[str, Repetition], int] = {}
        """The bars of delays between two iterations that go on."""
        self._failed: dict[tuple[str, Repetition, int], _Settling] = {}
        """What had succeeded in iterations that have failed: a retry of the run goes on with the rest."""
        self._count = 0

    @property
    def weight(self) -> int:
        """Return about how many bytes they take."""
        return self._count * _ROUND_BYTES

    def of(self, loop: str, around: Repetition | None = None) -> dict[int, Round]:
        """Return the rounds of a loop by iteration; without the iterations around it, those that began last."""
        by_place = self._rounds.get(loop, {})
        if around is None:
            around = next(reversed(by_place), ())
        return by_place.get(around, {})

    def touch(self, node: Node, report: ActionReport, tick: int) -> None:
        """Take in what an action tells: it lies in a round of each loop around it."""
        if report.status in _OVER and node.index in self._loops:
            self._leave(node.name, report.repetition, report.at, tick)
        if not node.loops or len(report.repetition) != len(node.loops):
            return
        begin = report.at if report.attempt or report.status in ("Running", "Waiting") else report.at - report.duration
        for depth, loop in enumerate(node.loops):
            key = self._program.nodes[loop].name, report.repetition[:depth], report.repetition[depth]
            if key not in self._settling:
                self._settling[key] = self._failed.pop(key) if key in self._failed else _Settling({}, {})
                self._begin(key, begin, tick)
        if report.status in _OVER and self._program.blocks[node.block].owner == node.loops[-1]:
            innermost = self._program.nodes[node.loops[-1]].name, report.repetition[:-1], report.repetition[-1]
            self._settle(innermost, self._settling[innermost], node, report, tick)

    def told(self, told: LoopIteration, tick: int, cursor: int) -> None:
        """Take in what a loop tells of an iteration that is over."""
        node = self._program.find(told.action_name)
        if node is None:
            return
        around = _around(told.path)
        found = self.of(node.name, around).get(told.iteration)
        if found is None:
            found = self._add(node, around, told.iteration, told.timestamp - told.duration, tick)
        found.condition_result, found.cursor = told.condition_result, cursor
        if found.end is None:
            self._settling.pop((node.name, around, told.iteration), None)
            self._end(node.name, around, found, told.timestamp, tick, _ENDS.get(told.status, FAILED))

    def _leave(self, loop: str, around: Repetition, at: float, tick: int) -> None:
        """A loop is over, and so are its iterations."""
        for key in [key for key in self._settling if key[:2] == (loop, around)]:
            del self._settling[key]
            self._end(loop, around, self._rounds[loop][around][key[2]], at, tick, CANCELLED)
        self._last.pop((loop, around), None)
        self._end_delay(loop, around, at, tick)

    def begin_delays(self, at: float, tick: int) -> None:
        """Tell which loops wait for their next iteration: those that nothing has come of since the last one."""
        for (loop, around), before in self._last.items():
            node = self._program.find(loop)
            if (loop, around) in self._delays or node is None or not isinstance(node.operation, ConditionLoop):
                continue
            lane = self._lane(node)
            lane.mark("delayed", tick)
            self._delays[loop, around] = lane.begin(DELAY, at, tick, iteration=before.iteration + 1, since=before.end)

    def _end_delay(self, loop: str, around: Repetition, at: float, tick: int) -> None:
        bar = self._delays.pop((loop, around), None)
        if bar is not None:
            lane = self._lanes.by_name[loop]
            lane.unmark("delayed", tick)
            lane.end(bar, at, tick, OK)

    def close_all(self, at: float, tick: int) -> None:
        """End the rounds under way: the run is over."""
        for loop, around, iteration in list(self._settling):
            self._end(loop, around, self._rounds[loop][around][iteration], at, tick, CANCELLED)
        for loop, around in list(self._delays):
            self._end_delay(loop, around, at, tick)
        self._settling, self._last = {}, {}

    # -- one round ----------------------------------------------------------------------------------------------------

    def _begin(self, key: tuple[str, Repetition, int], begin: float, tick: int) -> None:
        loop, around, iteration = key
        node = self._program.find(loop)
        assert node is not None
        found = self._rounds.get(loop, {}).get(around, {}).get(iteration)
        if found is None:
            self._add(node, around, iteration, begin, tick)
            return
        # It failed, and goes on in a retry of the run.
        found.end, found.status, found.error = None, RUNNING, None
        found.bar = self._lane(node).begin(WORK, begin, tick, iteration=iteration)

    def _lane(self, node: Node) -> LaneRecord:
        lane = self._lanes.by_name.get(node.name)
        if lane is None:
            lane = self._lanes.by_name[node.name] = LaneRecord(node.name, "loop", 1)
        return lane

    def _add(self, node: Node, around: Repetition, iteration: int, begin: float, tick: int) -> Round:
        lane = self._lane(node)
        self._last.pop((node.name, around), None)
        self._end_delay(node.name, around, begin, tick)
        made = Round(iteration, begin, tick, tick, bar=lane.begin(WORK, begin, tick, iteration=iteration))
        self._rounds.setdefault(node.name, {}).setdefault(around, {})[iteration] = made
        self._count += 1
        if self._count > MAX_ROUNDS:
            self._trim()
        return made

    def _settle(
        self, key: tuple[str, Repetition, int], settling: _Settling, node: Node, report: ActionReport, tick: int
    ) -> None:
        """Note how an action of the body has ended. With the last one, the round is over."""
        block = self._program.blocks[node.block]
        settling.records[node.index] = Record(report.status)
        if report.message or report.code:
            settling.errors[node.index] = f"{report.code}: {report.message}" if report.message else report.code
        if len(settling.records) < len(block.nodes):
            return
        loop, around, iteration = key
        del self._settling[key]
        status, cause = block_outcome(self._program, block, settling.records)  # type: ignore[arg-type]
        culprit = next((index for index, record in settling.records.items() if record is cause), None)
        found = self._rounds[loop][around][iteration]
        found.error = settling.errors.get(culprit) if culprit is not None else None
        if status != "Succeeded":
            done = {index: record for index, record in settling.records.items() if record.status == "Succeeded"}
            self._failed[key] = _Settling(done, {})
        self._end(loop, around, found, report.at, tick, _ENDS.get(status, FAILED))

    def _end(self, loop: str, around: Repetition, found: Round, at: float, tick: int, status: int) -> None:
        found.end, found.status, found.last_tick = max(at, found.begin), status, tick
        if found.bar is not None:
            self._lanes.by_name[loop].end(found.bar, at, tick, status, found.error)
            found.bar = None
        self._last[loop, around] = found

    def _trim(self) -> None:
        """Drop the oldest half of the longest loop. Those under way stay."""
        places = [(rounds, found) for rounds in self._rounds.values() for found in rounds.items()]
        rounds, (around, longest) = max(places, key=lambda place: len(place[1][1]))
        oldest = sorted(longest)[: max(1, len(longest) // 2)]
        for iteration in oldest:
            if longest[iteration].end is not None:
                del longest[iteration]
                self._count -= 1
        if not longest:
            del rounds[around]
        self._lanes.is_partial = True


def _around(path: str) -> Repetition:
    """Read the iterations around a loop from the path of one of its own: `outer[2]/inner[5]` gives (2,)."""
    parts = [part.rpartition("[")[2].removesuffix("]") for part in path.split("/")[:-1]]
    return tuple(int(part) for part in parts if part.isdecimal())
