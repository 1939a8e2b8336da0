"""The lanes of a run of a flow, and the rounds of its loops, read from its stream.

A flow tells of its actions as they begin and end, so nothing is reduced again: what is read may begin anywhere, and
costs little. Secure data is not on the stream.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from loom.core.records import CancelledReport, EventRecord, FailedReport, TimedOutReport
from loom.core.ticks import TickResume
from loom.flows.calls import ActionReport, FlowEnd, LoopIteration
from loom.flows.nodes.external import ExternalCall
from loom.flows.nodes.loops import ConditionLoop, Foreach
from loom.flows.progress import max_attempts
from loom.runtime.views.lanes import CANCELLED, DELAY, FAILED, NO_ITERATION, OK, WAIT, WORK, LaneRecord, Lanes, Mark
from loom.runtime.views.rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom.core.records import Published
    from loom.core.ticks import WorkflowTick
    from loom.flows.program import Node, Program

_WAITS = frozenset({"wait", "waitforevent"})
_SUSPENDED = frozenset({"waitforevent", "workflow"})
"""Types of actions whose bodies are in no process while they wait."""
_ENDS = (CancelledReport, FailedReport, TimedOutReport)
_STATUSES = {"Succeeded": OK, "Failed": FAILED, "TimedOut": FAILED, "Cancelled": CANCELLED}

_Key = tuple[str, tuple[int, ...]]
"""An action and its repetition: the iterations around it, outermost first."""


class _Open(msgspec.Struct, gc=False):
    """An action under way, or between two attempts."""

    lane: LaneRecord
    kind: int
    attempt: int
    bar: int | None
    """None for a loop, whose bars are its rounds."""


class FlowLanes:
    """Makes lanes of what a run has put on its stream: `feed` takes it chunk by chunk."""

    def __init__(self, program: Program, first_tick: int = 0) -> None:
        self.lanes = Lanes()
        self.lanes.is_partial = first_tick > 0
        self.rounds = Rounds(program, self.lanes)
        self.ticks = first_tick
        """How many ticks have been taken in, those before the first one included."""
        self.cursor = -1
        """The last event of the stream that was taken in."""
        self._program = program
        self._open: dict[_Key, _Open] = {}
        self._failed: dict[_Key, int] = {}
        """How many attempts of an action have failed that is to be tried again."""

    @property
    def weight(self) -> int:
        """Return about how many bytes the lanes and the rounds take."""
        return self.lanes.weight + self.rounds.weight

    def feed(self, ticks: Sequence[WorkflowTick], published: Iterable[Published], first_cursor: int = 0) -> None:
        """Take in the next ticks, with what they have put on the stream from a cursor on."""
        times, latest = [], self.lanes.last_at
        for tick in ticks:
            latest = max(latest, tick.at)
            times.append(latest)
        for number, tick in enumerate(ticks):
            self.lanes.seen(times[number])
            if type(tick) is TickResume:
                self._cut(tick, times[number], self.ticks + number)
        at, place = times[0] if times else self.lanes.last_at, self.ticks
        for cursor, event in enumerate(published, first_cursor):
            self.cursor = cursor
            body = event.body if isinstance(event, EventRecord) else None
            if isinstance(body, ActionReport | LoopIteration):
                at = body.at if isinstance(body, ActionReport) else body.timestamp
                place = self.ticks + min(bisect_left(times, at), max(0, len(times) - 1))
            if isinstance(body, ActionReport):
                self._report(body, place)
            elif isinstance(body, LoopIteration):
                self.rounds.told(body, place, cursor)
            elif isinstance(body, FlowEnd) or isinstance(event, _ENDS):
                self._close_all(self.lanes.last_at, self.ticks + max(0, len(times) - 1))
        if times:
            self.rounds.begin_delays(times[-1], self.ticks + len(times) - 1)
        self.ticks += len(ticks)

    # -- actions ------------------------------------------------------------------------------------------------------

    def _lane(self, node: Node) -> LaneRecord:
        lane = self.lanes.by_name.get(node.name)
        if lane is None:
            kind = "loop" if is_loop(node) else "action"
            lane = self.lanes.by_name[node.name] = LaneRecord(node.name, kind, max_attempts(node))  # type: ignore[arg-type]
        return lane

    def _report(self, report: ActionReport, tick: int) -> None:
        node = self._program.find(report.name)
        if node is None:
            return
        self.rounds.touch(node, report, tick)
        key = (report.name, report.repetition)
        if report.status == "Running" or (report.status == "Waiting" and not report.attempt):
            self._begin(node, key, report, tick)
        elif report.status == "Waiting":
            self._try_again(node, key, report, tick)
        elif report.status != "Skipped":
            self._end(node, key, report, tick)

    def _begin(self, node: Node, key: _Key, report: ActionReport, tick: int) -> None:
        """An action begins, or is tried again."""
        self._close(key, report.at, tick, OK)
        lane = self._lane(node)
        kind = WAIT if node.type in _WAITS else WORK
        attempt = self._failed.get(key, 0) + 1
        bar = None if is_loop(node) else lane.begin(kind, report.at, tick, attempt, _iteration(report))
        lane.mark("waiting" if kind == WAIT else "executing", tick)
        lane.touch(report.at, tick)
        self._open[key] = _Open(lane, kind, attempt, bar)

    def _try_again(self, node: Node, key: _Key, report: ActionReport, tick: int) -> None:
        """An attempt has failed, and another one follows after a while."""
        lane = self._lane(node)
        if key in self._open and self._open[key].kind != DELAY:
            self._close(key, report.at, tick, FAILED, _error(report))
        else:
            self._close(key, report.at, tick, OK)
            self._whole(lane, report, tick, FAILED, report.at - report.duration)
        lane.mark("retries", tick)
        lane.mark("delayed", tick)
        self._failed[key] = report.attempt
        bar = lane.begin(DELAY, report.at, tick, report.attempt + 1, _iteration(report))
        self._open[key] = _Open(lane, DELAY, report.attempt + 1, bar)

    def _end(self, node: Node, key: _Key, report: ActionReport, tick: int) -> None:
        lane = self._lane(node)
        status = _STATUSES.get(report.status, OK)
        found = self._open.get(key)
        if found is not None and found.kind != DELAY:
            self._close(key, report.at, tick, status, _error(report))
        else:
            self._close(key, report.at, tick, OK)
            # Of a later attempt that took no time, the report tells how long all attempts took.
            begin = report.at if key in self._failed else report.at - report.duration
            self._whole(lane, report, tick, status, begin)
        self._failed.pop(key, None)
        if status != CANCELLED:
            lane.mark("failed" if status == FAILED else "completed", tick)
        lane.touch(report.at, tick)

    def _whole(self, lane: LaneRecord, report: ActionReport, tick: int, status: int, begin: float) -> None:
        """Add the bar of an attempt whose begin was not told, because it took no time."""
        if lane.kind == "loop":
            return
        attempt = self._failed.get((report.name, report.repetition), 0) + 1
        bar = lane.begin(WORK, report.at, tick, attempt, _iteration(report), since=begin)
        lane.end(bar, report.at, tick, status, _error(report))

    def _close(self, key: _Key, at: float, tick: int, status: int, error: str | None = None) -> None:
        found = self._open.pop(key, None)
        if found is None:
            return
        found.lane.unmark(_MARKS[found.kind], tick)
        if found.bar is not None:
            found.lane.end(found.bar, at, tick, status, error)

    def _cut(self, tick: TickResume, at: float, number: int) -> None:
        """No body is alive after a recovery: what was at work begins anew."""
        died_at = min(at, tick.at - tick.away_s)
        for (_, repetition), found in self._open.items():
            lane, bar = found.lane, found.bar
            node = self._program.find(lane.name)
            if bar is None or found.kind != WORK or node is None or not isinstance(node.operation, ExternalCall):
                continue
            if node.type not in _SUSPENDED:
                lane.end(bar, died_at, number, CANCELLED, "Its process has stopped.")
                iteration = repetition[-1] if repetition else NO_ITERATION
                found.bar = lane.begin(WORK, at, number, found.attempt, iteration)

    def _close_all(self, at: float, tick: int) -> None:
        for key in list(self._open):
            self._close(key, at, tick, CANCELLED)
        self._failed = {}
        self.rounds.close_all(at, tick)


_MARKS: dict[int, Mark] = {WORK: "executing", WAIT: "waiting", DELAY: "delayed"}


def is_loop(node: Node) -> bool:
    """Tell whether an action is a loop of any kind."""
    return isinstance(node.operation, ConditionLoop | Foreach)


def _iteration(report: ActionReport) -> int:
    return report.repetition[-1] if report.repetition else NO_ITERATION


def _error(report: ActionReport) -> str | None:
    """Word what an action failed with. Of a secure one the report has the code only."""
    if report.status in ("Succeeded", "Running") or not (report.code or report.message):
        return None
    return f"{report.code}: {report.message}" if report.code and report.message else report.message or report.code
