"""The static graph of a workflow: which step makes which event, which step takes it, and where streams are collected.

Pure: declarations in, data out. May import `events` and `step_config` of this package. Nothing here follows the order
of a set, so that equal declarations give equal answers in every process.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any

from loom.steps.events import Event, HumanResponseEvent, InputRequiredEvent, StopEvent
from loom.steps.step_config import CatchErrorHandler, StepConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def is_kind(candidate: Any, kind: type | tuple[type, ...]) -> bool:
    """Whether an annotation is a class of a kind; annotations that are no classes are of none."""
    return isinstance(candidate, type) and issubclass(candidate, kind)


def matches(produced: Any, accepted: Any, *, subclasses: bool) -> bool:
    """The rule of routing: the exact type, or with `subclasses` also those derived from it."""
    return produced is accepted or (subclasses and is_kind(produced, accepted))


def accepts(config: StepConfig, produced: Any) -> bool:
    """Whether events of a type are routed to a step."""
    subclasses = config.accept_event_subclasses
    return any(matches(produced, accepted, subclasses=subclasses) for accepted in config.accepted_events)


def produced_types(config: StepConfig) -> list[Any]:
    """What a step may return, besides nothing."""
    return [produced for produced in config.return_types if produced is not NoneType]


def event_types(steps: Mapping[str, StepConfig]) -> list[type[Event]]:
    """Every event class that the steps accept, return or let in from outside, in order of appearance."""
    named = (
        event
        for config in steps.values()
        for event in (*config.accepted_events, *config.return_types, *config.external_events)
    )
    return list(dict.fromkeys(event for event in named if is_kind(event, Event)))


def is_input(steps: Mapping[str, StepConfig], event_type: Any) -> bool:
    """Whether events of a type come from outside, so that no step has to make them: answers, and what is declared."""
    return is_kind(event_type, HumanResponseEvent) or any(event_type in c.external_events for c in steps.values())


@dataclass(frozen=True)
class StepGraph:
    """Who makes and who takes each type of event, and which steps lie on a path from input to output."""

    producers: dict[Any, tuple[str, ...]]
    """Every type in the graph, with the steps that may return it."""
    consumers: dict[Any, tuple[str, ...]]
    """Every type in the graph, with the steps it is routed to."""
    reachable: frozenset[str]
    """The steps that input from outside, or a failure, can set in motion."""
    finishing: frozenset[str]
    """The steps from which an output event can follow."""


def build_graph(steps: Mapping[str, StepConfig], start_event_class: type[Event]) -> StepGraph:
    """Join the steps by their events. Inputs are start events and human responses, outputs stops and input requests."""
    types: dict[Any, None] = {start_event_class: None} if steps else {}
    for config in steps.values():
        types |= dict.fromkeys(produced_types(config)) | dict.fromkeys(config.accepted_events)
    producers = {t: tuple(name for name, config in steps.items() if t in config.return_types) for t in types}
    consumers = {t: tuple(name for name, config in steps.items() if _routed(t, config)) for t in types}

    inputs = [t for t in types if t is start_event_class or is_input(steps, t)]
    handlers = [name for name, config in steps.items() if config.role == "catch_error"]
    entered = [*handlers, *(name for t in inputs for name in consumers[t])]
    outputs = [t for t in types if is_kind(t, (StopEvent, InputRequiredEvent))]
    return StepGraph(
        producers=producers,
        consumers=consumers,
        reachable=_closure(
            entered, lambda name: [taker for t in produced_types(steps[name]) for taker in consumers[t]]
        ),
        finishing=_closure(
            [name for t in outputs for name in producers[t]],
            lambda name: [maker for t, takers in consumers.items() if name in takers for maker in producers[t]],
        ),
    )


def _routed(event_type: Any, config: StepConfig) -> bool:
    """A stop event ends the run: a step that accepts a broad base never sees it."""
    if is_kind(event_type, StopEvent):
        return event_type in config.accepted_events
    return accepts(config, event_type)


def _closure(seeds: Iterable[str], successors: Callable[[str], Iterable[str]]) -> frozenset[str]:
    seen: set[str] = set()
    waiting = list(seeds)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(successors(name))
    return frozenset(seen)


# Streams. A returned list opens a level of its own: its members, and all that 1:1 steps make of them. A fan-out inside
# it opens a level below, of which only the results of the joins that collect it come back up.


def stream_levels(steps: Mapping[str, StepConfig]) -> dict[str, frozenset[Any]]:
    """For each fan-out step, the event types that occur in the streams it opens.

    Levels depend on each other (also in circles, when a step feeds itself), so they grow together until none does.
    """
    levels: dict[str, frozenset[Any]] = {
        name: frozenset(produced_types(config)) for name, config in steps.items() if config.is_fan_out
    }
    while True:
        grown = {name: _level(steps, levels, seeds) for name, seeds in levels.items()}
        if grown == levels:
            return levels
        levels = grown


def top_level(steps: Mapping[str, StepConfig], start_event_class: type[Event]) -> frozenset[Any]:
    """The event types that occur outside any stream."""
    answers = [t for t in event_types(steps) if is_input(steps, t)]
    return _level(steps, stream_levels(steps), [start_event_class, *answers])


def handler_level(steps: Mapping[str, StepConfig]) -> frozenset[Any]:
    """The event types that `catch_error` handlers put into the stream of the item that failed."""
    returned = [t for config in steps.values() if config.role == "catch_error" for t in produced_types(config)]
    return _level(steps, stream_levels(steps), returned)


def stream_bindings(steps: Mapping[str, StepConfig]) -> dict[str, tuple[str, ...]]:
    """For each fan-out step, the `list[E]` steps that collect the streams it opens."""
    return {name: tuple(_joins(steps, level)) for name, level in stream_levels(steps).items()}


def _level(
    steps: Mapping[str, StepConfig], levels: Mapping[str, frozenset[Any]], seeds: Iterable[Any]
) -> frozenset[Any]:
    """All types on the level of `seeds`, given what is known of the levels below it."""
    seen: set[Any] = set()
    waiting = list(seeds)
    while waiting:
        event_type = waiting.pop()
        if event_type in seen or not is_kind(event_type, Event):
            continue
        seen.add(event_type)
        for name, config in steps.items():
            if config.collection_param is None and accepts(config, event_type):
                waiting.extend(_brought_back(steps, levels, name))
    return frozenset(seen)


def _brought_back(steps: Mapping[str, StepConfig], levels: Mapping[str, frozenset[Any]], name: str) -> list[Any]:
    """What an execution of a step adds to the level it runs on: its results, or those of the joins of its streams."""
    results: list[Any] = []
    ran: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name in ran:
            continue
        ran.add(name)
        if steps[name].is_fan_out:
            waiting.extend(_joins(steps, levels[name]))
        else:
            results.extend(produced_types(steps[name]))
    return results


def _joins(steps: Mapping[str, StepConfig], level: frozenset[Any]) -> list[str]:
    return [
        name
        for name, config in steps.items()
        if config.collection_param is not None and any(accepts(config, event_type) for event_type in level)
    ]


def catch_error_handlers(steps: Mapping[str, StepConfig]) -> dict[str, CatchErrorHandler]:
    """The handlers among the steps, by name."""
    return {
        name: CatchErrorHandler(name, config.catch_error_for_steps, config.catch_error_max_recoveries)
        for name, config in steps.items()
        if config.role == "catch_error"
    }


def handlers_by_step(steps: Mapping[str, StepConfig]) -> dict[str, str]:
    """For each step that a handler covers, the handler: the one that names it, else the wildcard."""
    handlers = catch_error_handlers(steps)
    named = {target: h.step_name for h in handlers.values() for target in h.for_steps or ()}
    wildcard = next((h.step_name for h in handlers.values() if h.for_steps is None), None)
    owners = ((name, named.get(name, wildcard)) for name in steps if name not in handlers)
    return {name: owner for name, owner in owners if owner is not None}
