"""Results that a body records once: with the work item, for every attempt at it, and gone with it."""

from __future__ import annotations

from typing import Any

from core_rig import STOP, B, Rig, ev

from loom.core.commands import CommandResumeWorker, CommandRunWorker
from loom.core.ticks import TickRecordResult, TickResume


def record(rig: Rig, name: str = "charge", value: Any = 17, ordinal: int | None = None) -> Rig:
    return rig.tick(TickRecordResult(at=0.0, source=rig.source(1, ordinal), name=name, value=value))


def test_body_is_told_when_its_result_is_recorded_and_keeps_its_worker() -> None:
    rig = record(Rig().start())
    (resumed,) = rig.commands(CommandResumeWorker)
    assert (resumed.key, resumed.value, resumed.worker_id) == ("once:charge", 17, None)
    assert rig.body().waits_on == ""


def test_first_result_of_a_name_counts() -> None:
    rig = record(record(Rig().start()), value=18)
    (resumed,) = rig.commands(CommandResumeWorker)
    assert resumed.value == 17


def test_later_attempts_and_take_ups_know_the_results() -> None:
    rig = record(record(Rig().start()), "mail", None)
    for again in (rig.fail(1, delay=0.0), rig.tick(TickResume(at=0.0))):
        (command,) = again.commands(CommandRunWorker)
        assert dict(command.records) == {"charge": 17, "mail": None}


def test_delayed_and_released_work_knows_its_results() -> None:
    rig = record(Rig().start()).wait().tick(TickResume(at=1.0)).event(B, at=1.0)
    (command,) = rig.commands(CommandRunWorker)
    assert dict(command.records) == {"charge": 17}


def test_results_go_when_the_item_is_settled() -> None:
    rig = record(Rig().start().event()).finish(1)
    assert not rig.state.waiting.answers
    (command,) = rig.commands(CommandRunWorker)
    assert (command.item.id, dict(command.records)) == (2, {})


def test_body_that_records_something_else_at_the_same_place_parks() -> None:
    rig = record(Rig().start(), "charge").tick(TickResume(at=0.0))
    record(rig, "charges", ordinal=0)
    assert rig.state.outcome is not None
    assert rig.state.outcome.status == "parked"
    assert "'once:charge' and is now 'once:charges'" in rig.state.outcome.message


def test_record_of_an_execution_that_is_over_is_refused() -> None:
    rig = Rig().start()
    source = rig.source()
    rig.finish(1, [ev(STOP)])
    assert rig.tick(TickRecordResult(at=0.0, source=source, name="charge", value=17)).state.dropped == 1
