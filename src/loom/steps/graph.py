"""The static graph of a workflow: which step makes which event, which step takes it, and what crosses its border.

Declarations in, data out: the graph of steps and events, the levels of streams, the handlers of failures, the config
that enters a run, and which events may come from outside. Nothing here follows the order of a set, so that equal
declarations give equal answers in every process.

A caller with a key for events may send what a run waits for and the answers of people that a step takes. It may also
send the types that a step declares by `@step(external_events=[...])`. Events between steps, the beginning and the end
of a run are for administrators, and the engine's own events for no caller.
"""

from __future__ import annotations

from types import NoneType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from loom.core.records import START_EVENT, STOP_EVENT
from loom.core.state import BrokerConfig, CleanupSpec, StepLimits, StepSpec
from loom.steps.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent
from loom.steps.registry import framework_type, kind_of, wire_name
from loom.steps.step_config import CatchErrorHandler, StepConfig, Take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from loom.core.records import EventKind


def is_kind(candidate: Any, kind: type | tuple[type, ...]) -> bool:
    """Return whether an annotation is a class of a kind; annotations that are no classes are of none."""
    return isinstance(candidate, type) and issubclass(candidate, kind)


def matches(produced: Any, accepted: Any, *, subclasses: bool) -> bool:
    """Apply the rule of routing: the exact type, or with `subclasses` also types derived from it."""
    return produced is accepted or (subclasses and is_kind(produced, accepted))


def accepts(config: StepConfig, produced: Any) -> bool:
    """Return whether events of a type are routed to a step."""
    subclasses = config.accept_event_subclasses
    return any(matches(produced, accepted, subclasses=subclasses) for accepted in config.accepted_events)


def produced_types(config: StepConfig) -> list[Any]:
    """List what a step may return, besides None."""
    return [produced for produced in config.return_types if produced is not NoneType]


def event_types(steps: Mapping[str, StepConfig]) -> list[type[Event]]:
    """Return every event class that the steps accept, return or let in from outside, in order of appearance."""
    named = (
        event
        for config in steps.values()
        for event in (*config.accepted_events, *config.return_types, *config.external_events)
    )
    return list(dict.fromkeys(event for event in named if is_kind(event, Event)))


def is_input(steps: Mapping[str, StepConfig], event_type: Any) -> bool:
    """Return whether events of a type come from outside, as answers or as declared: no step has to make them."""
    return is_kind(event_type, HumanResponseEvent) or any(event_type in c.external_events for c in steps.values())


class StepGraph(Struct, frozen=True):
    """Who makes and who takes each type of event, and which steps lie on a path from input to output."""

    producers: dict[Any, tuple[str, ...]]
    """Every type in the graph, with the steps that may return it."""
    consumers: dict[Any, tuple[str, ...]]
    """Every type in the graph, with the steps it is routed to."""
    reachable: frozenset[str]
    """The steps that input from outside, a failure or a cancel can set in motion."""
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
    handlers = [name for name, config in steps.items() if config.role != "step"]
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
    """Return the event types that occur outside any stream."""
    answers = [t for t in event_types(steps) if is_input(steps, t)]
    return _level(steps, stream_levels(steps), [start_event_class, *answers])


def handler_level(steps: Mapping[str, StepConfig]) -> frozenset[Any]:
    """Return the event types that `catch_error` handlers put into the stream of the item that failed."""
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
    """List what an execution of a step adds to its level: its results, or the results of the joins of its streams."""
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
    """Return the handlers among the steps, by name."""
    return {
        name: CatchErrorHandler(name, config.catch_error_for_steps, config.catch_error_max_recoveries)
        for name, config in steps.items()
        if config.role == "catch_error"
    }


def cleanup_step(steps: Mapping[str, StepConfig]) -> str | None:
    """Return the name of the step that runs when a run is cancelled; None if there is none."""
    return next((name for name, config in steps.items() if config.role == "on_cancel"), None)


def handlers_by_step(steps: Mapping[str, StepConfig]) -> dict[str, str]:
    """For each step that a handler covers, the handler: the one that names it, else the wildcard."""
    handlers = catch_error_handlers(steps)
    named = {target: h.step_name for h in handlers.values() for target in h.for_steps or ()}
    wildcard = next((h.step_name for h in handlers.values() if h.for_steps is None), None)
    cleanup = cleanup_step(steps)
    owners = ((name, named.get(name, wildcard)) for name in steps if name not in handlers and name != cleanup)
    return {name: owner for name, owner in owners if owner is not None}


# The config that enters a run.


def broker_config(
    workflow: str, steps: Mapping[str, StepConfig], timeout_s: float | None, max_depth: int | None = None
) -> BrokerConfig:
    """Compile the declarations of steps into what the reducer may know of a workflow's code."""
    bindings, handlers, recoverers = stream_bindings(steps), handlers_by_step(steps), catch_error_handlers(steps)
    specs = []
    for name, config in steps.items():
        policy = config.collection_policy
        handler = recoverers.get(name)
        specs.append(
            StepSpec(
                name=name,
                accepts=_names(config.accepted_events),
                inputs=_names(t for t in config.accepted_events if _is_answer(t) or t in config.external_events),
                num_workers=config.num_workers,
                accept_subclasses=config.accept_event_subclasses,
                slots=tuple((slot, _names([kind])) for slot, kind in config.collect_params or ()),
                collects=config.collection_param is not None,
                take=policy.cardinality.n if policy is not None and isinstance(policy.cardinality, Take) else None,
                joins=bindings.get(name, ()),
                recovered_by=handlers.get(name),
                max_recoveries=handler.max_recoveries if handler is not None else 0,
            )
        )
    name_of_cleanup = cleanup_step(steps)
    cleanup = CleanupSpec(name_of_cleanup, steps[name_of_cleanup].cleanup_timeout) if name_of_cleanup else None
    limits = StepLimits(None if max_depth is None else int(max_depth), cleanup)
    timeout_s = None if timeout_s is None else float(timeout_s)
    return BrokerConfig(workflow, tuple(specs), timeout_s, program=limits if limits != StepLimits() else None)


def _names(types: Iterable[Any]) -> tuple[str, ...]:
    """Wire names without repetitions, in order."""
    found = [kind_of(cls).name for cls in types if isinstance(cls, type) and issubclass(cls, Event)]
    return tuple(dict.fromkeys(found))


def _is_answer(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, HumanResponseEvent)


# Events from outside.

FLOW_EVENT, CALLBACK_EVENT = "loom.flows.FlowEvent", "loom.flows.CallbackEvent"
"""Events of flows that are made outside: one by a name, and the call of a service."""

_RESERVED = "loom."
"""Wire names that begin so are the engine's."""
_AUTHORS = (Event, StartEvent, StopEvent, InputRequiredEvent, HumanResponseEvent)
_OPEN = frozenset({*map(wire_name, _AUTHORS), FLOW_EVENT, CALLBACK_EVENT})
"""Wire names of the engine that others may use all the same."""


def is_own(kind: EventKind) -> bool:
    """Return whether only the engine makes events of this kind: messages to actors, replies, failures, reports."""
    return any(_is_reserved(name) for name in (kind.name, *kind.bases))


def _is_reserved(name: str) -> bool:
    return name not in _OPEN and (name.startswith(_RESERVED) or framework_type(name) is not None)


def is_bound(kind: EventKind) -> bool:
    """Return whether events of this kind begin or end a run: a key for events may not send them, even if awaited."""
    return kind.is_a(START_EVENT) or kind.is_a(STOP_EVENT)


def is_answer(kind: EventKind) -> bool:
    """Return whether a kind is that of a person's answer."""
    return kind.is_a(wire_name(HumanResponseEvent))


def is_declared(steps: Mapping[str, StepConfig], kind: EventKind, step: str | None = None) -> bool:
    """Return whether some step, or the given one, declares a type, or a base of it if the step takes subclasses."""
    for name, config in steps.items():
        if step not in (None, name):
            continue
        declared = {kind_of(cls).name for cls in config.external_events}
        if kind.name in declared or (config.accept_event_subclasses and not declared.isdisjoint(kind.bases)):
            return True
    return False


def external_types(steps: Mapping[str, StepConfig]) -> list[type[Event]]:
    """The types that callers from outside may send at any time: answers that a step takes, and what is declared."""
    declared = {cls for config in steps.values() for cls in config.external_events}
    return [
        cls
        for cls in event_types(steps)
        if cls in declared
        or (
            is_kind(cls, HumanResponseEvent)
            and not is_own(kind_of(cls))
            and any(accepts(config, cls) for config in steps.values())
        )
    ]
