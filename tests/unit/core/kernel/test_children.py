"""Child runs: one per call, an answer like any other, and none that outlives its use."""

from __future__ import annotations

from typing import Any

import pytest
from core_rig import STOP, Rig, ev

from loom.core.commands import CommandCancelChild, CommandResumeWorker, CommandRunWorker, CommandStartChild
from loom.core.records import Failure
from loom.core.reports import IdleReport, WaiterReport
from loom.core.state import ChildEnd
from loom.core.ticks import (
    TickCancelRun,
    TickChildEnded,
    TickEndWait,
    TickParkRun,
    TickResume,
    TickRetryRun,
    TickStartChild,
)


def child(rig: Rig, item: int = 1, occurrence: int = 0, ordinal: int | None = None, **more: Any) -> Rig:
    source = rig.source(item, ordinal)
    return rig.tick(
        TickStartChild(at=0.0, source=source, occurrence=occurrence, workflow="pay", start={"n": 1}, **more)
    )


def ended(rig: Rig, number: int, status: Any = "completed", **more: Any) -> Rig:
    return rig.tick(TickChildEnded(at=0.0, child=number, status=status, **more))


def parent() -> Rig:
    return child(Rig().start())


def test_child_is_started_under_an_id_of_its_parents_and_the_worker_is_free() -> None:
    rig = parent()
    assert rig.commands(CommandStartChild) == [CommandStartChild(2, "r:2", "pay", {"n": 1})]
    assert rig.body().waits_on == "child:0"
    assert rig.event().dispatched() == [("work", 2)]


def test_parent_that_waits_is_idle_and_says_for_what() -> None:
    rig = parent()
    assert rig.state.is_idle()
    (report,) = rig.published(IdleReport)
    assert report.waiters == (WaiterReport("work", "child run", "r:2", since=0.0),)


def test_result_goes_to_the_body_that_waits() -> None:
    rig = ended(parent(), 2, event=ev(STOP, n=7))
    (resumed,) = rig.commands(CommandResumeWorker)
    assert (resumed.key, resumed.event) == ("child:0", ev(STOP, n=7))
    assert resumed.child == ChildEnd("r:2", "completed")
    assert not rig.state.children


@pytest.mark.parametrize("status", ["failed", "cancelled", "timed_out"])
def test_failure_is_an_answer_too(status: str) -> None:
    failure = Failure("x.E", "no") if status == "failed" else None
    rig = ended(parent(), 2, status, failure=failure)
    (resumed,) = rig.commands(CommandResumeWorker)
    assert (resumed.event, resumed.child) == (None, ChildEnd("r:2", status, failure))  # type: ignore[arg-type]


def test_end_of_an_unknown_child_is_dropped_and_counted() -> None:
    rig = ended(parent(), 9)
    assert rig.state.dropped == 1
    ended(rig, 2, event=ev(STOP))
    assert ended(rig, 2, event=ev(STOP)).state.dropped == 2


def test_body_that_runs_again_after_a_crash_finds_its_child() -> None:
    rig = child(Rig().start(), suspends=False).tick(TickResume(at=0.0))
    assert rig.commands(CommandStartChild) == []
    assert child(rig, ordinal=0).commands(CommandStartChild) == []
    (resumed,) = ended(rig, 2, event=ev(STOP)).commands(CommandResumeWorker)
    assert resumed.event == ev(STOP)


def test_body_that_runs_again_finds_the_answer_that_came_meanwhile() -> None:
    rig = parent().tick(TickResume(at=0.0))
    assert rig.last == []
    assert ended(rig, 2, event=ev(STOP)).dispatched() == [("work", 1)]
    (resumed,) = child(rig, ordinal=0).commands(CommandResumeWorker)
    assert resumed.event == ev(STOP)


def test_two_children_at_once_each_have_their_answer() -> None:
    rig = child(Rig().start(), suspends=False)
    child(rig, occurrence=1, suspends=False)
    ended(rig, 3, event=ev(STOP, n=3))
    (resumed,) = rig.commands(CommandResumeWorker)
    assert (resumed.key, resumed.event) == ("child:1", ev(STOP, n=3))
    assert set(rig.state.children) == {2}


def test_wait_that_the_body_gives_up_cancels_its_child() -> None:
    rig = parent()
    rig.tick(TickEndWait(at=0.0, step="work", item=1, seq=rig.body().seq, key="child:0"))
    assert rig.commands(CommandCancelChild) == [CommandCancelChild(2, "r:2")]
    assert rig.body().waits_on == ""


def test_settled_item_cancels_what_it_waited_for() -> None:
    rig = child(Rig().start(), suspends=False).finish(1)
    assert rig.commands(CommandCancelChild) == [CommandCancelChild(2, "r:2")]


def test_new_attempt_finds_the_child_that_is_under_way_and_one_that_failed_is_started_anew() -> None:
    rig = child(Rig().start(), suspends=False)
    child(rig, occurrence=1, suspends=False)
    ended(rig, 2, "failed", failure=Failure("x.E", "no"))
    rig.fail(1, delay=0.0)
    (started,) = child(rig, suspends=False).commands(CommandStartChild)
    assert started.run_id == "r:5"
    assert child(rig, occurrence=1, suspends=False).commands(CommandStartChild) == []


@pytest.mark.parametrize("how", ["completed", "failed", "timed_out", "cancelled"])
def test_every_end_of_the_parent_ends_its_children(how: str) -> None:
    rig = Rig(timeout_s=10.0).start().event()
    child(rig)
    if how == "completed":
        rig.finish(2, [ev(STOP)])
    elif how == "failed":
        rig.fail(2)
    elif how == "timed_out":
        rig.fire("timeout")
    else:
        rig.tick(TickCancelRun(at=0.0))
    assert [c.run_id for c in rig.commands(CommandCancelChild)] == ["r:3"]
    assert rig.state.outcome is not None
    assert (rig.state.outcome.status, len(rig.state.children)) == (how, 0)


def test_parked_parent_keeps_its_children() -> None:
    rig = parent().tick(TickParkRun(at=0.0, reason="no such type"))
    assert rig.commands(CommandCancelChild) == []
    rig.tick(TickResume(at=0.0))
    assert rig.commands(CommandStartChild) == []
    assert ended(rig, 2, event=ev(STOP)).dispatched() == [("work", 1)]


def test_retry_lets_whoever_had_waited_for_a_child_ask_again() -> None:
    rig = parent().event().fail(2).tick(TickRetryRun(at=0.0))
    assert [c.item.id for c in rig.commands(CommandRunWorker)] == [1]
    assert [item.id for item in rig.worker().queue] == [2]
    (started,) = child(rig, ordinal=0).commands(CommandStartChild)
    assert started.run_id != "r:2"


def test_effect_of_another_kind_at_the_same_place_parks() -> None:
    rig = child(Rig().start(), suspends=False).tick(TickResume(at=0.0)).wait(ordinal=0)
    assert rig.state.outcome is not None
    assert "'child:0'" in rig.state.outcome.message
