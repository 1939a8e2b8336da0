"""`@step`, `@catch_error` and `@on_cancel`: they leave a function as it is and attach its `StepConfig`.

`external_events` declares what may come from outside: a declaration that classes which are pydantic models bear too.
"""

from __future__ import annotations

import math
import sys
from datetime import timedelta
from types import NoneType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, get_args, overload

from loom.steps.errors import WorkflowValidationError
from loom.steps.events import Event, InputRequiredEvent, RunCancelledEvent, StartEvent, StepFailedEvent, StopEvent
from loom.steps.graph import is_own
from loom.steps.registry import kind_of
from loom.steps.signature import inspect_signature, is_free_function, names_in_scope, naming, validate_step_signature
from loom.steps.step_config import (
    CatchErrorHandler,
    P,
    StepConfig,
    StepFunction,
    StepGraphCheck,
    StepRole,
    WorkflowGraphCheck,
    is_count,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from loom.steps.retry import RetryPolicy

__all__ = [
    "CatchErrorHandler",
    "StepConfig",
    "StepFunction",
    "StepGraphCheck",
    "StepRole",
    "WorkflowGraphCheck",
    "catch_error",
    "make_step_function",
    "on_cancel",
    "step",
]

R = TypeVar("R")

CLEANUP_S = 60.0
"""Seconds that a clean-up step may take, if its author says nothing."""


class StepOwner(Protocol):
    """What free functions are added to: a workflow class."""

    def add_step(self, func: StepFunction[..., Any]) -> None:
        """Take a step under its function's name."""
        ...


@overload
def step(func: Callable[P, R]) -> StepFunction[P, R]: ...


@overload
def step(
    *,
    workflow: StepOwner | None = None,
    num_workers: int = 4,
    retry_policy: RetryPolicy | None = None,
    skip_graph_checks: list[StepGraphCheck] | None = None,
    accept_event_subclasses: bool = False,
    timeout: float | timedelta | None = None,
    external_events: Sequence[type[Event]] = (),
    pure: bool = False,
) -> Callable[[Callable[P, R]], StepFunction[P, R]]: ...


def step(  # noqa: PLR0913 - all but the first by name
    func: Callable[P, R] | None = None,
    *,
    workflow: StepOwner | None = None,
    num_workers: int = 4,
    retry_policy: RetryPolicy | None = None,
    skip_graph_checks: list[StepGraphCheck] | None = None,
    accept_event_subclasses: bool = False,
    timeout: float | timedelta | None = None,
    external_events: Sequence[type[Event]] = (),
    pure: bool = False,
) -> Callable[[Callable[P, R]], StepFunction[P, R]] | StepFunction[P, R]:
    """Make a function a step of a workflow; what it accepts and returns is read from its annotations.

    `workflow` names the class that a function outside any class belongs to. At most `num_workers` executions run at
    a time; `timeout` bounds each one (seconds or a timedelta). With `accept_event_subclasses` the step also takes
    subclasses of its events. `skip_graph_checks` exempts it from "reachability" or "dead_end". `external_events` are
    types that a server takes for it from keys of scope `event` at any time: the step takes them or waits for them.
    `pure` declares that the body has no effect outside and may run again with other inputs. In a store it then begins
    before the commit that starts it is durable; elsewhere that changes nothing.
    """

    def decorate(function: Callable[P, R], frame: FrameType) -> StepFunction[P, R]:
        made = make_step_function(
            function,
            num_workers=num_workers,
            retry_policy=retry_policy,
            localns=names_in_scope(function, frame),
            skip_graph_checks=skip_graph_checks,
            accept_event_subclasses=accept_event_subclasses,
            timeout=timeout,
            external_events=external_events,
        )
        made._step_config.pure = pure
        if is_free_function(made.__qualname__):
            if workflow is None:
                raise WorkflowValidationError(
                    f"To decorate {made.__name__} please pass a workflow class to the @step decorator."
                )
            workflow.add_step(made)
        return made

    if func is not None:
        return decorate(func, sys._getframe(1))
    return lambda function: decorate(function, sys._getframe(1))


def make_step_function(
    func: Callable[P, R],
    num_workers: int = 4,
    retry_policy: RetryPolicy | None = None,
    localns: dict[str, Any] | None = None,
    skip_graph_checks: list[StepGraphCheck] | None = None,
    accept_event_subclasses: bool = False,
    timeout: float | timedelta | None = None,
    external_events: Sequence[type[Event]] = (),
) -> StepFunction[P, R]:
    """Attach a `StepConfig` to `func` without adding it to a workflow; `localns` serves its string annotations."""
    name = getattr(func, "__name__", "")
    if not is_count(num_workers):
        raise WorkflowValidationError(f"num_workers must be an integer greater than 0{naming(name)}")
    spec = inspect_signature(func, localns=localns)
    validate_step_signature(spec, name)
    names = list(spec.accepted_events)
    made = cast("StepFunction[P, R]", func)
    made._step_config = StepConfig(
        accepted_events=[event for types in spec.accepted_events.values() for event in types],
        event_name=names[0],
        return_types=spec.return_types,
        context_parameter=spec.context_parameter,
        context_state_type=spec.context_state_type,
        num_workers=num_workers,
        retry_policy=retry_policy,
        resources=spec.resources,
        skip_graph_checks=_step_checks(skip_graph_checks),
        collect_params=[(name, spec.accepted_events[name][0]) for name in names] if len(names) > 1 else None,
        is_fan_out=spec.is_fan_out,
        bare_return_types=tuple(spec.bare_return_types),
        collection_param=spec.collection_param,
        collection_policy=spec.collection_policy,
        accept_event_subclasses=accept_event_subclasses,
        timeout=_seconds(timeout),
        external_events=_external(external_events, name),
    )
    return made


def _external(types: object, step_name: str) -> tuple[type[Event], ...]:
    """The event types that a step lets in from outside, checked where they are declared."""
    found = tuple(types) if isinstance(types, list | tuple) else (types,)
    for cls in found:
        if not isinstance(cls, type) or not issubclass(cls, Event):
            raise WorkflowValidationError(f"external_events takes event classes, not {cls!r}{naming(step_name)}")
        if issubclass(cls, StartEvent | StopEvent | InputRequiredEvent) or is_own(kind_of(cls)):
            raise WorkflowValidationError(
                f"external_events cannot have {cls.__name__}: a run's beginning and end, its questions and the "
                f"engine's own events do not come from outside{naming(step_name)}"
            )
    return found


def _step_checks(names: list[StepGraphCheck] | None) -> list[StepGraphCheck]:
    known = get_args(StepGraphCheck)
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise WorkflowValidationError(
            f"Unknown graph check names: {', '.join(unknown)}. Valid names for a step are: {', '.join(sorted(known))}"
        )
    return list(names or ())


def _seconds(timeout: object) -> float | None:
    if timeout is None:
        return None
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise WorkflowValidationError("timeout must be a positive, finite number of seconds, a timedelta or None")
    return float(seconds)


def _is_names(names: object) -> bool:
    return names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names))


@overload
def catch_error(func: Callable[P, R]) -> StepFunction[P, R]: ...


@overload
def catch_error(
    *, for_steps: list[str] | None = None, max_recoveries: int = 1
) -> Callable[[Callable[P, R]], StepFunction[P, R]]: ...


def catch_error(
    func: Callable[P, R] | None = None, *, for_steps: list[str] | None = None, max_recoveries: int = 1
) -> Callable[[Callable[P, R]], StepFunction[P, R]] | StepFunction[P, R]:
    """Make a method the handler of steps whose retries are used up; it accepts a `StepFailedEvent`.

    `for_steps` names the steps it covers, by default all that no other handler names. Along the lineage of one event
    it recovers at most `max_recoveries` times; one failure more fails the run.
    """
    if not is_count(max_recoveries):
        raise WorkflowValidationError("@catch_error max_recoveries must be an integer >= 1")
    if not _is_names(for_steps):
        raise WorkflowValidationError("@catch_error for_steps must be None or a list of step name strings")

    def decorate(function: Callable[P, R], frame: FrameType) -> StepFunction[P, R]:
        made = make_step_function(function, num_workers=1, localns=names_in_scope(function, frame))
        config = made._step_config
        if config.accepted_events != [StepFailedEvent] or config.collection_param is not None:
            raise WorkflowValidationError(
                f"@catch_error handler '{made.__name__}' must accept StepFailedEvent as its event parameter."
            )
        config.role = "catch_error"
        config.catch_error_for_steps = None if for_steps is None else list(for_steps)
        config.catch_error_max_recoveries = max_recoveries
        return made

    if func is not None:
        return decorate(func, sys._getframe(1))
    return lambda function: decorate(function, sys._getframe(1))


@overload
def on_cancel(func: Callable[P, R]) -> StepFunction[P, R]: ...


@overload
def on_cancel(
    *, timeout: float | timedelta = CLEANUP_S, retry_policy: RetryPolicy | None = None
) -> Callable[[Callable[P, R]], StepFunction[P, R]]: ...


def on_cancel(
    func: Callable[P, R] | None = None,
    *,
    timeout: float | timedelta = CLEANUP_S,
    retry_policy: RetryPolicy | None = None,
) -> Callable[[Callable[P, R]], StepFunction[P, R]] | StepFunction[P, R]:
    """Make a method the clean-up step of a workflow: it accepts a `RunCancelledEvent` and returns None.

    It runs once when a run is cancelled, after the work under way was stopped; then the run ends, cancelled. All of its
    attempts together may take `timeout` seconds, or a timedelta.
    """
    seconds = _seconds(timeout)
    if seconds is None:
        raise WorkflowValidationError("@on_cancel timeout must be a positive, finite number of seconds or a timedelta")

    def decorate(function: Callable[P, R], frame: FrameType) -> StepFunction[P, R]:
        localns = names_in_scope(function, frame)
        made = make_step_function(function, num_workers=1, retry_policy=retry_policy, localns=localns)
        config = made._step_config
        if config.accepted_events != [RunCancelledEvent] or config.collection_param is not None:
            raise WorkflowValidationError(
                f"@on_cancel step '{made.__name__}' must accept RunCancelledEvent as its event parameter."
            )
        if any(returned is not NoneType for returned in config.return_types):
            raise WorkflowValidationError(
                f"@on_cancel step '{made.__name__}' must return None: the run ends with it, cancelled."
            )
        config.role = "on_cancel"
        config.cleanup_timeout = seconds
        return made

    if func is not None:
        return decorate(func, sys._getframe(1))
    return lambda function: decorate(function, sys._getframe(1))
