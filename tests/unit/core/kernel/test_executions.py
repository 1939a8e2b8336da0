"""The numbered effects of an execution, its collect calls and its stream writes."""

from __future__ import annotations

from typing import Any

import pytest
from core_rig import START, STOP, A, B, Rig, ev
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from loom.core.body_effects import EMPTY_BUFFER, NO_WRITES, StreamWrites
from loom.core.commands import CommandPublishEvent, CommandRunWorker
from loom.core.persistent import Map
from loom.core.records import EventRecord, StepReport, SupersededReport
from loom.core.state import StepSpec, WorkItem
from loom.core.ticks import (
    CollectCall,
    Source,
    TickAddEvent,
    TickEditStore,
    TickLeaveStep,
    TickPublishEvent,
    TickResume,
    TickSleep,
    TickStepResult,
)
from loom.store.codec import decoder_of, encode

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


PAIR = ((A.name, 1), (B.name, 1))
COLLECTING = (StepSpec("work", (START.name, A.name, B.name), num_workers=0),)


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
    rig = Rig(*COLLECTING).start().finish(1, collects=(call(ev(A)),))
    assert list(rig.worker().collected_events["x"].events) == [ev(A)]


def test_right_answer_empties_the_buffer() -> None:
    rig = Rig(*COLLECTING).start().finish(1, collects=(call(ev(A)),)).event(B)
    rig.finish(2, collects=(call(ev(B), took=True, generation=1),))
    assert not rig.worker().collected_events["x"].events


def test_wrong_answer_runs_the_body_again_with_the_buffers_of_now() -> None:
    rig = Rig(*COLLECTING).start().event(B)
    rig.finish(1, collects=(call(ev(A)),)).finish(2, collects=(call(ev(B)),))
    (again,) = rig.commands(CommandRunWorker)
    assert (again.item.id, again.execution) == (2, rig.body(2).id)
    assert list(again.snapshot["x"].events) == [ev(A)]
    assert rig.published(StepReport) == []
    rig.finish(2, collects=(call(ev(B), took=True, generation=1),))
    assert rig.commands(CommandRunWorker) == []


def test_set_that_another_took_first_is_not_taken_twice() -> None:
    rig = Rig(*COLLECTING).start().event(B).event(B).finish(1, collects=(call(ev(A)),))
    rig.finish(2, collects=(call(ev(B), took=True, generation=1),))
    rig.finish(3, collects=(call(ev(B), took=True, generation=1),))
    assert [c.item.id for c in rig.commands(CommandRunWorker)] == [3]


def test_set_that_was_replaced_by_another_one_is_collected_anew() -> None:
    rig = Rig(*COLLECTING).start().event(B).event(B).event(A).finish(1, collects=(call(ev(A, n=1)),))
    rig.finish(2, collects=(call(ev(B), took=True, generation=1),)).finish(4, collects=(call(ev(A, n=2)),))
    rig.finish(3, collects=(call(ev(B), took=True, generation=1),))
    (again,) = rig.commands(CommandRunWorker)
    assert list(again.snapshot["x"].events) == [ev(A, n=2)]


def test_effects_before_the_wrong_answer_are_not_repeated_and_those_after_it_are() -> None:
    rig = Rig(*COLLECTING).start().event(B).finish(1, collects=(call(ev(A)),))
    for _ in range(2):
        rig.tick(TickPublishEvent(at=0.0, event=ev(A), source=rig.source(2)))
    rig.finish(2, collects=(call(ev(B), ordinal=1),))
    assert sorted(rig.body(2).effects) == [0]


def test_set_of_a_failed_attempt_is_reserved_for_its_next_one() -> None:
    rig = Rig(*COLLECTING).start().finish(1, collects=(call(ev(A)),)).event(B)
    rig.fail(2, delay=0.0, collects=(call(ev(B), took=True, generation=1),))
    (again,) = rig.commands(CommandRunWorker)
    assert again.item.reserved["x"] == (ev(A), ev(B))
    assert not again.snapshot["x"].events


def test_body_that_waits_and_answers_wrongly_is_in_one_place_only() -> None:
    rig = Rig(*COLLECTING).start().wait(1).finish(1, collects=(call(ev(A), took=True),))
    assert list(rig.worker().in_progress) == [1]
    assert list(rig.worker().suspended) == []


WRITING = (StepSpec("work", (START.name,)), StepSpec("next", (A.name,)))


class Streaming(Rig):
    """A run whose body streams texts; `again` lets it run from the top."""

    def __init__(self) -> None:
        super().__init__(*WRITING)
        self.number = 0
        self.stream: list[tuple[int, EventRecord | SupersededReport]] = []
        """What bodies wrote and what was superseded, with cursors."""
        self.start()

    def tick(self, tick: object) -> Streaming:
        super().tick(tick)
        published = [(each.cursor, each.event) for each in self.commands(CommandPublishEvent)]
        self.stream += [each for each in published if isinstance(each[1], EventRecord | SupersededReport)]
        return self

    def write(self, *texts: Any) -> Streaming:
        for text in texts:
            source = self.source(1, ordinal=0)
            self.tick(TickPublishEvent(at=0.0, event=EventRecord(B, text), source=source, writes=self.number))
            self.number += 1
        return self

    def again(self) -> Streaming:
        self.number = 0
        return self.tick(TickResume(at=1.0))

    def rest(self) -> Streaming:
        body = self.body()
        tick = TickStepResult(at=1.0, step="work", item=1, seq=body.seq, writes=self.number)
        return self.tick(tick)

    def texts(self) -> list[Any]:
        """The stream: texts, and the rows of cursors that were superseded."""
        return [
            each.body if isinstance(each, EventRecord) else f"-{[list(row) for row in each.cursors]}"
            for _, each in self.stream
        ]

    def standing(self) -> list[str]:
        """What a reader shows in the end."""
        shown: dict[int, str] = {}
        for cursor, each in self.stream:
            if isinstance(each, SupersededReport):
                for first, last in each.cursors:
                    for number in range(first, last + 1):
                        del shown[number]
            else:
                shown[cursor] = each.body
        return list(shown.values())


def test_equal_writes_stand() -> None:
    rig = Streaming().write("a", "b").again().write("a", "b", "c").rest()
    assert rig.texts() == ["a", "b", "c"]


def test_from_the_first_difference_on_all_is_superseded() -> None:
    rig = Streaming().write("a", "b", "c").again().write("a", "x", "c")
    # Cursor 0 is the report that the step runs, and 4 the one that it runs again.
    assert rig.texts() == ["a", "b", "c", "-[[2, 3]]", "x", "c"]
    assert rig.body().writes.count == 3
    rig.again().write("a", "x", "c", "d")
    assert rig.texts()[6:] == ["d"]


def test_rows_leave_out_what_others_have_published_between() -> None:
    rig = Streaming().write("a", "b")
    rig.tick(TickPublishEvent(at=0.0, event=EventRecord(A, "of another"), source=None))
    rig.write("c").again().write("x")
    assert rig.stream[-2][1] == SupersededReport("work", 1, ((1, 2), (4, 4)))


def test_fewer_writes_are_noticed_where_the_body_ends_or_rests() -> None:
    assert Streaming().write("a", "b", "c").again().write("a").rest().texts()[3:] == ["-[[2, 3]]"]
    rig = Streaming().write("a", "b").again().write("a")
    rig.tick(TickSleep(at=1.0, source=rig.source(1, ordinal=0), occurrence=0, delay_s=9.0, writes=1))
    assert rig.texts() == ["a", "b", "-[[2, 2]]"]
    rig = Streaming().write("a", "b").again()
    rig.wait(1, ordinal=0, suspends=False, writes=0)
    assert rig.texts() == ["a", "b"], "other tasks of the body may still write"
    leave = TickLeaveStep(at=1.0, step="work", item=1, seq=rig.body().seq, pending=("wait:0:w",), writes=0)
    assert rig.tick(leave).texts() == ["a", "b", "-[[1, 2]]"]


def test_another_number_of_writes_moves_no_other_effect() -> None:
    rig = Streaming().write("a", "b")
    rig.tick(TickAddEvent(at=0.0, event=ev(A), source=rig.source(1, ordinal=0), writes=2))
    assert rig.dispatched() == [("next", 2)]
    rig.again().write("v", "w", "x", "y")
    rig.tick(TickAddEvent(at=1.0, event=ev(A), source=rig.source(1, ordinal=0), writes=4))
    assert (rig.last, rig.state.outcome) == ([], None)
    assert dict(rig.body().effects) == {0: "send"}


def test_an_execution_of_an_earlier_version_keeps_its_numbers() -> None:
    rig = Streaming()
    for ordinal, text in enumerate("ab"):
        rig.tick(TickPublishEvent(at=0.0, event=EventRecord(B, text), source=rig.source(1, ordinal=ordinal)))
    rig.wait(1, ordinal=2)
    rig.again().event(B, at=2.0)
    for ordinal, text in enumerate("ax"):
        rig.tick(TickPublishEvent(at=2.0, event=EventRecord(B, text), source=rig.source(1, ordinal=ordinal)))
    rig.wait(1, ordinal=2, at=2.0)
    rig.tick(TickPublishEvent(at=2.0, event=EventRecord(B, "c"), source=rig.source(1, ordinal=3)))
    assert rig.state.outcome is None
    assert rig.texts() == ["a", "b", "c"]
    assert (len(rig.body().effects), rig.body().writes) == (4, None)


def test_a_wrong_answer_to_a_collect_call_is_a_path_of_its_own() -> None:
    call = CollectCall("b", ev(START), ((START.name, 2),), True, 0, 7, writes=1)
    rig = Streaming().write("a", "b")
    rig.finish(1, collects=(call,))
    rig.number = 0
    assert rig.write("a", "c").texts() == ["a", "b", "-[[2, 2]]", "c"]


def test_what_cannot_be_compared_is_written_anew_on_another_path() -> None:
    """In memory events are live objects. What a body wrote before the call stands, what follows is written."""
    call = CollectCall("b", ev(START), ((START.name, 2),), True, 0, 7, writes=1)
    rig = Streaming().write({"live": 1}, {"live": 2})
    rig.finish(1, collects=(call,))
    rig.number = 0
    assert rig.write({"live": 3}, {"live": 4}).texts() == [{"live": 1}, {"live": 2}, {"live": 4}]


def test_a_retry_writes_all_again() -> None:
    rig = Streaming().write("a").fail(1, delay=0.0)
    rig.number = 0
    assert rig.write("a").texts() == ["a", "a"]


@given(st.lists(st.sampled_from("abc"), max_size=200), st.data())
def test_what_stands_is_what_the_last_repetition_wrote(first: list[str], data: st.DataObject) -> None:
    rig = Streaming().write(*first)
    for _ in range(2):
        keep = data.draw(st.integers(0, len(first)))
        first = first[:keep] + data.draw(st.lists(st.sampled_from("abc"), max_size=100))
        rig.again().write(*first)
    rig.rest()
    assert rig.standing() == first


def test_many_writes_take_little_room() -> None:
    rig = Streaming().write(*(f"token {number}" for number in range(10_000)))
    written = rig.body().writes
    stored = encode(written)
    assert len(stored) < 10_000 * 11
    assert decoder_of(StreamWrites).decode(stored) == written
    assert (len(written.cursors), written.cursors_from(5_000)) == (1, ((5_001, 10_000),))


def test_only_an_execution_of_an_earlier_version_counts_its_writes_among_its_effects() -> None:
    item = WorkItem(1, "work", ev(A), execution=1, effects=Map({0: "send", 1: "publish"}))
    assert item.has_writes_among_effects
    assert not replace(item, effects=Map({0: "send"})).has_writes_among_effects
    assert not replace(item, writes=NO_WRITES).has_writes_among_effects
