"""The lanes of a run of Python steps, read from its ticks.

The ticks are reduced again, and after each one the lanes are brought in line with the state for the few work items that
it concerned. So what a lane says is what the state said then; a law in the tests compares both after each tick.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from loom.core.commands import CommandPublishEvent, CommandResumeWorker, CommandRunWorker, CommandStartTimer
from loom.core.persistent import EMPTY_MAP
from loom.core.records import StepReport
from loom.core.reducer import Draft, transition
from loom.core.state import BrokerState
from loom.core.ticks import (
    TickAwaitEvent,
    TickEndWait,
    TickLeaveStep,
    TickRefuseEvent,
    TickResume,
    TickRetryRun,
    TickSkip,
    TickSleep,
    TickStartChild,
    TickStepResult,
    TickTimerFired,
)
from loom.runtime.planners import STEPS
from loom.runtime.views.lanes import CANCELLED, DELAY, FAILED, OK, QUEUE, WAIT, WORK, LaneRecord, Lanes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.core.commands import WorkflowCommand
    from loom.core.reducer import FieldReader
    from loom.core.state import BrokerConfig, Execution, InternalStepWorkerState, Timer, WorkItem
    from loom.core.ticks import WorkflowTick

_BEGIN_WAITS = (TickAwaitEvent, TickSleep, TickStartChild)
_RARE = (TickResume, TickTimerFired, TickSkip)
_OF_ITEMS = (TickStepResult, TickEndWait, TickLeaveStep, TickRefuseEvent)


class _Item(msgspec.Struct, gc=False):
    """A work item that has been dispatched, and the bars of it that are open. None: there is none."""

    lane: LaneRecord
    seq: int
    attempt: int
    work: int | None = None
    suspended: bool = False
    waits: dict[str, int] = {}
    """By the keys of its waits."""


class StepLanes:
    """Makes lanes of a run's ticks: `feed` takes them in order, as many at a time as there are."""

    def __init__(self, read_field: FieldReader, state: BrokerState | None = None) -> None:
        self.lanes = Lanes()
        self._draft = Draft(state if state is not None else BrokerState(), STEPS, read_field)
        self._items: dict[int, _Item] = {}
        self._of_seq: dict[int, int] = {}
        """The item of each command that started or resumed an execution."""
        self._queued: dict[str, deque[int]] = {}
        """The bars of new work in the queues of steps, first in first out: no report says which item it is."""
        self._again: dict[int, tuple[LaneRecord, int]] = {}
        """The bars of items that are in a queue again, by item."""
        self._returning: dict[int, LaneRecord] = {}
        """Items that are back in a queue with this tick. Most leave it at once, and get no bar."""
        self._delayed: dict[int, tuple[LaneRecord, int, int]] = {}
        """The bars of back-offs and their items, by timer."""
        if state is not None:
            self.lanes.is_partial = True
            self.lanes.seen(state.at)
            if state.outcome is None or state.outcome.status == "parked":
                self._adopt()  # what a cancelled run had in hand does not go on
                self._queue_returned()

    @property
    def ticks(self) -> int:
        """Return how many ticks have been taken in, those before the first state included."""
        return self._draft.ticks

    @property
    def config(self) -> BrokerConfig:
        """Return the code of the run as of the last tick."""
        return self._draft.config

    @property
    def weight(self) -> int:
        """Return about how many bytes the lanes take."""
        return self.lanes.weight

    def feed(self, ticks: Iterable[WorkflowTick]) -> None:
        """Take in the next ticks."""
        for tick in ticks:
            self._take(tick)

    # -- one tick -----------------------------------------------------------------------------------------------------

    def _take(self, tick: WorkflowTick) -> None:
        d, kind = self._draft, type(tick)
        before = d.outcome.status if d.outcome is not None else None
        had_cleanup = d.cleanup is not None
        timer = d.timers.get(tick.timer) if isinstance(tick, TickTimerFired) else None
        execution = self._executing(tick) if isinstance(tick, TickStepResult) else None
        d.commands = []
        transition(d, tick)
        commands, d.commands = d.commands, []
        self.lanes.seen(d.at)
        if d.cleanup is not None and not had_cleanup:
            self._close_all(parked=False)  # a cancel drops all work before the run cleans up
        if isinstance(tick, TickStepResult) and execution is not None and before is None and not _ran_out(d):
            self._result(tick, execution, commands)
        elif kind in _RARE:
            self._rarely(tick, timer)
        concerned = self._obey(commands)
        if isinstance(tick, _BEGIN_WAITS):
            concerned.append(tick.source.item)
        elif isinstance(tick, _OF_ITEMS):
            concerned.append(tick.item)
        for item in concerned:
            self._sync(item)
        if (kind is TickResume or kind is TickRetryRun) and (d.outcome is None or d.outcome.status == "parked"):
            self._adopt()  # a recovery queues what was under way, also if the run is parked at once
        if self._returning:
            self._queue_returned()
        if d.outcome is not None and d.outcome.status != before:
            self._close_all(parked=d.outcome.status == "parked")

    def _rarely(self, tick: WorkflowTick, timer: Timer | None) -> None:
        """Take in a recovery, and the end of back-offs and sleeps. `timer` is what a fired timer was."""
        d = self._draft
        if isinstance(tick, TickResume) and d.outcome is None:
            self._cut(tick.at - tick.away_s)
        elif isinstance(tick, TickTimerFired) and timer is not None and tick.timer not in d.timers:
            self._fired(tick.timer, timer)
        elif isinstance(tick, TickSkip):
            for number in [number for number in self._delayed if number not in d.timers]:
                self._over(number)

    def _executing(self, tick: TickStepResult) -> Execution | None:
        worker = self._draft.workers.get(tick.step)
        found = worker.execution(tick.item) if worker is not None else None
        return found if found is not None and found.seq == tick.seq and found.live else None

    @property
    def _tick(self) -> int:
        """The number of the tick that was reduced last."""
        return self._draft.ticks - 1

    def _lane(self, step: str) -> LaneRecord:
        lane = self.lanes.by_name.get(step)
        if lane is None:
            lane = self.lanes.by_name[step] = LaneRecord(step, "step")
        return lane

    def _obey(self, commands: list[WorkflowCommand]) -> list[int]:
        """Follow the commands of a tick: work that begins, goes on or is queued. Returns its items."""
        found = []
        for command in commands:
            kind = type(command)
            if kind is CommandRunWorker:
                self._begin(command.seq, command.item)  # type: ignore[union-attr]
                found.append(command.item.id)  # type: ignore[union-attr]
            elif kind is CommandPublishEvent:
                event = command.event  # type: ignore[union-attr]
                if type(event) is StepReport and event.phase == "preparing":
                    lane = self._lane(event.step)
                    self._queued.setdefault(event.step, deque()).append(self._enqueue(lane))
            elif kind is CommandResumeWorker:
                item = self._of_seq.get(command.seq)  # type: ignore[union-attr]
                if item is not None:
                    found.append(item)
        return found

    # -- queues -------------------------------------------------------------------------------------------------------

    def _enqueue(self, lane: LaneRecord) -> int:
        lane.mark("queued", self._tick)
        return lane.begin(QUEUE, self._draft.at, self._tick)

    def _dequeue(self, lane: LaneRecord, bar: int, status: int = OK) -> None:
        lane.unmark("queued", self._tick)
        lane.end(bar, self._draft.at, self._tick, status)

    def _begin(self, seq: int, item: WorkItem) -> None:
        """An attempt was dispatched: it leaves the queue, if it was in one."""
        lane = self._lane(item.step)
        again = self._again.pop(item.id, None)
        is_back = self._returning.pop(item.id, None) is not None or item.id in self._items
        if again is not None:
            self._dequeue(*again)
        elif not is_back and (waiting := self._queued.get(item.step)):
            self._dequeue(lane, waiting.popleft())
        known = self._items.get(item.id)
        if known is None:
            known = self._items[item.id] = _Item(lane, seq, item.attempts + 1, waits={})
        elif known.work is not None:
            self._stop(known, CANCELLED)  # the same attempt from the top
        self._of_seq.pop(known.seq, None)
        known.seq, known.attempt = seq, item.attempts + 1
        self._of_seq[seq] = item.id

    # -- work ---------------------------------------------------------------------------------------------------------

    def _work(self, item: _Item) -> None:
        item.work = item.lane.begin(WORK, self._draft.at, self._tick, item.attempt)
        item.lane.mark("executing", self._tick)

    def _stop(self, item: _Item, status: int, error: str | None = None, at: float | None = None) -> None:
        if item.work is not None:
            item.lane.end(item.work, self._draft.at if at is None else at, self._tick, status, error)
            item.lane.unmark("executing", self._tick)
            item.work = None

    def _suspend(self, item: _Item, suspended: bool) -> None:
        if item.suspended is not suspended:
            item.suspended = suspended
            (item.lane.mark if suspended else item.lane.unmark)("waiting", self._tick)

    def _sync(self, number: int) -> None:
        """Bring the bars of an item in line with the state."""
        item, d = self._items.get(number), self._draft
        if item is None:
            return
        worker = d.workers.get(item.lane.name)
        executing = worker is not None and number in worker.in_progress and d.outcome is None
        if executing and item.work is None:
            self._work(item)
        elif not executing:
            self._stop(item, OK)
        self._suspend(item, worker is not None and number in worker.suspended)
        there = d.waiting.open.get(number, EMPTY_MAP)
        for key in [key for key in item.waits if key not in there]:
            item.lane.end(item.waits.pop(key), d.at, self._tick, OK)
        for key in sorted(key for key in there if key not in item.waits):
            item.waits[key] = item.lane.begin(WAIT, d.at, self._tick, item.attempt)
        if not executing and not item.suspended:
            if _is_first(worker, number):
                self._requeue(item.lane, number)  # its body shall run again, and has to wait for that
            self._forget(number, item)

    def _forget(self, number: int, item: _Item) -> None:
        for bar in item.waits.values():
            item.lane.end(bar, self._draft.at, self._tick, CANCELLED)
        self._of_seq.pop(item.seq, None)
        del self._items[number]

    def _result(self, tick: TickStepResult, execution: Execution, commands: list[WorkflowCommand]) -> None:
        """An execution is over. A body that was given a wrong answer runs again, which is no end."""
        lane, number = self._lane(tick.step), self._tick
        item = self._items.get(tick.item)
        worker = self._draft.workers.get(tick.step)
        failure = tick.failure
        if failure is None:
            if tick.collects and _runs_again(worker, commands, tick.item):
                if worker is not None and tick.item not in worker.in_progress:
                    self._requeue(lane, tick.item)
                return
            lane.mark("completed", number)
            if item is not None:
                self._stop(item, OK)
            return
        if tick.max_attempts is not None:
            lane.max_attempts = tick.max_attempts or None
        if item is not None:
            text = f"{failure.type.rpartition('.')[2]}: {failure.message}" if failure.message else failure.type
            self._stop(item, FAILED, text)
        if tick.retry_delay_s is None:
            lane.mark("failed", number)
            return
        lane.mark("retries", number)
        timer = next((c.seq for c in commands if isinstance(c, CommandStartTimer) and c.purpose == "retry"), None)
        if timer is not None:
            lane.mark("delayed", number)
            bar = lane.begin(DELAY, self._draft.at, number, execution.item.attempts + 2)
            self._delayed[timer] = lane, bar, tick.item
        else:
            self._requeue(lane, tick.item)

    def _requeue(self, lane: LaneRecord, item: int) -> None:
        """Note that an item is back in its queue. If it leaves it with the same tick, that is seen at once."""
        if item not in self._again:
            self._returning[item] = lane

    def _queue_returned(self) -> None:
        self._again |= {item: (lane, self._enqueue(lane)) for item, lane in self._returning.items()}
        self._returning = {}

    def _fired(self, number: int, timer: Timer) -> None:
        """A timer is due: that of a back-off, or of a sleep, whose body may still have no worker."""
        if number in self._delayed:
            self._over(number)
        elif timer.purpose == "sleep":
            self._sync(timer.ref)

    def _over(self, number: int) -> None:
        """A back-off is over, in time or because a caller skipped it."""
        lane, bar, item = self._delayed.pop(number)
        lane.unmark("delayed", self._tick)
        lane.end(bar, self._draft.at, self._tick, OK)
        if self._draft.outcome is None:
            self._requeue(lane, item)

    # -- the run as a whole -------------------------------------------------------------------------------------------

    def _cut(self, died_at: float) -> None:
        """No body is alive after a recovery: what executed was cut off when its process died, and is in a queue."""
        for number, item in list(self._items.items()):
            if item.work is not None:
                begin = item.lane.since(item.work)
                at = max(died_at, begin if begin is not None else died_at)
                self._stop(item, CANCELLED, "Its process has stopped.", min(at, self._draft.at))
                if not item.suspended:
                    self._requeue(item.lane, number)

    def _adopt(self) -> None:
        """Take over from the state what no tick has told of: after a snapshot, or when a failed run goes on."""
        d = self._draft
        for step, worker in sorted(d.workers.items()):
            lane = self._lane(step)
            for execution in sorted([*worker.in_progress.values(), *worker.suspended.values()], key=lambda e: e.seq):
                item = execution.item
                if item.id not in self._items:
                    self._items[item.id] = _Item(lane, execution.seq, item.attempts + 1, waits={})
                    self._of_seq[execution.seq] = item.id
                self._sync(item.id)
            fresh = len(self._queued.get(step, ()))
            for item in list(worker.queue)[: max(0, worker.queue.size - fresh)]:
                self._requeue(lane, item.id)
            for timer, item in sorted(worker.delayed.items()):
                if timer not in self._delayed:
                    lane.mark("delayed", self._tick)
                    self._delayed[timer] = lane, lane.begin(DELAY, d.at, self._tick, item.attempts + 1), item.id

    def _close_all(self, *, parked: bool) -> None:
        """End what is open: the run is over, or cleans up. If parked, its bodies have stopped, and it still waits."""
        for number, item in list(self._items.items()):
            self._stop(item, CANCELLED)
            if not parked:
                self._suspend(item, suspended=False)
                self._forget(number, item)
        if parked:
            return
        for lane, bar, _ in self._delayed.values():
            lane.unmark("delayed", self._tick)
            lane.end(bar, self._draft.at, self._tick, CANCELLED)
        for lane, bar in self._again.values():
            self._dequeue(lane, bar, CANCELLED)
        for step, bars in self._queued.items():
            for bar in bars:
                self._dequeue(self._lane(step), bar, CANCELLED)
        self._delayed, self._again, self._queued = {}, {}, {}


def _ran_out(d: Draft) -> bool:
    """Tell whether the run has ended by its time, so that a result came too late."""
    return d.outcome is not None and d.outcome.status == "timed_out"


def _runs_again(worker: InternalStepWorkerState | None, commands: list[WorkflowCommand], item: int) -> bool:
    """Tell whether the body of an item is to run again with what it had begun."""
    if any(type(command) is CommandRunWorker and command.item.id == item for command in commands):
        return True
    return _is_first(worker, item)


def _is_first(worker: InternalStepWorkerState | None, item: int) -> bool:
    """Tell whether an item is at the head of its queue, where work goes that was dispatched before."""
    first = next(iter(worker.queue), None) if worker is not None else None
    return first is not None and first.id == item
