"""Buffers of `collect_events`."""

from __future__ import annotations

import pytest
from core_rig import START, STOP, A, B, Rig, ev

from loom.core.body_effects import EMPTY_BUFFER
from loom.core.commands import CommandRunWorker
from loom.core.config import StepSpec
from loom.core.reports import StepReport
from loom.core.ticks import CollectCall, TickPublishEvent

PAIR = ((A.name, 1), (B.name, 1))
STEPS = (StepSpec("work", (START.name, A.name, B.name), num_workers=0),)


def call(event: object, took: bool = False, generation: int = 0, ordinal: int = 0, needed=PAIR) -> CollectCall:
    return CollectCall("x", event, needed, took, ordinal, generation)


@pytest.mark.parametrize(
    ("held", "arriving", "expected"),
    [((), A, "keep"), ((A,), B, "take"), ((A,), A, "drop"), ((A,), STOP, "drop"), ((B,), A, "take")],
)
def test_verdict_asks_what_is_missing(held: tuple, arriving: object, expected: str) -> None:
    buffer = EMPTY_BUFFER
    for of in held:
        buffer = buffer.with_event(ev(of))
    assert buffer.verdict(arriving.name, PAIR) == expected


def test_buffer_counts_every_change() -> None:
    buffer = EMPTY_BUFFER.with_event(ev(A))
    assert (buffer.generation, buffer.counts.get(A.name)) == (1, 1)
    assert buffer.emptied().generation == 2
    assert not buffer.emptied().events


def test_event_that_completes_no_set_is_put_aside() -> None:
    rig = Rig(*STEPS).start().finish(1, collects=(call(ev(A)),))
    assert list(rig.worker().collected_events["x"].events) == [ev(A)]


def test_right_answer_empties_the_buffer() -> None:
    rig = Rig(*STEPS).start().finish(1, collects=(call(ev(A)),)).event(B)
    rig.finish(2, collects=(call(ev(B), took=True, generation=1),))
    assert not rig.worker().collected_events["x"].events


def test_wrong_answer_runs_the_body_again_with_the_buffers_of_now() -> None:
    rig = Rig(*STEPS).start().event(B)
    rig.finish(1, collects=(call(ev(A)),)).finish(2, collects=(call(ev(B)),))
    (again,) = rig.commands(CommandRunWorker)
    assert (again.item.id, again.execution) == (2, rig.body(2).id)
    assert list(again.snapshot["x"].events) == [ev(A)]
    assert rig.published(StepReport) == []
    rig.finish(2, collects=(call(ev(B), took=True, generation=1),))
    assert rig.commands(CommandRunWorker) == []


def test_set_that_another_took_first_is_not_taken_twice() -> None:
    rig = Rig(*STEPS).start().event(B).event(B).finish(1, collects=(call(ev(A)),))
    rig.finish(2, collects=(call(ev(B), took=True, generation=1),))
    rig.finish(3, collects=(call(ev(B), took=True, generation=1),))
    assert [c.item.id for c in rig.commands(CommandRunWorker)] == [3]


def test_set_that_was_replaced_by_another_one_is_collected_anew() -> None:
    rig = Rig(*STEPS).start().event(B).event(B).event(A).finish(1, collects=(call(ev(A, n=1)),))
    rig.finish(2, collects=(call(ev(B), took=True, generation=1),)).finish(4, collects=(call(ev(A, n=2)),))
    rig.finish(3, collects=(call(ev(B), took=True, generation=1),))
    (again,) = rig.commands(CommandRunWorker)
    assert list(again.snapshot["x"].events) == [ev(A, n=2)]


def test_effects_before_the_wrong_answer_are_not_repeated_and_those_after_it_are() -> None:
    rig = Rig(*STEPS).start().event(B).finish(1, collects=(call(ev(A)),))
    for _ in range(2):
        rig.tick(TickPublishEvent(at=0.0, event=ev(A), source=rig.source(2)))
    rig.finish(2, collects=(call(ev(B), ordinal=1),))
    assert sorted(rig.body(2).effects) == [0]


def test_set_of_a_failed_attempt_is_reserved_for_its_next_one() -> None:
    rig = Rig(*STEPS).start().finish(1, collects=(call(ev(A)),)).event(B)
    rig.fail(2, delay=0.0, collects=(call(ev(B), took=True, generation=1),))
    (again,) = rig.commands(CommandRunWorker)
    assert again.item.reserved["x"] == (ev(A), ev(B))
    assert not again.snapshot["x"].events


def test_body_that_waits_and_answers_wrongly_is_in_one_place_only() -> None:
    rig = Rig(*STEPS).start().wait(1).finish(1, collects=(call(ev(A), took=True),))
    assert list(rig.worker().in_progress) == [1]
    assert list(rig.worker().suspended) == []
