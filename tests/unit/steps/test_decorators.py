"""`@step` and `@catch_error`."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from loom.steps.decorators import StepConfig, StepFunction, catch_error, make_step_function, on_cancel, step
from loom.steps.errors import WorkflowValidationError
from loom.steps.events import (
    Event,
    InputRequiredEvent,
    RunCancelledEvent,
    StartEvent,
    StepFailedEvent,
    StopEvent,
)
from loom.steps.retry import retry_policy
from loom.steps.step_config import Collect


class A(Event):
    pass


class B(Event):
    pass


class Shadowed(Event):
    """Hidden by local classes of the same name in some tests."""


class Owner:
    """Takes free functions the way a workflow does."""

    added: list[StepFunction[..., Any]]

    @classmethod
    def add_step(cls, func: StepFunction[..., Any]) -> None:
        cls.added.append(func)


@pytest.fixture
def owner() -> Any:
    class Fresh(Owner):
        added: list[StepFunction[..., Any]] = []  # noqa: RUF012

    return Fresh


def config_of(function: Any) -> StepConfig:
    found = function._step_config
    assert isinstance(found, StepConfig)
    return found


# --- @step ----------------------------------------------------------------------------------------------------------


def test_a_step_stays_the_function_it_was() -> None:
    async def body(self: Any, ev: StartEvent) -> StopEvent:
        return StopEvent()

    body.__qualname__ = "Flow.body"
    assert step(body) is body


def test_defaults() -> None:
    class Flow:
        @step
        async def run(self, ev: StartEvent) -> StopEvent: ...

    config = config_of(Flow.run)
    assert config == StepConfig(
        accepted_events=[StartEvent],
        event_name="ev",
        return_types=[StopEvent],
        context_parameter=None,
        num_workers=4,
        retry_policy=None,
        resources=[],
        bare_return_types=(StopEvent,),
    )
    assert (config.role, config.timeout, config.accept_event_subclasses) == ("step", None, False)


def test_everything_that_can_be_said() -> None:
    policy = retry_policy()

    class Flow:
        @step(
            num_workers=1,
            retry_policy=policy,
            skip_graph_checks=["reachability", "dead_end"],
            accept_event_subclasses=True,
            timeout=2,
            pure=True,
        )
        def run(self, ev: StartEvent) -> StopEvent: ...

    config = config_of(Flow.run)
    assert (config.num_workers, config.retry_policy, config.timeout) == (1, policy, 2.0)
    assert config.skip_graph_checks == ["reachability", "dead_end"]
    assert config.accept_event_subclasses is True
    assert config.pure is True


def test_empty_parentheses() -> None:
    class Flow:
        @step()
        def run(self, ev: StartEvent) -> StopEvent: ...

    assert config_of(Flow.run).num_workers == 4


def test_a_join_names_its_slots() -> None:
    class Flow:
        @step
        def join(self, a: A, b: B) -> StopEvent: ...

    config = config_of(Flow.join)
    assert (config.accepted_events, config.event_name) == ([A, B], "a")
    assert config.collect_params == [("a", A), ("b", B)]


def test_two_slots_of_one_type() -> None:
    class Flow:
        @step
        def join(self, a: A, b: A) -> StopEvent: ...

    assert config_of(Flow.join).collect_params == [("a", A), ("b", A)]


def test_fan_out_and_fan_in() -> None:
    class Flow:
        @step
        def out(self, ev: StartEvent) -> list[A] | B: ...

        @step
        def back(self, evs: list[A | B]) -> StopEvent: ...

    out, back = config_of(Flow.out), config_of(Flow.back)
    assert (out.is_fan_out, out.return_types, out.bare_return_types) == (True, [A, B], (B,))
    assert (back.collection_param, back.collection_policy) == (("evs", (A, B)), Collect())
    assert (back.accepted_events, back.event_name, back.collect_params) == ([A, B], "evs", None)


@pytest.mark.parametrize("workers", [0, -1, 1.5, "2", None, True])
def test_workers_are_counted(workers: Any) -> None:
    with pytest.raises(WorkflowValidationError, match="num_workers must be an integer greater than 0"):

        class Flow:
            @step(num_workers=workers)
            def run(self, ev: StartEvent) -> StopEvent: ...


@pytest.mark.parametrize(("timeout", "seconds"), [(0.5, 0.5), (3, 3.0), (timedelta(minutes=1), 60.0), (None, None)])
def test_a_timeout_is_kept_in_seconds(timeout: Any, seconds: float | None) -> None:
    class Flow:
        @step(timeout=timeout)
        def run(self, ev: StartEvent) -> StopEvent: ...

    assert config_of(Flow.run).timeout == seconds


@pytest.mark.parametrize("timeout", [0, -1, math.inf, math.nan, True, "1", timedelta(0)])
def test_a_timeout_is_positive_and_finite(timeout: Any) -> None:
    with pytest.raises(WorkflowValidationError, match="timeout must be a positive, finite number of seconds"):

        class Flow:
            @step(timeout=timeout)
            def run(self, ev: StartEvent) -> StopEvent: ...


@pytest.mark.parametrize("name", ["nonsense", "terminal_event"])
def test_a_step_skips_only_checks_that_concern_it(name: Any) -> None:
    with pytest.raises(WorkflowValidationError, match=f"Unknown graph check names: {name}"):

        class Flow:
            @step(skip_graph_checks=[name])
            def run(self, ev: StartEvent) -> StopEvent: ...


def test_the_signature_is_checked_at_once() -> None:
    with pytest.raises(WorkflowValidationError, match="at least one parameter annotated as type Event"):

        class Flow:
            @step
            def run(self) -> StopEvent: ...


# --- free functions -------------------------------------------------------------------------------------------------


def test_a_free_function_joins_its_workflow(owner: Any) -> None:
    @step(workflow=owner)
    async def free(ev: StartEvent) -> StopEvent: ...

    assert owner.added == [free]


def test_a_free_function_needs_a_workflow() -> None:
    message = "To decorate free please pass a workflow class to the @step decorator."
    with pytest.raises(WorkflowValidationError, match=message):

        @step
        def free(ev: StartEvent) -> StopEvent: ...

    with pytest.raises(WorkflowValidationError, match=message):

        @step(num_workers=2)
        def free(ev: StartEvent) -> StopEvent: ...


def test_a_step_can_be_made_without_a_workflow() -> None:
    def free(ev: StartEvent) -> StopEvent: ...

    assert config_of(make_step_function(free, num_workers=2)).num_workers == 2
    with pytest.raises(WorkflowValidationError, match="num_workers"):
        make_step_function(free, num_workers=0)


# --- names in string annotations (this module's annotations are all strings) ------------------------------------------


def test_local_classes_are_found() -> None:
    class Local(Event):
        pass

    class Flow:
        class Inner(Event):
            pass

        @step
        def bare(self, ev: Local) -> Inner: ...

        @step(num_workers=1)
        def called(self, ev: Inner) -> Local: ...

        @catch_error
        def handler(self, ev: StepFailedEvent) -> Local: ...

    assert config_of(Flow.bare).accepted_events == [Local]
    assert config_of(Flow.bare).return_types == [Flow.Inner]
    assert config_of(Flow.called).accepted_events == [Flow.Inner]
    assert config_of(Flow.handler).return_types == [Local]


def test_local_classes_hide_those_of_the_module() -> None:
    class Shadowed(Event):
        pass

    class Flow:
        @step
        def run(self, ev: Shadowed) -> StopEvent: ...

    assert config_of(Flow.run).accepted_events == [Shadowed]


def build_flow() -> type:
    class Flow:
        @step
        def run(self, ev: Shadowed) -> StopEvent: ...

    return Flow


def build_with_callers_name() -> type:
    class Flow:
        @step
        def run(self, ev: CallersEvent) -> StopEvent: ...  # type: ignore[name-defined]  # noqa: F821

    return Flow


def test_callers_lend_names_but_hide_none() -> None:
    def call() -> tuple[type, type, type]:
        class Shadowed(Event):
            pass

        class CallersEvent(Event):
            pass

        return CallersEvent, build_with_callers_name(), build_flow()

    callers_event, lent, own = call()
    assert config_of(lent.run).accepted_events == [callers_event]  # type: ignore[attr-defined]
    assert config_of(own.run).accepted_events == [Shadowed]  # type: ignore[attr-defined]


def test_a_name_that_is_nowhere() -> None:
    with pytest.raises(WorkflowValidationError, match="Failed to resolve type annotations for"):

        class Flow:
            @step
            def run(self, ev: Nowhere) -> StopEvent: ...  # type: ignore[name-defined]  # noqa: F821


# --- @catch_error -----------------------------------------------------------------------------------------------------


def test_a_handler() -> None:
    class Flow:
        @catch_error
        def everything(self, ev: StepFailedEvent) -> StopEvent: ...

        @catch_error(for_steps=["a", "b"], max_recoveries=3)
        def some(self, ev: StepFailedEvent) -> StopEvent: ...

    everything, some = config_of(Flow.everything), config_of(Flow.some)
    assert (everything.role, everything.num_workers, everything.retry_policy) == ("catch_error", 1, None)
    assert (everything.catch_error_for_steps, everything.catch_error_max_recoveries) == (None, 1)
    assert (some.catch_error_for_steps, some.catch_error_max_recoveries) == (["a", "b"], 3)


@pytest.mark.parametrize("hint", ["A", "StepFailedEvent | A", "Event", "list[StepFailedEvent]"])
def test_a_handler_accepts_failures_and_nothing_else(hint: str) -> None:
    def handler(self: Any, ev: Any) -> StopEvent: ...

    handler.__annotations__["ev"] = hint
    with pytest.raises(WorkflowValidationError, match="handler 'handler' must accept StepFailedEvent"):
        catch_error(handler)


@pytest.mark.parametrize("count", [0, -1, 1.0, "1", True])
def test_recoveries_are_counted(count: Any) -> None:
    with pytest.raises(WorkflowValidationError, match="max_recoveries must be an integer >= 1"):
        catch_error(max_recoveries=count)


@pytest.mark.parametrize("names", ["a", ("a",), [1]])
def test_covered_steps_are_a_list_of_names(names: Any) -> None:
    with pytest.raises(WorkflowValidationError, match="for_steps must be None or a list of step name strings"):
        catch_error(for_steps=names)


# --- @on_cancel -------------------------------------------------------------------------------------------------------


def test_a_clean_up_step() -> None:
    class Flow:
        @on_cancel
        def plain(self, ev: RunCancelledEvent) -> None: ...

        @on_cancel(timeout=timedelta(minutes=2))
        def longer(self, ev: RunCancelledEvent) -> None: ...

    plain, longer = config_of(Flow.plain), config_of(Flow.longer)
    assert (plain.role, plain.num_workers, plain.cleanup_timeout) == ("on_cancel", 1, 60.0)
    assert (longer.cleanup_timeout, longer.timeout) == (120.0, None)


@pytest.mark.parametrize(
    ("hint", "returned", "message"),
    [
        ("A", "None", "must accept RunCancelledEvent"),
        ("RunCancelledEvent | A", "None", "must accept RunCancelledEvent"),
        ("RunCancelledEvent", "StopEvent", "must return None"),
        ("RunCancelledEvent", "A | None", "must return None"),
    ],
)
def test_a_clean_up_step_takes_its_event_and_returns_nothing(hint: str, returned: str, message: str) -> None:
    def undo(self: Any, ev: Any) -> Any: ...

    undo.__annotations__.update(ev=hint, **{"return": returned})
    with pytest.raises(WorkflowValidationError, match=message):
        on_cancel(undo)


@pytest.mark.parametrize("timeout", [0, -1, None, float("inf"), "5"])
def test_a_clean_up_step_is_bounded_in_time(timeout: Any) -> None:
    with pytest.raises(WorkflowValidationError, match="timeout must be a positive, finite number of seconds"):
        on_cancel(timeout=timeout)


def test_a_step_declares_what_comes_from_outside() -> None:
    async def body(ev: A) -> StopEvent: ...

    assert make_step_function(body, external_events=[A, B])._step_config.external_events == (A, B)
    assert make_step_function(body)._step_config.external_events == ()


@pytest.mark.parametrize("wrong", [StartEvent, StopEvent, InputRequiredEvent, StepFailedEvent, "A", int])
@pytest.mark.parametrize("listed", [True, False])
def test_what_cannot_come_from_outside_is_refused_where_it_is_declared(wrong: Any, listed: bool) -> None:
    async def body(ev: A) -> StopEvent: ...

    with pytest.raises(WorkflowValidationError, match=r"external_events .*\(Step 'body'\)"):
        make_step_function(body, external_events=[wrong] if listed else wrong)
