"""Whether steps make a workflow, and what is said when they do not."""

from __future__ import annotations

import re
from typing import Any

import pytest

from loom.steps.decorators import catch_error, on_cancel, step
from loom.steps.errors import WorkflowConfigurationError, WorkflowValidationError
from loom.steps.events import (
    Event,
    HumanResponseEvent,
    InputRequiredEvent,
    RunCancelledEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
)
from loom.steps.graph import broker_config, build_graph
from loom.steps.signature import get_steps_from_class
from loom.steps.validate import (
    check_graph_check_names,
    check_num_concurrent_runs,
    ensure_start_event_class,
    ensure_stop_event_class,
    validate_workflow_graph,
)


class A(Event):
    pass


class SubA(A):
    pass


class B(Event):
    pass


class C(Event):
    pass


class MyStart(StartEvent):
    pass


class MyStop(StopEvent):
    pass


class Ask(InputRequiredEvent):
    pass


class Answer(HumanResponseEvent):
    pass


class Linear:
    @step
    def start(self, ev: StartEvent) -> StopEvent | None: ...


def configs(flow: type) -> dict[str, Any]:
    return {name: function._step_config for name, function in get_steps_from_class(flow).items()}


def validate(flow: type, *skip: str) -> bool:
    return validate_workflow_graph(configs(flow), flow.__name__, skip)


def refused(flow: type, *skip: str, by: type[Exception] = WorkflowValidationError) -> str:
    with pytest.raises(by) as caught:
        validate(flow, *skip)
    return str(caught.value)


# --- start and stop ---------------------------------------------------------------------------------------------------


def test_the_smallest_workflow() -> None:
    assert validate(Linear) is False
    assert ensure_start_event_class(configs(Linear), "Linear") is StartEvent
    assert ensure_stop_event_class(configs(Linear), "Linear") is StopEvent


def test_own_start_and_stop_events() -> None:
    class Flow:
        @step
        def start(self, ev: MyStart) -> MyStop | A: ...

        @step
        def more(self, ev: A) -> MyStop: ...

    assert validate(Flow) is False
    assert ensure_start_event_class(configs(Flow), "Flow") is MyStart
    assert ensure_stop_event_class(configs(Flow), "Flow") is MyStop


def test_no_steps() -> None:
    class Flow:
        pass

    assert refused(Flow, by=WorkflowConfigurationError).startswith("Workflow 'Flow' has no configured steps.")


def test_nothing_starts() -> None:
    class Flow:
        @step
        def run(self, ev: A) -> StopEvent: ...

    assert refused(Flow, by=WorkflowConfigurationError) == (
        "At least one Event of type StartEvent must be received by any step. "
        "(Workflow 'Flow' has no @step that accepts StartEvent.)"
    )


def test_nothing_stops() -> None:
    class Flow:
        @step
        def run(self, ev: StartEvent) -> None: ...

    assert refused(Flow, by=WorkflowConfigurationError) == (
        "At least one Event of type StopEvent must be returned by any step. "
        "(Workflow 'Flow' has no @step that returns StopEvent.)"
    )


def test_more_than_one_start_or_stop() -> None:
    class Starts:
        @step
        def run(self, ev: StartEvent | MyStart) -> StopEvent: ...

    class Stops:
        @step
        def run(self, ev: StartEvent) -> StopEvent | MyStop: ...

    assert refused(Starts, by=WorkflowConfigurationError) == (
        "Only one type of StartEvent is allowed per workflow, found 2: MyStart, StartEvent in workflow 'Starts'."
    )
    assert refused(Stops, by=WorkflowConfigurationError).startswith(
        "Only one type of StopEvent is allowed per workflow, found 2:"
    )


# --- events -----------------------------------------------------------------------------------------------------------


def test_consumed_but_never_produced() -> None:
    class Flow(Linear):
        @step
        def more(self, ev: B | A) -> StopEvent: ...

    assert refused(Flow) == "The following events are consumed but never produced: A, B"


def test_produced_but_never_consumed() -> None:
    class Flow(Linear):
        @step
        def more(self, ev: StartEvent) -> A | StopEvent: ...

    assert refused(Flow) == "The following events are produced but never consumed: A"


def test_what_is_no_event_is_never_consumed() -> None:
    class Flow(Linear):
        @step
        def more(self, ev: StartEvent) -> dict[str, int]: ...

    assert refused(Flow) == "The following events are produced but never consumed: dict"


def test_a_subclass_counts_only_where_it_is_accepted() -> None:
    class Exact(Linear):
        @step
        def make(self, ev: StartEvent) -> SubA: ...

        @step
        def take(self, ev: A) -> StopEvent: ...

    class Broad(Linear):
        @step
        def make(self, ev: StartEvent) -> SubA: ...

        @step(accept_event_subclasses=True)
        def take(self, ev: A) -> StopEvent: ...

    assert "consumed but never produced: A" in refused(Exact)
    assert validate(Broad) is False


def test_a_stop_event_cannot_be_accepted() -> None:
    class One(Linear):
        @step
        def late(self, ev: StopEvent) -> None: ...

    class Two(One):
        @step
        def later(self, ev: MyStop) -> None: ...

    assert refused(One).startswith("Step 'late' cannot accept StopEvent.")
    assert refused(Two).startswith("Steps 'late', 'later' cannot accept StopEvent.")


def test_a_human_in_the_loop() -> None:
    class Asks(Linear):
        @step
        def ask(self, ev: StartEvent) -> Ask: ...

    class Hears(Linear):
        @step
        def hear(self, ev: Answer) -> StopEvent: ...

    assert validate(Asks) is True
    assert validate(Hears) is True


# --- joins ------------------------------------------------------------------------------------------------------------


class Fan(Linear):
    @step
    def fan(self, ev: StartEvent) -> list[A]: ...


def test_a_join_needs_a_stream() -> None:
    class Flow(Linear):
        @step
        def make(self, ev: StartEvent) -> A: ...

        @step
        def gather(self, evs: list[A]) -> StopEvent: ...

    assert refused(Flow).startswith(
        "Step 'gather' parameter 'evs' collects list[A], but no returned-list producer creates a stream"
    )


def test_every_type_of_a_join_needs_a_stream() -> None:
    class Flow(Fan):
        @step
        def make(self, ev: StartEvent) -> B: ...

        @step
        def gather(self, evs: list[A | B]) -> StopEvent: ...

    assert "collects list[B], but" in refused(Flow)


def test_a_handler_may_bring_a_type_into_the_stream() -> None:
    class Flow(Fan):
        @step
        def work(self, ev: A) -> B: ...

        @catch_error(for_steps=["work"])
        def rescue(self, ev: StepFailedEvent) -> C: ...

        @step
        def gather(self, evs: list[B | C]) -> StopEvent: ...

    assert validate(Flow) is False


def test_a_tree_may_feed_itself() -> None:
    class Flow:
        @step
        def split(self, ev: StartEvent | A) -> list[A | B]: ...

        @step
        def combine(self, evs: list[B | C]) -> C: ...

        @step
        def done(self, ev: C) -> StopEvent | None: ...

    assert validate(Flow) is False


def test_slots_must_meet_on_one_level() -> None:
    class Flow(Fan):
        @step
        def make(self, ev: StartEvent) -> B: ...

        @step
        def meet(self, a: A, b: B) -> StopEvent: ...

    message = refused(Flow)
    assert "joins event parameters that are never produced at a common stream level:" in message
    assert "'a' (A) is produced at the stream of step 'fan'; 'b' (B) is produced at the top level." in message


def test_slots_that_meet() -> None:
    class Top(Linear):
        @step
        def make(self, ev: StartEvent) -> B: ...

        @step
        def meet(self, answer: Answer, b: B) -> StopEvent: ...

    class Inside(Fan):
        @step
        def work(self, ev: A) -> B: ...

        @step
        def meet(self, a: A, b: B) -> StopEvent: ...

    class Broad(Linear):
        @step
        def make(self, ev: StartEvent) -> SubA | B: ...

        @step(accept_event_subclasses=True)
        def meet(self, a: A, b: B) -> StopEvent: ...

    assert validate(Top) is True
    assert validate(Inside) is False
    assert validate(Broad) is False


# --- handlers ---------------------------------------------------------------------------------------------------------


def test_one_wildcard() -> None:
    class Flow(Linear):
        @catch_error
        def one(self, ev: StepFailedEvent) -> StopEvent: ...

        @catch_error
        def two(self, ev: StepFailedEvent) -> StopEvent: ...

    assert refused(Flow) == "Only one wildcard @catch_error handler is allowed per workflow, found 2: one, two"


def test_handlers_name_steps_that_exist_and_are_free() -> None:
    class Flow(Linear):
        @catch_error(for_steps=["nowhere", "start", "b"])
        def a(self, ev: StepFailedEvent) -> StopEvent: ...

        @catch_error(for_steps=["start", "b"])
        def b(self, ev: StepFailedEvent) -> StopEvent: ...

    assert refused(Flow).splitlines() == [
        "@catch_error handler 'a' lists unknown step 'nowhere' in for_steps.",
        "@catch_error handler 'a' cannot cover another handler step 'b'.",
        "Step 'start' is claimed by two @catch_error handlers: 'a' and 'b'.",
        "@catch_error handler 'b' cannot cover another handler step 'b'.",
    ]


def test_what_follows_a_handler_is_reachable() -> None:
    class Flow(Linear):
        @catch_error
        def rescue(self, ev: StepFailedEvent) -> A: ...

        @step
        def after(self, ev: A) -> StopEvent: ...

    assert validate(Flow) is False


# --- the shape of the graph -------------------------------------------------------------------------------------------


class Island(Linear):
    @step
    def one(self, ev: A) -> B: ...

    @step
    def two(self, ev: B) -> A: ...


def test_unreachable_steps_and_dead_ends() -> None:
    assert refused(Island) == (
        "Graph validation failed:\n"
        "  - [reachability] Unreachable steps: one, two\n"
        "    Steps must be reachable from StartEvent or HumanResponseEvent.\n"
        "  - [dead_end] Dead-end steps: one, two\n"
        "    Steps must have a path to StopEvent or InputRequiredEvent."
    )


def test_a_workflow_skips_checks() -> None:
    assert "reachability" not in refused(Island, "reachability")
    assert validate(Island, "reachability", "dead_end") is False


def test_a_step_skips_checks() -> None:
    class Flow(Linear):
        @step(skip_graph_checks=["reachability", "dead_end"])
        def one(self, ev: A) -> B: ...

        @step
        def two(self, ev: B) -> A: ...

    message = refused(Flow)
    assert re.findall(r"steps: (.*)", message) == ["two", "two"]


def test_a_step_that_returns_nothing_is_no_dead_end() -> None:
    class Flow(Linear):
        @step
        def make(self, ev: StartEvent) -> A | StopEvent: ...

        @step
        def sink(self, ev: A) -> None: ...

    assert validate(Flow) is False


def test_a_response_that_nobody_takes() -> None:
    class Flow(Linear):
        @step
        def make(self, ev: StartEvent) -> Answer | StopEvent: ...

    assert "  - [terminal_event] Events produced but never consumed: Answer" in refused(Flow)
    assert validate(Flow, "terminal_event") is False


# --- what a constructor checks ----------------------------------------------------------------------------------------


def test_names_of_checks() -> None:
    assert check_graph_check_names(None) == frozenset()
    assert check_graph_check_names({"dead_end", "terminal_event"}) == {"dead_end", "terminal_event"}
    with pytest.raises(
        WorkflowValidationError, match=r"^Unknown graph check names: bad, worse\. Valid names are: dead_end"
    ):
        check_graph_check_names(["worse", "bad", "dead_end"])


@pytest.mark.parametrize("limit", [0, -1, True, 1.0, "1"])
def test_a_limit_of_runs_is_a_count(limit: object) -> None:
    with pytest.raises(WorkflowValidationError, match="num_concurrent_runs must be an integer greater than 0 or None"):
        check_num_concurrent_runs(limit)


@pytest.mark.parametrize("limit", [1, 5, None])
def test_limits_of_runs(limit: int | None) -> None:
    check_num_concurrent_runs(limit)


# --- clean-up ---------------------------------------------------------------------------------------------------------


def test_a_clean_up_step_needs_no_producer_and_leads_nowhere() -> None:
    class Flow(Linear):
        @catch_error
        def mend(self, ev: StepFailedEvent) -> StopEvent: ...

        @on_cancel(timeout=5)
        def undo(self, ev: RunCancelledEvent) -> None: ...

    assert validate(Flow) is False
    steps = {name: function._step_config for name, function in get_steps_from_class(Flow).items()}
    assert "undo" in build_graph(steps, StartEvent).reachable
    config = broker_config("flow", steps, None)
    assert config.cleanup is not None
    assert (config.cleanup.step, config.cleanup.timeout_s) == ("undo", 5.0)
    assert {spec.name: spec.recovered_by for spec in config.steps}["undo"] is None


def test_one_clean_up_step() -> None:
    class Flow(Linear):
        @on_cancel
        def one(self, ev: RunCancelledEvent) -> None: ...

        @on_cancel
        def two(self, ev: RunCancelledEvent) -> None: ...

    assert refused(Flow) == "Only one @on_cancel step is allowed per workflow, found 2: one, two"


def test_only_a_cancel_leads_to_a_clean_up_step() -> None:
    class Flow(Linear):
        @on_cancel
        def undo(self, ev: RunCancelledEvent) -> None: ...

        @catch_error(for_steps=["undo"])
        def mend(self, ev: StepFailedEvent) -> StopEvent: ...

        @step
        def listen(self, ev: RunCancelledEvent) -> StopEvent: ...

    assert refused(Flow).splitlines() == [
        "@catch_error handler 'mend' cannot cover 'undo': a failed @on_cancel step ends the run.",
        "Step 'listen' names RunCancelledEvent, which goes to an @on_cancel step and to no other.",
    ]
