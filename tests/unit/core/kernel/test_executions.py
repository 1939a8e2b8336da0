"""The numbered effects of an execution."""

from __future__ import annotations

from core_rig import START, A, B, Rig, ev

from loom.core.config import StepSpec
from loom.core.records import EventRecord
from loom.core.ticks import Source, TickAddEvent, TickEditStore, TickPublishEvent, TickResume

STEPS = (StepSpec("work", (START.name,)), StepSpec("next", (A.name,)))


def publish(rig: Rig, ordinal: int | None = None) -> Rig:
    return rig.tick(TickPublishEvent(at=0.0, event=ev(B), source=rig.source(1, ordinal)))


def test_effect_is_applied_once() -> None:
    rig = publish(Rig(*STEPS).start(), ordinal=0)
    assert rig.published(EventRecord) == [ev(B)]
    assert publish(rig, ordinal=0).last == []


def test_effects_may_arrive_in_any_order() -> None:
    rig = publish(publish(Rig(*STEPS).start(), ordinal=1), ordinal=0)
    assert sorted(rig.body().effects) == [0, 1]
    assert rig.published(EventRecord) == [ev(B)]


def test_sent_event_is_not_sent_again_after_a_crash() -> None:
    rig = Rig(*STEPS).start()
    rig.tick(TickAddEvent(at=0.0, event=ev(A), source=rig.source(1)))
    assert rig.dispatched() == [("next", 2)]
    rig.tick(TickResume(at=1.0))
    rig.tick(TickAddEvent(at=1.0, event=ev(A), source=rig.source(1, ordinal=0)))
    assert rig.last == []


def test_effect_of_another_kind_parks_the_run_and_names_both() -> None:
    rig = publish(Rig(*STEPS).start(), ordinal=0)
    rig.tick(TickEditStore(at=0.0, base_version=0, changed={"k": 1}, source=rig.source(1, ordinal=0)))
    assert rig.state.outcome.status == "parked"
    assert "'work'" in rig.state.outcome.message
    assert "'publish' and is now 'store'" in rig.state.outcome.message
    assert "k" not in rig.state.store


def test_wait_that_became_a_sleep_parks_the_run() -> None:
    rig = Rig(*STEPS).start().wait(1).tick(TickResume(at=1.0)).event(B, at=1.0)
    assert rig.sleep(1, ordinal=0, at=1.0).state.outcome.status == "parked"


def test_effect_of_an_unknown_execution_is_refused_and_counted() -> None:
    rig = Rig(*STEPS).start()
    stale = Source("work", 1, rig.body().seq + 1, 0)
    rig.tick(TickPublishEvent(at=0.0, event=ev(B), source=stale))
    assert (rig.last, rig.state.dropped) == ([], 1)


def test_body_of_a_dead_process_has_nothing_to_say_although_its_wait_goes_on() -> None:
    rig = Rig(*STEPS).start().wait(1)
    late = TickPublishEvent(at=2.0, event=ev(B), source=rig.source(1))
    rig.tick(TickResume(at=1.0)).tick(late)
    assert (rig.last, rig.state.dropped) == ([], 1)
