"""The clean-up step of a cancelled run: when it begins, what ends it, and what the run takes until then."""

from __future__ import annotations

import pytest
from core_rig import START, STOP, WORK, A, B, Rig, ev, kind

from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandRunWorker,
    CommandStartTimer,
    CommandStopWork,
    CommandWarn,
)
from loom.core.records import RUN_CANCELLED_KIND, Cancellation, CancelledReport, UnhandledReport
from loom.core.reducer import rewound
from loom.core.run import Run
from loom.core.state import CleanupSpec, StepLimits, StepSpec
from loom.core.ticks import (
    TickAddEvent,
    TickCancelRun,
    TickEditStore,
    TickParkRun,
    TickPauseRun,
    TickResume,
    TickStartChild,
    TickStartRun,
    TickStepResult,
    TickTimeout,
)
from loom.steps.planner import StepsPlanner

UNDO = StepSpec("undo", (RUN_CANCELLED_KIND.name,), num_workers=1)
OTHER = StepSpec("other", (B.name,))


def rig(**config: object) -> Rig:
    return Rig(WORK, OTHER, UNDO, program=StepLimits(cleanup=CleanupSpec("undo", 60.0)), **config)


def cancelled(at: float = 1.0, **config: object) -> Rig:
    return rig(**config).start().tick(TickCancelRun(at=at, reason="enough"))


def ending(found: Rig) -> tuple[str, str]:
    outcome = found.state.outcome
    assert outcome is not None
    return outcome.status, outcome.message or (outcome.failure.message if outcome.failure is not None else "")


def test_the_step_begins_once_the_work_under_way_was_stopped() -> None:
    found = rig().start().event(A).tick(TickCancelRun(at=1.0, reason="enough"))
    kinds = [type(command) for command in found.last if isinstance(command, CommandStopWork | CommandRunWorker)]
    assert kinds == [CommandStopWork, CommandRunWorker]
    assert found.dispatched() == [("undo", 3)]
    [command] = found.commands(CommandRunWorker)
    assert command.item.event.body == Cancellation("enough", ("work",), 1.0)
    assert found.state.is_running
    assert not found.published(CancelledReport), "the stream ends with the run"


def test_the_run_ends_with_the_step() -> None:
    found = cancelled().finish(2, at=2.0)
    assert ending(found) == ("cancelled", "")
    assert len(found.published(CancelledReport)) == 1
    assert found.state.active == 0
    assert not found.state.timers


def test_what_the_step_returns_leads_nowhere() -> None:
    found = cancelled().finish(2, [ev(STOP)], at=2.0)
    assert ending(found) == ("cancelled", "")


def test_what_stopped_bodies_still_tell_is_stale() -> None:
    found = rig().start()
    late, source = found.body(), found.source()
    found.tick(TickCancelRun(at=1.0))
    found.tick(TickStepResult(at=2.0, step="work", item=1, seq=late.seq, returned=(ev(B),)))
    found.tick(TickEditStore(at=2.0, base_version=0, changed={"x": 1}, source=source))
    assert (found.state.dropped, dict(found.state.store)) == (2, {})
    assert found.state.is_running


def test_a_failed_step_is_tried_again_and_a_failure_for_good_ends_the_run_cancelled() -> None:
    found = cancelled().fail(2, delay=5.0, at=2.0)
    assert found.state.is_asleep()
    found.fire("retry")
    assert found.dispatched() == [("undo", 2)]
    found.fail(2, at=8.0)
    assert ending(found) == ("cancelled", "no")
    assert found.state.outcome is not None
    assert found.state.outcome.step == "undo"
    [warning] = found.commands(CommandWarn)
    assert warning.notice.message == "Clean-up step 'undo' failed 2 times, so the run ends without it: no"


def test_a_handler_of_failures_does_not_get_the_failure_of_the_step() -> None:
    covered = StepSpec("undo", (RUN_CANCELLED_KIND.name,), recovered_by="other")
    found = (
        Rig(WORK, OTHER, covered, program=StepLimits(cleanup=CleanupSpec("undo", 60.0)))
        .start()
        .tick(TickCancelRun(at=1.0))
    )
    assert ending(found.fail(2)) == ("cancelled", "no")


def test_the_bound_on_time_takes_the_place_of_the_timeout_of_the_run() -> None:
    found = cancelled(timeout_s=5.0)
    assert [command.seq for command in found.commands(CommandCancelTimer)] == [1]
    [timer] = found.commands(CommandStartTimer)
    assert (timer.due, timer.purpose) == (61.0, "timeout")
    found.tick(TickTimeout(at=6.0, timer=1))
    assert found.state.is_running, "the timeout of the run is gone"
    found.tick(TickTimeout(at=61.0, timer=timer.seq))
    assert ending(found) == ("cancelled", "Clean-up step 'undo' was not done after 60.0 seconds.")


def test_the_bound_counts_only_time_in_which_a_process_has_the_run() -> None:
    found = cancelled()
    found.state = rewound(found.state, found.planner)
    found.tick(TickResume(at=500.0, away_s=490.0))
    assert found.dispatched() == [("undo", 2)]
    assert found.state.deadline == 551.0
    assert found.body(2).item.event.body == Cancellation("enough", ("work",), 1.0)


def test_the_same_cancel_may_arrive_twice_and_only_force_ends_the_step() -> None:
    found = cancelled().tick(TickCancelRun(at=2.0))
    assert (found.last, found.state.is_running) == ([], True)
    found.tick(TickCancelRun(at=3.0, force=True))
    assert ending(found) == ("cancelled", "")


def test_force_ends_a_run_without_the_step() -> None:
    found = rig().start().tick(TickCancelRun(at=1.0, force=True))
    assert ending(found) == ("cancelled", "")
    assert found.dispatched() == []


def test_a_run_that_has_begun_no_work_has_nothing_to_clean_up() -> None:
    found = rig().start(of=None).tick(TickCancelRun(at=1.0))
    assert ending(found) == ("cancelled", "")


def test_a_parked_run_ends_at_once_also_in_the_middle_of_the_step() -> None:
    for found in (rig().start(), cancelled()):
        found.tick(TickParkRun(at=2.0, reason="no such type")).tick(TickCancelRun(at=3.0))
        assert ending(found) == ("cancelled", "")


def test_a_paused_run_goes_on_for_the_step() -> None:
    found = rig().start().tick(TickPauseRun(at=0.5)).tick(TickCancelRun(at=1.0))
    assert (found.state.paused, found.dispatched()) == (False, [("undo", 2)])


def test_events_that_come_reach_no_step_and_are_kept_for_its_waits() -> None:
    found = cancelled().event(A, at=2.0)
    assert found.dispatched() == []
    assert [report.kept for report in found.published(UnhandledReport)] == [True]
    found.wait(2, of=B, at=3.0).tick(TickAddEvent(at=4.0, event=ev(B)))
    assert found.body(2).waits_on == ""
    found.finish(2, at=5.0)
    assert ending(found) == ("cancelled", "")


def test_early_events_of_the_run_stay_for_it() -> None:
    found = rig().start().event(kind("t.Early")).tick(TickCancelRun(at=1.0))
    assert found.state.waiting.kept_count == 1


def test_children_and_delayed_work_end_with_the_cancel() -> None:
    found = rig().start()
    found.tick(TickStartChild(at=0.0, source=found.source(), occurrence=0, workflow="w"))
    found.tick(TickCancelRun(at=1.0))
    assert len(found.commands(CommandCancelChild)) == 1
    again = rig().start().fail(1, delay=9.0).tick(TickCancelRun(at=1.0))
    assert [timer.purpose for timer in again.state.timers.values()] == ["timeout"]
    [command] = again.commands(CommandRunWorker)
    assert command.item.event.body.steps == ("work",)


def test_a_body_that_has_not_left_yet_is_not_started() -> None:
    found = rig()
    run = Run(StepsPlanner())
    run.feed(TickStartRun(at=0.0, run_id="r", config=found.config, event=ev(START)), TickCancelRun(at=0.0))
    run.drain()
    bodies = [command for command in run.flush().commands if isinstance(command, CommandRunWorker)]
    assert [command.step for command in bodies] == ["undo"]


@pytest.mark.parametrize("away", [0.0, 3.0])
def test_code_without_the_step_parks_a_run_that_is_at_it(away: float) -> None:
    found = cancelled()
    found.state = rewound(found.state, found.planner)
    found.tick(TickResume(at=2.0, away_s=away, config=Rig(WORK).config))
    assert found.state.outcome is not None
    assert found.state.outcome.status == "parked"
