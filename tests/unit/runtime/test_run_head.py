"""The row of a run, from its state."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from loom.core.persistent import Map
from loom.core.records import Failure, Refusal
from loom.core.state import (
    MAX_REPORTED,
    BrokerConfig,
    BrokerState,
    Child,
    InternalStepWorkerState,
    Outcome,
    StepSpec,
    StepWorkerWaiter,
    Waiting,
)
from loom.runtime.run_head import HeadWriter, child_ended, status_of


def waiting_state(count: int, **fields: object) -> BrokerState:
    """A run in which so many waiters wait."""
    waiters = Map({n: StepWorkerWaiter(n, "ask", n, f"wait:0:{n}", str(n), "shop.Word") for n in range(count)})
    index = Map({"shop.Word": Map(dict.fromkeys(range(count), "ask"))})
    return BrokerState(
        run_id="a",
        is_running=True,
        workers=Map({"ask": InternalStepWorkerState(collected_waiters=waiters)}),
        waiting=Waiting(index=index),
        idle_since=5.0,
        **fields,  # type: ignore[arg-type]
    )


def head_of(state: BrokerState, writer: HeadWriter | None = None):
    return (writer or HeadWriter()).head(state, lambda: state, 7.0)


def test_waiters_are_shown_and_found_by_both_names() -> None:
    head, changed = head_of(waiting_state(1))
    assert changed
    assert head.waiting_for == ("Word", "shop.Word")
    assert [waiter["step"] for waiter in json.loads(head.waiters)] == ["ask"]
    assert (head.idle_since, head.needs_worker, head.downtime) == (5.0, False, 7.0)


def test_of_many_waiters_the_oldest_are_shown() -> None:
    head, _ = head_of(waiting_state(MAX_REPORTED + 5))
    assert [waiter["waiter_id"] for waiter in json.loads(head.waiters)] == [str(n) for n in range(MAX_REPORTED)]


def test_waiters_are_written_alike_whether_they_are_remembered_or_not() -> None:
    writer, states = HeadWriter(), [waiting_state(count) for count in (30, 31, 12, 3, 30)]
    other = states[1].workers["ask"].collected_waiters
    changed = other.set(4, replace(other[4], requirements=(("n", True),))).set(5, replace(other[5], deadline=9.0))
    workers = Map({"ask": InternalStepWorkerState(collected_waiters=changed)})
    states.insert(2, replace(states[1], workers=workers, waiting=Waiting(index=states[0].waiting.index)))
    for state in states:
        head, _ = head_of(state, writer)
        alone, _ = head_of(state)
        assert (head.waiters, head.waiting_for) == (alone.waiters, alone.waiting_for)
        assert head.waiters == json.dumps(json.loads(head.waiters)).encode()


def test_waiters_that_did_not_change_are_not_written_again() -> None:
    writer, state = HeadWriter(), waiting_state(1)
    assert head_of(state, writer)[1]
    assert not head_of(state, writer)[1]
    assert head_of(waiting_state(2), writer)[1]


def test_refusal_of_a_run_that_stayed_idle_is_written() -> None:
    # On Temporal one activation takes a run from idle to idle: no head is made in between.
    taking = BrokerConfig("w", steps=(StepSpec("take", ("shop.Word",), inputs=("shop.Word",)),))
    state = BrokerState(run_id="a", is_running=True, idle_since=5.0, config=taking)
    writer = HeadWriter()
    head_of(state, writer)
    refusal = Refusal("Word", "by: Field required", 6.0)
    head, changed = head_of(replace(state, refused=Map({"take": refusal})), writer)
    assert changed
    assert json.loads(head.waiters)[0]["refused"]["reason"] == "by: Field required"


def test_child_run_is_something_to_wait_for() -> None:
    child = Child("a:1", "double", "begin", 1, "child:0", 0.0)
    head, _ = head_of(BrokerState(run_id="a", is_running=True, idle_since=1.0, children=Map({1: child})))
    assert head.waiting_for == ("child run",)


@pytest.mark.parametrize(("paused", "needs"), [(False, True), (True, False)])
def test_work_needs_a_worker_unless_the_run_is_paused(paused: bool, needs: bool) -> None:
    head, _ = head_of(BrokerState(run_id="a", is_running=True, active=1, paused=paused))
    assert (head.needs_worker, head.paused) == (needs, paused)


def test_parked_run_is_running_and_says_why_it_does_not_go_on() -> None:
    head, _ = head_of(BrokerState(run_id="a", active=1, outcome=Outcome("parked", message="no step 'ask'")))
    assert (head.status, head.parked, head.error) == ("running", "no step 'ask'", None)


def test_error_of_a_failed_run_is_one_short_line() -> None:
    failure = Failure("builtins.ValueError", "first\nsecond " + "x" * 1000)
    head, _ = head_of(BrokerState(run_id="a", outcome=Outcome("failed", step="ask", failure=failure)))
    assert head.status == "failed"
    assert head.error is not None
    assert head.error.startswith("ask: ValueError: first second xxx")
    assert len(head.error) == 500


def test_statuses() -> None:
    names = ("completed", "failed", "timed_out", "cancelled", "parked")
    found = [status_of(Outcome(name)) for name in names]  # type: ignore[arg-type]
    assert [status_of(None), *found] == ["running", "completed", "failed", "failed", "cancelled", "running"]


def test_parent_learns_how_its_child_ended() -> None:
    tick = child_ended(BrokerState(run_id="a:3", at=9.0, outcome=Outcome("timed_out", message="too long")), 3)
    assert (tick.child, tick.status, tick.at) == (3, "timed_out", 9.0)
