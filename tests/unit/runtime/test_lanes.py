"""The lanes of small journals: attempts, back-offs, waits, queues, a crash in the middle, a flow's loop."""

from __future__ import annotations

from loom.core.records import START_EVENT, EventKind, EventRecord, Failure
from loom.core.reducer import no_fields
from loom.core.state import BrokerConfig, StepSpec
from loom.core.ticks import (
    Source,
    TickAddEvent,
    TickAwaitEvent,
    TickResume,
    TickStartRun,
    TickStepResult,
    TickTimerFired,
    WorkflowTick,
)
from loom.runtime.views import lanes as columns
from loom.runtime.views.lanes import LaneRecord
from loom.runtime.views.step_lanes import StepLanes

CONFIG = BrokerConfig(
    "small", (StepSpec("work", accepts=(START_EVENT,), num_workers=1), StepSpec("ask", accepts=("Ask",)))
)
KINDS, STATUSES = ("work", "wait", "delay", "queue"), ("running", "ok", "failed", "cancelled")
START = TickStartRun(at=0.0, run_id="r", config=CONFIG, event=EventRecord(EventKind(START_EVENT)))


def added(at: float, name: str) -> TickAddEvent:
    return TickAddEvent(at=at, event=EventRecord(EventKind(name)))


def told(lane: LaneRecord) -> list[tuple[str, float, float | None, int, str]]:
    """The bars of a lane: kind, begin, end, attempt, status."""
    rows = lane.rows(list(range(len(lane))))
    return [(KINDS[row.kind], row.begin, row.end, row.attempt, STATUSES[row.status]) for row in rows]


def lane_of(name: str, *ticks: WorkflowTick) -> LaneRecord:
    made = StepLanes(no_fields)
    made.feed(ticks)
    return made.lanes.by_name[name]


def test_an_attempt_that_failed_and_the_next_one() -> None:
    lane = lane_of(
        "work",
        START,
        TickStepResult(at=1.0, step="work", item=1, seq=1, failure=Failure("OSError", "busy"), retry_delay_s=5.0),
        TickTimerFired(at=6.0, timer=2),
        TickStepResult(at=8.0, step="work", item=1, seq=3),
    )
    assert told(lane) == [
        ("work", 0.0, 1.0, 1, "failed"),
        ("delay", 1.0, 6.0, 2, "ok"),
        ("work", 6.0, 8.0, 2, "ok"),
    ]
    assert [lane.count("completed", tick) for tick in range(4)] == [0, 0, 0, 1]
    assert [lane.count("delayed", tick) for tick in range(4)] == [0, 1, 0, 0]
    assert [lane.attempt_at(tick) for tick in range(4)] == [1, 2, 2, None]
    assert next(lane.rows([0])).error == "OSError: busy"


def test_work_that_waits_for_a_worker() -> None:
    again = added(1.0, START_EVENT)
    lane = lane_of("work", START, again, TickStepResult(at=4.0, step="work", item=1, seq=1))
    assert told(lane) == [
        ("work", 0.0, 4.0, 1, "ok"),
        ("queue", 1.0, 4.0, 1, "ok"),
        ("work", 4.0, None, 1, "running"),
    ]


def test_a_body_that_waits_gives_its_worker_back() -> None:
    waits = TickAwaitEvent(at=2.0, source=Source("ask", 2, 2, 0), waiter_id="w", occurrence=0, event_type="Answer")
    lane = lane_of(
        "ask",
        START,
        added(1.0, "Ask"),
        waits,
        added(9.0, "Answer"),
        TickStepResult(at=10.0, step="ask", item=2, seq=2),
    )
    assert told(lane) == [
        ("work", 1.0, 2.0, 1, "ok"),
        ("wait", 2.0, 9.0, 1, "ok"),
        ("work", 9.0, 10.0, 1, "ok"),
    ]


def test_what_a_crash_cut_off_ends_when_the_process_died() -> None:
    lane = lane_of(
        "work", START, TickResume(at=100.0, away_s=90.0), TickStepResult(at=103.0, step="work", item=1, seq=2)
    )
    assert told(lane) == [("work", 0.0, 10.0, 1, "cancelled"), ("work", 100.0, 103.0, 1, "ok")]
    assert lane.count("completed", 2) == 1


def test_old_bars_are_dropped_and_counts_stay() -> None:
    lane = LaneRecord("work", "step")
    for number in range(10):
        lane.mark("completed", number)
        lane.end(lane.begin(columns.WORK, float(number), number), number + 0.5, number, columns.FAILED, f"no {number}")
    last = lane.begin(columns.WORK, 10.0, 10)
    lane.drop(6)
    lane.end(last, 11.0, 11, columns.OK)
    assert [row.error for row in lane.rows([0, 4])] == ["no 6", None]
    assert lane.within(7.0, 8.0) == [1, 2]
    assert lane.count("completed", 4) == 5
