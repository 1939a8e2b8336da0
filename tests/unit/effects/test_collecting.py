"""`collect_events` inside one body, answered from the buffers that it was dispatched with."""

from __future__ import annotations

from immutables import Map

from loom import Event
from loom.core.body_effects import EMPTY_BUFFER, CollectBuffer
from loom.core.commands import CommandRunWorker
from loom.core.state import WorkItem
from loom.effects.collecting import Collector, in_order, needed_types
from loom.effects.convert import record_of


class Red(Event):
    number: int


class Blue(Event):
    number: int


def command(
    buffers: dict[str, CollectBuffer] | None = None, reserved: dict[str, list[Event]] | None = None
) -> CommandRunWorker:
    kept = Map({key: tuple(map(record_of, events)) for key, events in (reserved or {}).items()})
    item = WorkItem(1, "step", record_of(Red(number=0)), reserved=kept)
    return CommandRunWorker(1, "step", item, 0, 1, 0.0, Map(buffers or {}))


def buffer_of(*events: Event) -> CollectBuffer:
    buffer = EMPTY_BUFFER
    for event in events:
        buffer = buffer.with_event(record_of(event))
    return buffer


def test_set_comes_in_the_order_of_the_expected_types() -> None:
    collector = Collector(command({"default": buffer_of(Blue(number=1), Red(number=2))}))
    found = collector.collect(Red(number=3), [Red, Blue, Red], "default", 0)
    assert found == [Red(number=2), Blue(number=1), Red(number=3)]
    [call] = collector.calls()
    assert call.took


def test_incomplete_set_is_kept_for_the_next_call_of_the_same_body() -> None:
    collector = Collector(command())
    assert collector.collect(Red(number=1), [Red, Blue], "default", 0) is None
    assert collector.collect(Blue(number=2), [Red, Blue], "default", 0) == [Red(number=1), Blue(number=2)]
    assert [call.took for call in collector.calls()] == [False, True]


def test_after_a_full_set_the_buffer_is_empty() -> None:
    collector = Collector(command({"default": buffer_of(Red(number=1))}))
    assert collector.collect(Red(number=2), [Red, Red], "default", 0) is not None
    assert collector.collect(Red(number=3), [Red, Red], "default", 0) is None


def test_event_that_is_not_wanted_is_dropped() -> None:
    collector = Collector(command({"default": buffer_of(Red(number=1))}))
    assert collector.collect(Red(number=2), [Red, Blue], "default", 0) is None
    assert collector.collect(Blue(number=3), [Red, Blue], "default", 0) == [Red(number=1), Blue(number=3)]


def test_nothing_expected_is_a_full_set() -> None:
    collector = Collector(command())
    assert collector.collect(Red(number=1), [], "default", 0) == []
    assert collector.calls() == ()


def test_buffers_are_apart() -> None:
    collector = Collector(command())
    assert collector.collect(Red(number=1), [Red, Blue], "a", 0) is None
    assert collector.collect(Blue(number=2), [Red, Blue], "b", 0) is None
    assert collector.collect(Blue(number=3), [Red, Blue], "a", 0) == [Red(number=1), Blue(number=3)]


def test_retry_gets_the_set_that_the_failed_attempt_had() -> None:
    collector = Collector(command(reserved={"default": [Blue(number=1), Red(number=2)]}))
    assert collector.collect(Red(number=9), [Red, Blue], "default", 0) == [Red(number=2), Blue(number=1)]
    assert collector.calls()[0].reserved
    assert collector.collect(Red(number=10), [Red, Blue], "default", 0) is None, "once only"


def test_needs_follow_a_list_that_grows() -> None:
    expected: list[type[Event]] = [Red]
    first = needed_types(expected)
    assert needed_types(expected) is first, "a constant list is counted once"
    expected.append(Blue)
    assert len(needed_types(expected)) == 2


def test_order_with_too_few_events_leaves_gaps_out() -> None:
    assert in_order([record_of(Blue(number=1))], [Red, Blue]) == [Blue(number=1)]


def test_list_that_is_made_anew_for_every_call_is_counted_once() -> None:
    first = needed_types([Red, Blue] * 2000)
    assert needed_types([Red, Blue] * 2000) is first
    assert needed_types((Red, Blue) * 2000) is first
    assert needed_types([Red, Red] * 2000) == ((first[0][0], 4000),)


def test_list_that_is_changed_in_place_is_counted_anew() -> None:
    expected: list[type[Event]] = [Red, Blue]
    needed_types(expected)
    expected[1] = Red
    assert [number for _, number in needed_types(expected)] == [2]
