"""Why a run is where it is, from made-up rows and states: what the conformance suite cannot bring about quickly."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from loom.core.persistent import Map
from loom.core.records import EventKind, EventRecord, Failure, Refusal, WaiterReport
from loom.core.state import BrokerState, Execution, InternalStepWorkerState, Timer, WorkItem
from loom.runtime.why import explained
from loom.store.records import Holder, RunHead, RunRow

NOW = 1_000_000.0
HEAD = RunHead("running", 3, 2, NOW - 50, needs_worker=False)
ROW = RunRow("r", "w", NOW - 100, HEAD)
EVENT = EventRecord(EventKind("shop.Order", label="Order"))
ITEM = WorkItem(1, "work", EVENT, first_at=NOW - 40)
STATE = BrokerState(run_id="r", is_running=True)


def row(**changed: object) -> RunRow:
    return replace(ROW, head=replace(HEAD, **changed))


def busy_state(*, queued: int = 0) -> BrokerState:
    worker = InternalStepWorkerState(num_workers=1, in_progress=Map({1: Execution(1, 1, ITEM, 0)}))
    for number in range(queued):
        worker = replace(worker, queue=worker.queue.push_back(replace(ITEM, id=number + 2)))
    return replace(STATE, workers=Map({"work": worker}), active=1 + queued)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            explained(replace(row(status="failed", error="work: ValueError: no"), ended_at=NOW - 5), None, NOW),
            "It failed at 1970-01-12 13:46:35 UTC (5s ago): work: ValueError: no",
        ),
        (
            explained(replace(row(status="cancelled"), ended_at=NOW - 7200), None, NOW),
            "It was cancelled at 1970-01-12 11:46:40 UTC (2h ago).",
        ),
        (
            explained(row(ticks=0, error="No worker of task queue 'q' answers."), None, NOW),
            "No worker of task queue 'q' answers.",
        ),
        (
            explained(row(ticks=0), None, NOW),
            "No worker has begun it yet: it was started at 1970-01-12 13:45:00 UTC (1m 40s ago). "
            "Is a process at work for 'w', with room for it?",
        ),
        (
            explained(row(ticks=0), None, NOW, Holder("p-1")),
            "Process 'p-1' is about to begin it: it was started at 1970-01-12 13:45:00 UTC (1m 40s ago).",
        ),
        (
            explained(row(parked="The code at hand has no step 'x'."), STATE, NOW),
            "It is parked until other code comes or it is resumed: The code at hand has no step 'x'.",
        ),
        (
            explained(row(needs_worker=True), busy_state(), NOW, Holder("p-1", False, NOW - 20, NOW + 5)),
            "It is held by process 'p-1', which was last heard of at 1970-01-12 13:46:20 UTC (20s ago): a worker "
            "takes it over when the lease is over.",
        ),
        (
            explained(row(needs_worker=True), busy_state(), NOW, Holder("p-1", alive=False)),
            "It is held by process 'p-1': a worker takes it over once one works for 'w' again.",
        ),
        (
            explained(row(paused=True), STATE, NOW, messages=1),
            "No worker has it in memory, though 1 message waits for it: is a process at work for 'w'?",
        ),
        (
            explained(row(needs_worker=True), busy_state(), NOW),
            "No worker has it in memory, though it has work to do: is a process at work for 'w'?",
        ),
        (
            explained(row(idle_since=NOW - 9), STATE, NOW, messages=2),
            "No worker has it in memory, though 2 messages wait for it: is a process at work for 'w'?",
        ),
        (
            explained(row(), None, NOW, damage="chunk 3 is cut"),
            "Its journal cannot be read: chunk 3 is cut",
        ),
        (
            explained(row(needs_worker=True), busy_state(), NOW, Holder("p-1")),
            "Step 'work' executes since 1970-01-12 13:46:00 UTC (40s) in process 'p-1'.",
        ),
        (explained(row(), STATE, NOW, Holder("p-1")), "It goes on: nothing holds it."),
    ],
)
def test_sentences(found: object, sentence: str) -> None:
    assert found.sentence == sentence  # type: ignore[attr-defined]


def test_the_most_decisive_cause_comes_first_and_all_are_told() -> None:
    late = replace(ITEM, id=9, step="late", attempts=2, last_failure=Failure("builtins.OSError", "a\nb"))
    state = busy_state(queued=2)
    workers = state.workers.set("late", InternalStepWorkerState(delayed=Map({7: late})))
    state = replace(state, workers=workers, timers=Map({7: Timer(NOW + 90, "retry", "late")}))
    waiters = [WaiterReport("ask", "shop.Word", since=NOW - 1, deadline=NOW + 1)]
    why = explained(row(paused=True), state, NOW, Holder("p-1"), waiters=waiters)
    assert [cause.kind for cause in why.causes] == ["paused", "busy", "queued", "backoff", "waiter"]
    queued, backoff, waiter = why.causes[2:]
    assert queued.sentence == "Step 'work' has 2 more to do, and all 1 of its workers are busy."
    assert backoff.sentence == (
        "Step 'late' failed 2 times, and attempt 3 is due at 1970-01-12 13:48:10 UTC (in 1m 30s): OSError: a b"
    )
    assert (backoff.attempt, backoff.error) == (3, "OSError: a b")
    assert waiter.sentence == (
        "Step 'ask' waits for event 'Word' since 1970-01-12 13:46:39 UTC (1s), at most until 1970-01-12 13:46:41 UTC "
        "(in 1s)."
    )
    assert why.at == datetime.fromtimestamp(NOW, tz=UTC)


def test_a_timer_whose_time_is_over_waits_for_a_worker() -> None:
    state = replace(STATE, timers=Map({7: Timer(NOW - 30, "sleep", "rest")}), asleep=1)
    assert explained(row(), state, NOW).kind == "no_worker"
    assert explained(row(), state, NOW, Holder("p-1")).kind == "timer"
    assert explained(row(paused=True), state, NOW).kind == "paused"


def test_a_silent_owner_is_not_what_holds_a_run_that_waits_for_input() -> None:
    waiters = [WaiterReport("ask", "shop.Word", since=NOW - 1)]
    silent = Holder("p-1", alive=False)
    idle = row(idle_since=NOW - 1, waiting_for=("Word",))
    found = explained(idle, STATE, NOW, silent, waiters=waiters)
    assert [cause.kind for cause in found.causes] == ["waiter", "lease"]
    assert explained(idle, STATE, NOW, silent, waiters=waiters, messages=1).kind == "lease"


def test_the_timeout_of_a_stuck_run_is_told() -> None:
    state = replace(STATE, timers=Map({7: Timer(NOW + 100, "timeout", "")}))
    found = explained(row(idle_since=NOW), state, NOW, Holder("p-1"))
    assert [cause.kind for cause in found.causes] == ["stuck", "timeout"]
    assert found.causes[1].sentence == "The timeout of the run ends it at 1970-01-12 13:48:20 UTC (in 1m 40s)."


def test_credentials_in_an_error_are_masked() -> None:
    found = explained(replace(row(status="failed", error="no line: password=hunter2"), ended_at=NOW), None, NOW)
    assert "hunter2" not in found.sentence
    assert found.causes[0].error == "no line: password=***"


def test_of_many_causes_of_a_kind_the_first_are_told() -> None:
    waiters = [WaiterReport("ask", f"shop.Word{n}", since=NOW - n) for n in range(50)]
    assert (
        len(explained(row(idle_since=NOW, waiting_for=("Word",)), STATE, NOW, Holder("p"), waiters=waiters).causes)
        == 20
    )


@pytest.mark.parametrize(
    ("held", "holder"),
    [({"parked": "no step 'x'"}, None), ({"needs_worker": True}, None), ({}, Holder("p-1", alive=False))],
)
def test_a_step_that_nobody_is_at_does_not_execute(held: dict[str, object], holder: Holder | None) -> None:
    found = explained(row(**held), busy_state(), NOW, holder)
    [busy] = [cause for cause in found.causes if cause.kind == "busy"]
    assert busy.sentence == "Step 'work' was begun at 1970-01-12 13:46:00 UTC (40s ago) and has not ended."


def test_an_answer_that_was_refused_is_told_with_its_waiter() -> None:
    refused = Refusal("Word", "text: Field required", NOW - 1)
    waiters = [WaiterReport("ask", "shop.Word", since=NOW - 2, refused=refused)]
    why = explained(row(idle_since=NOW - 1, waiting_for=("Word",)), STATE, NOW, Holder("p"), waiters=waiters)
    assert why.sentence == (
        "Step 'ask' waits for event 'Word' since 1970-01-12 13:46:38 UTC (2s); "
        "the last Word was refused: text: Field required."
    )
    assert why.causes[0].refused == "text: Field required"
