"""What becomes of failed work."""

from __future__ import annotations

from core_rig import START, A, Rig

from loom.core.commands import CommandRunWorker, CommandStartTimer
from loom.core.config import StepSpec
from loom.core.records import STEP_FAILED_KIND, StepFailure
from loom.core.reports import FailedReport
from loom.core.ticks import TickPublishEvent, TickTimerFired

ONE = StepSpec("work", (START.name, A.name), num_workers=1)
MENDED = (
    StepSpec("work", (START.name, A.name), recovered_by="mend"),
    StepSpec("mend", (STEP_FAILED_KIND.name,), max_recoveries=1),
)


def test_retry_now_goes_before_the_queue_and_counts_attempts() -> None:
    rig = Rig(ONE).start().event(A).fail(1, delay=0.0, at=1.0)
    (again,) = rig.commands(CommandRunWorker)
    assert (again.item.id, again.item.attempts, again.item.last_failed_at) == (1, 1, 1.0)
    assert again.item.last_failure.message == "no"
    assert again.item.first_at == 0.0


def test_delayed_retry_is_a_timer_and_gives_the_worker_to_others() -> None:
    rig = Rig(ONE).start().event(A).fail(1, delay=2.5, at=1.0)
    assert [(c.purpose, c.due) for c in rig.commands(CommandStartTimer)] == [("retry", 3.5)]
    assert rig.dispatched() == [("work", 2)]
    rig.finish(2, at=2.0)
    assert rig.state.is_asleep()
    assert rig.fire("retry").dispatched() == [("work", 1)]
    assert (rig.state.asleep, rig.state.active) == (0, 1)


def test_retry_timer_fires_once() -> None:
    rig = Rig(ONE).start().fail(1, delay=2.5)
    (timer,) = rig.state.timers
    rig.fire("retry").tick(TickTimerFired(at=9.0, timer=timer))
    assert (rig.dispatched(), rig.state.dropped) == ([], 1)


def test_retry_is_a_new_execution_whose_effects_apply_again() -> None:
    rig = Rig(ONE).start()
    publish = TickPublishEvent(at=0.0, event=rig.body().item.event, source=rig.source(ordinal=0))
    rig.tick(publish).fail(1, delay=0.0)
    (again,) = rig.commands(CommandRunWorker)
    assert again.execution == again.seq
    assert not again.item.effects
    rig.tick(TickPublishEvent(at=0.0, event=again.item.event, source=rig.source(ordinal=0)))
    assert len(rig.last) == 1


def test_final_failure_goes_to_the_recovery_step_with_its_history() -> None:
    rig = Rig(*MENDED).start(at=1.0).fail(1, delay=0.0, at=2.0).fail(1, at=4.0)
    (command,) = rig.commands(CommandRunWorker)
    body = command.item.event.body
    assert isinstance(body, StepFailure)
    assert (command.step, body.step, body.attempts, body.elapsed_s, body.failed_at) == ("mend", "work", 2, 3.0, 4.0)


def test_failure_that_nothing_recovers_ends_the_run() -> None:
    rig = Rig(ONE).start().event(A).fail(1, at=2.0)
    (report,) = rig.published(FailedReport)
    assert (report.step, report.attempts, report.elapsed_s) == ("work", 1, 2.0)
    assert (rig.state.outcome.status, rig.state.is_running, rig.state.active) == ("failed", False, 0)


def test_recovery_has_a_budget_along_its_line() -> None:
    rig = Rig(*MENDED).start().fail(1)
    rig.finish(2, [rig.body(2).item.event.body.input])
    assert rig.dispatched() == [("work", 3)]
    assert rig.fail(3).state.outcome.status == "failed"


def test_work_that_failed_for_good_waits_no_more() -> None:
    rig = Rig(*MENDED).start().wait(1, timeout_s=9.0, suspends=False).fail(1)
    assert rig.state.get_active_waiters() == []
    assert not rig.state.timers
