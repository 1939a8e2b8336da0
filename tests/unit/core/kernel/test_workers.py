"""Queues, worker slots and executions."""

from __future__ import annotations

from core_rig import START, A, B, Rig

from loom.core.commands import CommandRunWorker
from loom.core.records import StepReport
from loom.core.state import StepSpec
from loom.core.ticks import TickPublishEvent, TickResume


def spec(workers: int) -> StepSpec:
    return StepSpec("work", (START.name, A.name), num_workers=workers)


def test_no_more_executions_than_workers() -> None:
    rig = Rig(spec(2)).start().event(A).event(A)
    assert rig.dispatched() == []
    assert [r.phase for r in rig.published(StepReport)] == ["preparing"]
    assert [item.id for item in rig.worker().queue] == [3]


def test_no_workers_means_no_limit() -> None:
    rig = Rig(spec(0)).start()
    for _ in range(9):
        rig.event(A)
    assert len(rig.worker().in_progress) == 10


def test_freed_worker_takes_the_oldest_of_the_queue() -> None:
    rig = Rig(spec(1)).start().event(A).event(A).finish(1)
    assert rig.dispatched() == [("work", 2)]


def test_smallest_free_worker_id_is_used_again() -> None:
    rig = Rig(spec(3)).start().event(A).event(A).finish(2).event(A)
    assert [c.worker_id for c in rig.commands(CommandRunWorker)] == [1]


def test_first_dispatch_is_remembered_for_the_elapsed_time() -> None:
    rig = Rig(spec(1)).start().event(A, at=1.0).finish(1, at=5.0)
    assert [c.item.first_at for c in rig.commands(CommandRunWorker)] == [5.0]


def test_every_phase_is_reported() -> None:
    rig = Rig(spec(1)).start()
    assert [(r.phase, r.worker_id) for r in rig.published(StepReport)] == [("running", 0)]
    rig.finish(1)
    assert [(r.phase, r.returned, r.output) for r in rig.published(StepReport)] == [("not_running", True, None)]


def test_recovery_runs_what_was_executing_again_before_the_queue() -> None:
    rig = Rig(spec(2)).start().event(A).event(A).tick(TickResume(at=1.0))
    assert rig.dispatched() == [("work", 1), ("work", 2)]
    assert [c.worker_id for c in rig.commands(CommandRunWorker)] == [0, 1]
    assert [item.id for item in rig.worker().queue] == [3]


def test_recovery_keeps_the_execution_and_its_effects() -> None:
    rig = Rig(spec(1)).start()
    rig.tick(TickPublishEvent(at=0.0, event=rig.body().item.event, source=rig.source()))
    execution = rig.body().id
    rig.tick(TickResume(at=1.0))
    (again,) = rig.commands(CommandRunWorker)
    assert (again.execution, dict(again.item.effects)) == (execution, {0: "publish"})
    assert again.seq != execution


def test_recovery_leaves_what_waits_alone() -> None:
    rig = Rig(spec(1)).start().wait(1, of=B).tick(TickResume(at=1.0))
    assert rig.dispatched() == []
    assert not rig.body().live


def test_answered_body_of_a_dead_process_waits_for_a_worker_too() -> None:
    rig = Rig(spec(1)).start().wait(1, of=B).event(A).tick(TickResume(at=1.0)).event(B, at=1.0)
    assert rig.dispatched() == []
    rig.finish(2, at=2.0)
    assert rig.dispatched() == [("work", 1)]
