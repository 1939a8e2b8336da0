"""Checks of a workflow's static graph, with messages that name what to change.

Entry points, all over `{step name: StepConfig}`:

- `ensure_start_event_class`, `ensure_stop_event_class`, `check_timeout`, `check_num_concurrent_runs` and
  `check_graph_check_names` are what a workflow's constructor asks;
- `validate_workflow_graph` is everything about the graph at once, and tells whether a human is in the loop.

What resources need (files, factories) is not checked here: that is not pure.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

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
from loom.steps.graph import (
    StepGraph,
    accepts,
    build_graph,
    catch_error_handlers,
    handler_level,
    is_input,
    is_kind,
    matches,
    produced_types,
    stream_levels,
    top_level,
)
from loom.steps.step_config import StepConfig, WorkflowGraphCheck, is_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

EventT = TypeVar("EventT", bound=Event)


def validate_workflow_graph(
    steps: Mapping[str, StepConfig],
    workflow_name: str,
    skip_graph_checks: Collection[str] = (),
) -> bool:
    """Raise if the steps do not make a workflow; True if a human is in the loop.

    Configuration errors come first, then joins, then the balance of events, then handlers, then the shape of the graph.
    """
    if not steps:
        raise WorkflowConfigurationError(
            f"Workflow '{workflow_name}' has no configured steps. Did you forget to annotate methods with @step or to "
            "register free-function steps via @step(workflow=...)?"
        )
    start = ensure_start_event_class(steps, workflow_name)
    ensure_stop_event_class(steps, workflow_name)
    _raise_all(_unbound_joins(steps))
    _raise_all(_split_slots(steps, start))
    _check_balance(steps, start)
    _raise_all(_handler_conflicts(steps))
    _raise_all(_cleanup_conflicts(steps))
    _check_shape(steps, build_graph(steps, start), frozenset(skip_graph_checks))
    return _has_human(steps)


def ensure_start_event_class(steps: Mapping[str, StepConfig], workflow_name: str) -> type[StartEvent]:
    """Return the one class of start events that the steps accept."""
    accepted = (event for config in steps.values() for event in config.accepted_events)
    return _only(StartEvent, accepted, workflow_name, "be received by any step", "accepts")


def ensure_stop_event_class(steps: Mapping[str, StepConfig], workflow_name: str) -> type[StopEvent]:
    """Return the one class of stop events that the steps return."""
    returned = (event for config in steps.values() for event in config.return_types)
    return _only(StopEvent, returned, workflow_name, "be returned by any step", "returns")


def _only(kind: type[EventT], named: Iterable[Any], workflow_name: str, must: str, verb: str) -> type[EventT]:
    found = list(dict.fromkeys(cast("type[EventT]", event) for event in named if is_kind(event, kind)))
    label = kind.__name__
    if not found:
        raise WorkflowConfigurationError(
            f"At least one Event of type {label} must {must}. "
            f"(Workflow '{workflow_name}' has no @step that {verb} {label}.)"
        )
    if len(found) > 1:
        raise WorkflowConfigurationError(
            f"Only one type of {label} is allowed per workflow, found {len(found)}: "
            f"{_names(found)} in workflow '{workflow_name}'."
        )
    return found[0]


def check_timeout(seconds: object) -> None:
    """Refuse a timeout of a run that is neither a number nor None."""
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        raise WorkflowValidationError(f"timeout must be a number of seconds or None, not {seconds!r}")


def check_num_concurrent_runs(limit: object) -> None:
    """Refuse a limit of concurrent runs that is neither a positive integer nor None."""
    if limit is not None and not is_count(limit):
        raise WorkflowValidationError("num_concurrent_runs must be an integer greater than 0 or None")


def check_graph_check_names(names: Collection[str] | None) -> frozenset[WorkflowGraphCheck]:
    """Return the graph checks that a workflow wants to skip, if all of them exist."""
    known = get_args(WorkflowGraphCheck)
    unknown = sorted(set(names or ()) - set(known))
    if unknown:
        raise WorkflowValidationError(
            f"Unknown graph check names: {', '.join(unknown)}. Valid names are: {', '.join(sorted(known))}"
        )
    return frozenset(cast("Collection[WorkflowGraphCheck]", names or ()))


def _unbound_joins(steps: Mapping[str, StepConfig]) -> Iterator[str]:
    """`list[E]` steps that no stream feeds."""
    streamed = {event for level in stream_levels(steps).values() for event in level}
    recovered = handler_level(steps)
    for name, config in steps.items():
        if config.collection_param is None:
            continue
        parameter, elements = config.collection_param
        missing = _unproduced(config, elements, streamed)
        if len(missing) < len(elements):
            # Some stream feeds the join, so a handler inside that stream may bring the other types.
            missing = _unproduced(config, missing, recovered)
        if missing:
            yield (
                f"Step '{name}' parameter '{parameter}' collects list[{_names(missing)}], but no returned-list "
                "producer creates a stream for those event types. list[E] fan-in only consumes events from steps "
                "annotated as returning list[E]; use ctx.collect_events for unstreamed ctx.send_event flows."
            )


def _unproduced(config: StepConfig, wanted: Iterable[Any], level: Collection[Any]) -> list[Any]:
    return [event for event in wanted if not _occurs(config, event, level)]


def _occurs(config: StepConfig, wanted: Any, level: Collection[Any]) -> bool:
    return any(matches(event, wanted, subclasses=config.accept_event_subclasses) for event in level)


def _split_slots(steps: Mapping[str, StepConfig], start: type[Event]) -> Iterator[str]:
    """Joins of several slots that can never be filled on one level: one slot would wait for ever for the other."""
    joins = {name: config for name, config in steps.items() if config.collect_params}
    if not joins:
        return
    levels = {"the top level": top_level(steps, start)}
    levels |= {f"the stream of step '{name}'": level for name, level in stream_levels(steps).items()}
    for name, config in joins.items():
        slots = config.collect_params or []
        if any(not _unproduced(config, (event for _, event in slots), level) for level in levels.values()):
            continue
        places = "; ".join(
            f"'{parameter}' ({_name(event)}) is produced at "
            + (
                ", ".join(sorted(place for place, level in levels.items() if _occurs(config, event, level)))
                or "no level"
            )
            for parameter, event in slots
        )
        yield (
            f"Step '{name}' joins event parameters that are never produced at a common stream level: {places}. A "
            "multi-slot join only fires when all of its inputs originate at the same level. To gate in-stream work on "
            "input from another level, use ctx.wait_for_event inside the producing step instead."
        )


def _check_balance(steps: Mapping[str, StepConfig], start: type[Event]) -> None:
    """Whatever is taken is made somewhere, and whatever is made is taken, except where events cross the border."""
    stopping = [name for name, config in steps.items() if any(is_kind(e, StopEvent) for e in config.accepted_events)]
    if stopping:
        raise WorkflowValidationError(
            f"Step{'s' if len(stopping) > 1 else ''} {', '.join(map(repr, stopping))} cannot accept StopEvent. "
            "StopEvent signals the end of the workflow. Use a different Event type instead."
        )
    produced = dict.fromkeys([start, *(event for config in steps.values() for event in produced_types(config))])
    entering = (InputRequiredEvent, HumanResponseEvent, StopEvent, StepFailedEvent, RunCancelledEvent)
    unmade = [
        event
        for config in steps.values()
        for event in _unproduced(config, config.accepted_events, produced)
        if not is_kind(event, entering) and not is_input(steps, event)
    ]
    if unmade:
        raise WorkflowValidationError(f"The following events are consumed but never produced: {_names(unmade)}")
    leaving = (InputRequiredEvent, HumanResponseEvent, StopEvent)
    untaken = [
        event
        for event in produced
        if not is_kind(event, leaving) and not any(accepts(config, event) for config in steps.values())
    ]
    if untaken:
        raise WorkflowValidationError(f"The following events are produced but never consumed: {_names(untaken)}")


def _has_human(steps: Mapping[str, StepConfig]) -> bool:
    return any(
        any(is_kind(event, InputRequiredEvent) for event in config.return_types)
        or any(is_kind(event, HumanResponseEvent) for event in config.accepted_events)
        for config in steps.values()
    )


def _handler_conflicts(steps: Mapping[str, StepConfig]) -> Iterator[str]:
    """Failures must have one way to go."""
    handlers = catch_error_handlers(steps)
    wildcards = sorted(name for name, handler in handlers.items() if handler.for_steps is None)
    if len(wildcards) > 1:
        yield (
            "Only one wildcard @catch_error handler is allowed per workflow, "
            f"found {len(wildcards)}: {', '.join(wildcards)}"
        )
    owners: dict[str, str] = {}
    for name, handler in handlers.items():
        for target in handler.for_steps or ():
            if target not in steps:
                yield f"@catch_error handler '{name}' lists unknown step '{target}' in for_steps."
            elif target in handlers:
                yield f"@catch_error handler '{name}' cannot cover another handler step '{target}'."
            elif target in owners:
                yield f"Step '{target}' is claimed by two @catch_error handlers: '{owners[target]}' and '{name}'."
            else:
                owners[target] = name


def _cleanup_conflicts(steps: Mapping[str, StepConfig]) -> Iterator[str]:
    """A cancelled run has one way to go, and only a cancel leads there."""
    cleanups = sorted(name for name, config in steps.items() if config.role == "on_cancel")
    for name, handler in catch_error_handlers(steps).items():
        for target in cleanups:
            if target in (handler.for_steps or ()):
                yield f"@catch_error handler '{name}' cannot cover '{target}': a failed @on_cancel step ends the run."
    if len(cleanups) > 1:
        yield f"Only one @on_cancel step is allowed per workflow, found {len(cleanups)}: {', '.join(cleanups)}"
    for name, config in steps.items():
        if name not in cleanups and RunCancelledEvent in (*config.accepted_events, *config.return_types):
            yield f"Step '{name}' names RunCancelledEvent, which goes to an @on_cancel step and to no other."


def _check_shape(steps: Mapping[str, StepConfig], graph: StepGraph, skipped: frozenset[str]) -> None:
    """Every step can be set in motion, and everything leads to an output."""
    unreachable = sorted(_checked(steps, "reachability") - graph.reachable)
    dangling = [
        event
        for event, takers in graph.consumers.items()
        if not takers and not is_kind(event, (StopEvent, InputRequiredEvent))
    ]
    productive = {name for name in _checked(steps, "dead_end") if produced_types(steps[name])}
    dead_ends = sorted(productive - graph.finishing)
    findings = {
        "reachability": (
            f"Unreachable steps: {', '.join(unreachable)}" if unreachable else "",
            "Steps must be reachable from StartEvent or HumanResponseEvent.",
        ),
        "terminal_event": (
            f"Events produced but never consumed: {_names(dangling)}" if dangling else "",
            "Only StopEvent and InputRequiredEvent may be terminal.",
        ),
        "dead_end": (
            f"Dead-end steps: {', '.join(dead_ends)}" if dead_ends else "",
            "Steps must have a path to StopEvent or InputRequiredEvent.",
        ),
    }
    lines = [
        f"  - [{check}] {message}\n    {hint}"
        for check, (message, hint) in findings.items()
        if message and check not in skipped
    ]
    if lines:
        raise WorkflowValidationError("\n".join(["Graph validation failed:", *lines]))


def _checked(steps: Mapping[str, StepConfig], check: str) -> set[str]:
    return {name for name, config in steps.items() if check not in config.skip_graph_checks}


def _raise_all(problems: Iterable[str]) -> None:
    found = list(problems)
    if found:
        raise WorkflowValidationError("\n".join(found))


def _names(types: Iterable[Any]) -> str:
    return ", ".join(sorted({_name(event) for event in types}))


def _name(event: Any) -> str:
    return getattr(event, "__name__", None) or str(event)
