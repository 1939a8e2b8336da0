"""The static graph: who makes and takes what, and which joins collect which streams."""

from __future__ import annotations

from types import NoneType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loom.steps.decorators import StepConfig
from loom.steps.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StepFailedEvent, StopEvent
from loom.steps.graph import (
    accepts,
    build_graph,
    catch_error_handlers,
    event_types,
    handler_level,
    handlers_by_step,
    stream_bindings,
    stream_levels,
    top_level,
)
from loom.steps.step_config import Collect


class A(Event):
    pass


class SubA(A):
    pass


class B(Event):
    pass


class C(Event):
    pass


class D(Event):
    pass


class Ask(InputRequiredEvent):
    pass


class Answer(HumanResponseEvent):
    pass


def config(takes: list[Any], makes: list[Any], **more: Any) -> StepConfig:
    return StepConfig(
        accepted_events=takes,
        event_name="ev",
        return_types=makes or [NoneType],
        context_parameter=None,
        num_workers=4,
        retry_policy=None,
        resources=[],
        **more,
    )


def fan_out(takes: list[Any], makes: list[Any]) -> StepConfig:
    return config(takes, makes, is_fan_out=True)


def join(takes: list[Any], makes: list[Any], **more: Any) -> StepConfig:
    return config(takes, makes, collection_param=("evs", tuple(takes)), collection_policy=Collect(), **more)


def handler(makes: list[Any], for_steps: list[str] | None = None) -> StepConfig:
    return config([StepFailedEvent], makes, role="catch_error", catch_error_for_steps=for_steps)


# --- routing --------------------------------------------------------------------------------------------------------


def test_a_step_accepts_exact_types_unless_it_says_otherwise() -> None:
    exact, broad = config([A, B], []), config([A, B], [], accept_event_subclasses=True)
    assert [accepts(exact, t) for t in (A, SubA, B, C)] == [True, False, True, False]
    assert [accepts(broad, t) for t in (A, SubA, B, C)] == [True, True, True, False]


def test_annotations_that_are_no_classes_match_nothing() -> None:
    assert not accepts(config([Event], [], accept_event_subclasses=True), list[int])


def test_event_types_in_order_of_appearance() -> None:
    steps = {"z": config([StartEvent], [B, str]), "a": config([B], [StopEvent, B])}
    assert event_types(steps) == [StartEvent, B, StopEvent]


# --- the graph ------------------------------------------------------------------------------------------------------


def test_producers_and_consumers() -> None:
    steps = {"one": config([StartEvent], [A, StopEvent]), "two": config([A], [A, StopEvent])}
    graph = build_graph(steps, StartEvent)
    assert graph.producers == {StartEvent: (), A: ("one", "two"), StopEvent: ("one", "two")}
    assert graph.consumers == {StartEvent: ("one",), A: ("two",), StopEvent: ()}


def test_a_stop_event_goes_to_no_step_that_accepts_a_broad_base() -> None:
    steps = {"one": config([StartEvent], [A, StopEvent]), "log": config([Event], [], accept_event_subclasses=True)}
    graph = build_graph(steps, StartEvent)
    assert graph.consumers[StopEvent] == ()
    assert graph.consumers[A] == ("log",)


def test_reachable_from_start_answers_and_failures() -> None:
    steps = {
        "start": config([StartEvent], [Ask]),
        "answered": config([Answer], [A]),
        "after": config([A], [StopEvent]),
        "rescue": handler([B]),
        "rescued": config([B], [StopEvent]),
        "island": config([C], [C]),
    }
    assert build_graph(steps, StartEvent).reachable == {"start", "answered", "after", "rescue", "rescued"}


def test_finishing_steps_lead_to_a_stop_or_a_question() -> None:
    steps = {
        "start": config([StartEvent], [A, C]),
        "on": config([A], [B]),
        "asks": config([B], [Ask]),
        "loops": config([C], [C]),
        "ends": config([D], []),
    }
    assert build_graph(steps, StartEvent).finishing == {"start", "on", "asks"}


# --- streams --------------------------------------------------------------------------------------------------------


def test_a_join_collects_the_stream_through_steps_in_between() -> None:
    steps = {"out": fan_out([StartEvent], [A]), "work": config([A], [B]), "back": join([B], [StopEvent])}
    assert stream_bindings(steps) == {"out": ("back",)}
    assert stream_levels(steps) == {"out": {A, B}}
    assert top_level(steps, StartEvent) == {StartEvent, StopEvent}


def test_two_joins_may_collect_one_stream() -> None:
    steps = {"out": fan_out([StartEvent], [A, B]), "y": join([A], [StopEvent]), "x": join([B], [])}
    assert stream_bindings(steps) == {"out": ("y", "x")}


def test_a_join_may_collect_the_streams_of_two_steps() -> None:
    steps = {"a": fan_out([StartEvent], [A]), "b": fan_out([StartEvent], [A]), "back": join([A], [StopEvent])}
    assert stream_bindings(steps) == {"a": ("back",), "b": ("back",)}


def test_nested_streams_pair_with_the_nearest_join() -> None:
    steps = {
        "outer": fan_out([StartEvent], [A]),
        "inner": fan_out([A], [B]),
        "back_inner": join([B], [C]),
        "back_outer": join([C], [StopEvent]),
    }
    assert stream_bindings(steps) == {"outer": ("back_outer",), "inner": ("back_inner",)}
    assert stream_levels(steps) == {"outer": {A, C}, "inner": {B}}


def test_a_join_that_fans_out_brings_back_what_its_own_joins_make() -> None:
    steps = {
        "out": fan_out([StartEvent], [A]),
        "again": join([A], [B], is_fan_out=True),
        "back": join([B], [C]),
        "end": config([C], [StopEvent]),
    }
    assert stream_bindings(steps) == {"out": ("again",), "again": ("back",)}
    assert C in top_level(steps, StartEvent)
    assert B not in top_level(steps, StartEvent)


def test_a_broad_join_collects_subclasses() -> None:
    steps = {"out": fan_out([StartEvent], [SubA]), "back": join([A], [StopEvent], accept_event_subclasses=True)}
    assert stream_bindings(steps) == {"out": ("back",)}
    assert stream_bindings({**steps, "back": join([A], [StopEvent])}) == {"out": ()}


def test_a_tree_that_feeds_itself() -> None:
    steps = {
        "split": fan_out([StartEvent, A], [A, B]),
        "combine": join([B, C], [C]),
        "done": config([C], [StopEvent]),
    }
    assert stream_bindings(steps) == {"split": ("combine",)}
    assert stream_levels(steps)["split"] == {A, B, C, StopEvent}


@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([StartEvent, A, B, C, D]), min_size=1, max_size=2),
            st.lists(st.sampled_from([A, B, C, D, StopEvent]), max_size=2),
            st.sampled_from([config, fan_out, join]),
        ),
        max_size=6,
    )
)
def test_levels_exist_for_any_steps_and_follow_no_order(declared: list[Any]) -> None:
    steps = {f"s{i}": make(takes, makes) for i, (takes, makes, make) in enumerate(declared)}
    turned = dict(reversed(steps.items()))
    assert stream_levels(steps) == stream_levels(turned)
    for name, level in stream_levels(steps).items():
        assert level >= {t for t in steps[name].return_types if t is not NoneType}
    assert {name: set(joins) for name, joins in stream_bindings(steps).items()} == {
        name: set(joins) for name, joins in stream_bindings(turned).items()
    }


# --- handlers ---------------------------------------------------------------------------------------------------------


def test_the_named_handler_comes_before_the_wildcard() -> None:
    steps = {
        "all": handler([StopEvent]),
        "one": config([StartEvent], [A]),
        "some": handler([StopEvent], ["two"]),
        "two": config([A], [StopEvent]),
    }
    assert handlers_by_step(steps) == {"one": "all", "two": "some"}
    assert catch_error_handlers(steps)["some"].for_steps == ["two"]
    assert list(catch_error_handlers(steps)) == ["all", "some"]


def test_without_a_wildcard_only_named_steps_are_covered() -> None:
    steps = {"one": config([StartEvent], [A]), "two": config([A], [StopEvent]), "some": handler([A], ["two"])}
    assert handlers_by_step(steps) == {"two": "some"}


def test_what_handlers_put_into_streams() -> None:
    steps = {"one": config([StartEvent], [A]), "rescue": handler([B]), "two": config([B], [C])}
    assert handler_level(steps) == {B, C}
