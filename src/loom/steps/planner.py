"""The planner of Python steps: which steps get an event, and when joins fire.

Streams. A step that returns a list opens a stream. The stream counts its open tokens: events on their way, pieces of
work, and streams within it, each one token. Whatever settles gives its token back; at zero the stream closes and its
joins fire, one level up. So each rule below only has to say by how much the count changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP, Fifo, Map
from loom.core.planner import Complete, Emit, Fail, Intent, Planned, Publish, RunStep, Warn
from loom.core.records import (
    INPUT_REQUIRED_EVENT,
    RELEASE_KIND,
    STEP_FAILED_KIND,
    STOP_EVENT,
    EventRecord,
    Failure,
    Release,
    StepFailure,
    deepest_of,
    without_traceback,
)
from loom.core.state import specs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from loom.core.planner import StepFailed
    from loom.core.records import EventKind
    from loom.core.state import BrokerConfig, StepSpec, WorkItem


class JoinBuffer(msgspec.Struct, frozen=True, array_like=True):
    """What has arrived at one join from one stream, and whether the join has fired."""

    members: Fifo[EventRecord] = EMPTY_FIFO
    fired: bool = False


_EMPTY_JOIN = JoinBuffer()


class Stream(msgspec.Struct, frozen=True, array_like=True):
    """A list that a step returned, while its members are worked on."""

    source: str
    scope: tuple[int, ...]
    """The streams around it, outermost first."""
    tokens: int
    """Events, work items and inner streams of it that are not settled."""
    joins: Map[str, JoinBuffer] = EMPTY_MAP


class StepsPlan(msgspec.Struct, frozen=True, tag=True):
    """What the steps planner has to remember: open streams, and the filled slots of joins."""

    streams: Map[int, Stream] = EMPTY_MAP
    opened: int = 0
    slots: Map[str, Map[str, Fifo[EventRecord]]] = EMPTY_MAP


class Fired(msgspec.Struct, frozen=True):
    """A join whose set is complete, and the streams around its work."""

    step: str
    event: EventRecord
    scope: tuple[int, ...]


def open_stream(plan: StepsPlan, step: str, scope: tuple[int, ...], tokens: int) -> tuple[StepsPlan, tuple[int, ...]]:
    """Open a stream with this many members. It takes the token that the work which opened it had one level up."""
    number = plan.opened + 1
    stream = Stream(step, scope, tokens)
    return replace(plan, streams=plan.streams.set(number, stream), opened=number), (*scope, number)


def adjust(config: BrokerConfig, plan: StepsPlan, scope: tuple[int, ...], tokens: int) -> tuple[StepsPlan, list[Fired]]:
    """Change the tokens of the innermost stream; at zero it closes and its joins fire, one level up, and so on."""
    fired: list[Fired] = []
    while scope:
        number = scope[-1]
        stream = plan.streams.get(number)
        if stream is None:
            return plan, fired
        left = stream.tokens + tokens
        if left > 0:
            return replace(plan, streams=plan.streams.set(number, replace(stream, tokens=left))), fired
        plan = replace(plan, streams=plan.streams.delete(number))
        closing = _close(config, number, stream)
        fired += closing
        # The stream's own token one level up becomes the tokens of the joins that fire now.
        scope, tokens = stream.scope, len(closing) - 1
    return plan, fired


def _close(config: BrokerConfig, number: int, stream: Stream) -> list[Fired]:
    specs = specs_of(config)
    source = specs.get(stream.source)
    fired = []
    for name in source.joins if source is not None else ():
        join = stream.joins.get(name, JoinBuffer())
        if name in specs and not join.fired:
            fired.append(_fire(number, name, tuple(join.members), stream.scope))
    return fired


def _fire(stream: int, step: str, members: tuple[EventRecord, ...], scope: tuple[int, ...]) -> Fired:
    event = EventRecord(RELEASE_KIND, Release(stream, step, members))
    depth = deepest_of(members)
    return Fired(step, event.at_depth(depth) if depth else event, scope)


def arrive(
    config: BrokerConfig,
    plan: StepsPlan,
    spec: StepSpec,
    scope: tuple[int, ...],
    event: EventRecord,
    settled: int = 0,
) -> tuple[StepsPlan, list[Fired], bool]:
    """Give a member to a join: put it aside, or let it complete the `Take(n)` that the join asked for.

    `settled` tokens are given back with it. The last value says whether the join collects this stream at all.
    """
    number = scope[-1]
    stream = plan.streams.get(number)
    source = specs_of(config).get(stream.source) if stream is not None else None
    if stream is None or source is None or spec.name not in source.joins:
        return plan, [], False
    join = stream.joins.get(spec.name, _EMPTY_JOIN)
    fired: list[Fired] = []
    if not join.fired:
        join = JoinBuffer(join.members.push_back(event))
        if spec.take is not None and len(join.members) >= spec.take:
            fired = [_fire(number, spec.name, tuple(join.members), stream.scope)]
            join = JoinBuffer(EMPTY_FIFO, fired=True)
    closes = stream.tokens <= settled
    stream = replace(stream, joins=stream.joins.set(spec.name, join), tokens=stream.tokens - (0 if closes else settled))
    plan = replace(plan, streams=plan.streams.set(number, stream))
    if fired and stream.scope:
        # The join's work is new one level up: the stream itself stays open there.
        plan, more = adjust(config, plan, stream.scope, 1)
        fired += more
    if closes and settled:
        plan, more = adjust(config, plan, scope, -settled)
        fired += more
    return plan, fired, True


def targeted_at_join(label: str, step: str) -> str:
    """Tell why an event cannot be sent to a join."""
    return (
        f"{label} was sent to step '{step}' with send_event(step=...), but that step collects list[{label}] and only "
        "takes events that were returned inside a stream."
    )


def outside_of_stream(label: str, step: str) -> str:
    """Tell why a join ignores an event that was sent."""
    return f"{label} is ignored by step '{step}', which collects a stream: the event was sent outside of any stream."


def not_bound(label: str, step: str) -> str:
    """Tell why a join ignores an event of another stream."""
    return f"{label} is dropped at step '{step}': the stream that it belongs to does not end in this step."


def stuck(plan: StepsPlan) -> str:
    """Tell why an idle run with open streams has failed."""
    details = "; ".join(
        f"stream {number} of step '{stream.source}' with {stream.tokens} open piece(s) of work"
        for number, stream in sorted(plan.streams.items())
    )
    return f"Workflow is idle but collection streams are still open, so that they can never be collected: {details}."


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Where an event comes from: the streams around it, and how often its line has been recovered, by handler."""

    scope: tuple[int, ...] = ()
    recoveries: tuple[tuple[str, int], ...] = ()


class StepInput(msgspec.Struct, frozen=True, tag=True):
    """The planner's mark on events and work: where they come from and what belongs to them besides the event."""

    origin: Origin = Origin()
    bound: tuple[tuple[str, EventRecord], ...] = ()
    """The events of a multi-slot join by parameter."""


ROOT = Origin()
_INSIDE = StepInput()
"""The mark on events that a step made outside of any stream. Work for such an event carries no mark at all."""
_EMPTY_PLAN = StepsPlan()
_NOTHING: tuple[Intent, ...] = ()


class EventRoutes:
    """Which steps take which types, worked out once per config and type."""

    __slots__ = ("_plain", "by_kind", "config")

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.by_kind: dict[str, tuple[StepSpec, ...]] = {}
        self._plain: dict[str, tuple[EventKind, str | None]] = {}

    def steps_for(self, kind: EventKind) -> tuple[StepSpec, ...]:
        """Return the accepting steps, in the order of the config."""
        found = self.by_kind.get(kind.name)
        if found is None:
            found = self.by_kind[kind.name] = tuple(s for s in self.config.steps if takes(s, s.accepts, kind))
        return found

    def plain_taker(self, kind: EventKind) -> str | None:
        """Return the one step that takes the type and needs nothing besides; None for what ends a run or asks."""
        known = self._plain.get(kind.name)
        # A history may know a type with other bases than the code has now: its name alone does not tell.
        if known is None or (known[0] is not kind and known[0] != kind):
            specs = self.steps_for(kind)
            is_plain = len(specs) == 1 and not specs[0].slots and not specs[0].collects
            if kind.is_a(STOP_EVENT) or kind.is_a(INPUT_REQUIRED_EVENT):
                is_plain = False
            known = self._plain[kind.name] = kind, specs[0].name if is_plain else None
        return known[1]


def takes(spec: StepSpec, accepted: tuple[str, ...], kind: EventKind) -> bool:
    """Return whether a step takes an event: by its exact type, or by a base where the step asked for subclasses.

    An ending is no input: a step that takes a broad base does not get the `StopEvent`.
    """
    if kind.name in accepted:
        return True
    if not spec.accept_subclasses or kind.is_a(STOP_EVENT):
        return False
    return any(base in accepted for base in kind.bases)


class StepsPlanner:
    """Routes events to Python steps. It has no state of its own but a cache of what configs say."""

    def __init__(self) -> None:
        self._routes: EventRoutes | None = None

    def start(self, config: BrokerConfig, run_id: str = "", seed: int = 0) -> StepsPlan:
        """Return the plan of a run in which nothing has happened."""
        del config, run_id, seed
        return _EMPTY_PLAN

    def on_edited(self, config: BrokerConfig, plan: StepsPlan, changed: dict[str, object]) -> None:
        """Return None: steps keep their data in the store of the run."""
        del config, plan, changed

    def origin_of(self, item: WorkItem) -> StepInput:
        """Events that a body sends by itself belong to no stream, but keep their line of recoveries."""
        recoveries = item.extra.origin.recoveries if item.extra is not None else ()
        return StepInput(Origin((), recoveries)) if recoveries else _INSIDE

    def on_event(
        self,
        config: BrokerConfig,
        plan: StepsPlan,
        event: EventRecord,
        step: str | None,
        origin: StepInput | None,
        woken: frozenset[str],
        at: float = 0.0,
    ) -> tuple[StepsPlan, Sequence[Intent], bool]:
        """Give the event to every step that accepts it and was not woken by it."""
        del at
        routes = self._routes
        if routes is None or routes.config is not config:
            routes = self._routes = EventRoutes(config)
        specs = routes.by_kind.get(event.kind.name) or routes.steps_for(event.kind)
        if step is not None:
            specs = tuple(spec for spec in specs if spec.name == step)
        if len(specs) == 1 and not woken and not specs[0].slots:
            if not specs[0].collects:
                # The token that the event had, if it is in a stream, is its work's now.
                return plan, (RunStep(specs[0].name, event, None if origin is _INSIDE else origin),), True
            if step is None and origin is not None and origin.origin.scope:
                return self._join(config, plan, specs[0], event, origin)
        return self._deliver(config, plan, event, step, origin or _INSIDE, woken, specs)

    def _join(
        self, config: BrokerConfig, plan: StepsPlan, join: StepSpec, event: EventRecord, mark: StepInput
    ) -> tuple[StepsPlan, Sequence[Intent], bool]:
        """A member has reached the one join that takes it: it is settled with that."""
        plan, fired, known = arrive(config, plan, join, mark.origin.scope, event, settled=1)
        if not known:
            plan, fired = adjust(config, plan, mark.origin.scope, -1)
        intents: list[Intent] = [] if known else [Warn(not_bound(event.kind.label, join.name))]
        return plan, (*intents, *_release(fired, mark.origin)) if fired or intents else _NOTHING, True

    def _deliver(
        self,
        config: BrokerConfig,
        plan: StepsPlan,
        event: EventRecord,
        step: str | None,
        mark: StepInput,
        woken: frozenset[str],
        specs: Sequence[StepSpec],
    ) -> tuple[StepsPlan, Sequence[Intent], bool]:
        """The general case: several takers, joins that are none of the event's business, slots."""
        origin = mark.origin
        intents: list[Intent] = []
        tokens = -1
        for spec in specs:
            bound: tuple[tuple[str, EventRecord], ...] = ()
            if spec.name in woken:
                continue
            if spec.collects:
                if not origin.scope and step is not None:
                    message = targeted_at_join(event.kind.label, spec.name)
                    return plan, [*intents, Fail(spec.name, _runtime_failure(message))], True
                plan, more = _arrive(config, plan, spec, event, origin)
                intents += more
                continue
            extra = None if mark is _INSIDE else mark
            if spec.slots:
                plan, bound = _fill_slots(plan, spec, event)
                if not bound:
                    continue
                extra = StepInput(origin, bound)
            tokens += 1
            depth = deepest_of(event for _, event in bound) if bound else 0
            intents.append(RunStep(spec.name, event.at_depth(depth) if depth > event.depth else event, extra))
        if origin.scope:
            plan, fired = adjust(config, plan, origin.scope, tokens)
            intents += _release(fired, origin)
        return plan, intents, bool(specs)

    def on_returned(
        self,
        config: BrokerConfig,
        plan: StepsPlan,
        item: WorkItem,
        events: tuple[EventRecord, ...],
        fanned_out: bool,
        at: float = 0.0,
    ) -> Planned:
        """End the run, open a stream, or send on what a step has returned."""
        del at
        mark: StepInput = item.extra if item.extra is not None else _INSIDE
        if mark.bound:
            mark = StepInput(mark.origin) if mark.origin != ROOT else _INSIDE
        if len(events) == 1 and not fanned_out:
            event = events[0]
            kind = event.kind
            if kind.name == STOP_EVENT or STOP_EVENT in kind.bases:
                return plan, (Complete(event),)
            if INPUT_REQUIRED_EVENT in kind.bases or kind.name == INPUT_REQUIRED_EVENT:
                return plan, (Publish(event), Emit(event, None, mark))
            return plan, (Emit(event, None, mark),)
        stop = next((event for event in events if event.kind.is_a(STOP_EVENT)), None)
        if stop is not None:
            return plan, (Complete(stop),)
        if fanned_out:
            return self._open_stream(config, plan, item.step, mark.origin, events)
        if not mark.origin.scope:
            return plan, _NOTHING
        plan, fired = adjust(config, plan, mark.origin.scope, -1)
        return plan, _release(fired, mark.origin)

    def plain_taker(self, config: BrokerConfig, plan: StepsPlan, item: WorkItem, event: EventRecord) -> str | None:
        """Name the one plain step that takes an event. The token of a stream goes on with it, so the plan stays."""
        del plan
        mark: StepInput | None = item.extra
        if mark is not None and (mark.bound or mark is _INSIDE):
            return None
        routes = self._routes
        if routes is None or routes.config is not config:
            routes = self._routes = EventRoutes(config)
        return routes.plain_taker(event.kind)

    def ends_plainly(self, plan: StepsPlan, item: WorkItem) -> bool:
        """Tell whether nothing follows from work that returned nothing: it is in no stream."""
        del plan
        mark: StepInput | None = item.extra
        return mark is None or not mark.origin.scope

    def _open_stream(
        self, config: BrokerConfig, plan: StepsPlan, step: str, origin: Origin, events: tuple[EventRecord, ...]
    ) -> Planned:
        plan, scope = open_stream(plan, step, origin.scope, len(events))
        inner = StepInput(Origin(scope, origin.recoveries))
        intents: list[Intent] = []
        for event in events:
            if event.kind.is_a(INPUT_REQUIRED_EVENT):
                intents.append(Publish(event))
            intents.append(Emit(event, None, inner))
        if not events:
            plan, fired = adjust(config, plan, scope, 0)
            intents += _release(fired, origin)
        return plan, intents

    def on_failed(self, config: BrokerConfig, plan: StepsPlan, fact: StepFailed) -> Planned:
        """Give the failure to the step's handler as long as its budget along this line lasts, else fail the run."""
        item = fact.item
        specs = specs_of(config)
        spec = specs.get(item.step)
        handler = specs.get(spec.recovered_by) if spec is not None and spec.recovered_by else None
        origin = item.extra.origin if item.extra is not None else ROOT
        if handler is not None:
            counts = dict(origin.recoveries)
            counts[handler.name] = counts.get(handler.name, 0) + 1
            if counts[handler.name] <= handler.max_recoveries:
                failure = without_traceback(fact.failure)
                body = StepFailure(item.step, item.event, failure, fact.attempts, fact.elapsed_s, fact.at)
                recovered = StepInput(Origin(origin.scope, tuple(sorted(counts.items()))))
                event = EventRecord(STEP_FAILED_KIND, body)
                return plan, (Emit(event, handler.name, recovered),)
        return plan, (Fail(item.step, fact.failure, fact.attempts, fact.elapsed_s),)

    def on_refused(self, config: BrokerConfig, plan: StepsPlan, item: WorkItem, parameters: tuple[str, ...]) -> Planned:
        """Settle an event without work. The others that a step would have got with it wait for another one."""
        mark: StepInput = item.extra if item.extra is not None else _INSIDE
        if mark.bound:
            slots = plan.slots.get(item.step, EMPTY_MAP)
            for name, event in mark.bound:
                if name not in parameters:
                    slots = slots.set(name, slots.get(name, EMPTY_FIFO).push_front(event))
            plan = replace(plan, slots=plan.slots.set(item.step, slots))
        if not mark.origin.scope:
            return plan, _NOTHING
        plan, fired = adjust(config, plan, mark.origin.scope, -1)
        return plan, _release(fired, mark.origin)

    def on_timer(self, config: BrokerConfig, plan: StepsPlan, ref: int, at: float) -> Planned:
        """Steps ask for no timers of the planner's."""
        del config, ref, at
        return plan, _NOTHING

    def on_retry(self, config: BrokerConfig, plan: StepsPlan, at: float) -> Planned:
        """Do nothing: the failed work is back in its queue."""
        del config, at
        return plan, _NOTHING

    def on_idle(self, config: BrokerConfig, plan: StepsPlan, waiting: Iterable[WorkItem]) -> Planned:
        """Fail a run with an open stream that nothing can close any more: it would wait for ever."""
        del config
        if not plan.streams:
            return plan, _NOTHING
        scopes = {stream for item in waiting if item.extra is not None for stream in item.extra.origin.scope}
        if scopes & set(plan.streams):
            return plan, _NOTHING
        first = plan.streams[min(plan.streams)]
        return plan, (Fail(first.source, _runtime_failure(stuck(plan))),)


def _release(releases: Sequence[Fired], origin: Origin) -> list[Intent]:
    """Joins whose set is complete become work, one level above their stream."""
    fired: list[Intent] = []
    for release in releases:
        above = Origin(release.scope, origin.recoveries)
        fired.append(RunStep(release.step, release.event, StepInput(above) if above != ROOT else None))
    return fired


def _arrive(
    config: BrokerConfig, plan: StepsPlan, spec: StepSpec, event: EventRecord, origin: Origin
) -> tuple[StepsPlan, list[Intent]]:
    """A member has reached a join that is not the only one to take it, or something that is no member has."""
    label = event.kind.label or event.kind.name
    if not origin.scope:
        return plan, [Warn(outside_of_stream(label, spec.name))]
    plan, fired, known = arrive(config, plan, spec, origin.scope, event)
    return plan, _release(fired, origin) if known else [Warn(not_bound(label, spec.name))]


def _fill_slots(
    plan: StepsPlan, spec: StepSpec, event: EventRecord
) -> tuple[StepsPlan, tuple[tuple[str, EventRecord], ...]]:
    """Put an event into its slot of a multi-slot join; the full set if all slots are filled now."""
    slots = plan.slots.get(spec.name, EMPTY_MAP)
    fitting = [name for name, accepted in spec.slots if takes(spec, accepted, event.kind)]
    slot = min(fitting, key=lambda name: len(slots.get(name, EMPTY_FIFO)))
    slots = slots.set(slot, slots.get(slot, EMPTY_FIFO).push_back(event))
    bound: list[tuple[str, EventRecord]] = []
    if all(slots.get(name) for name, _ in spec.slots):
        for name, _ in spec.slots:
            first, rest = slots[name].pop_front()
            bound.append((name, first))
            slots = slots.set(name, rest)
    plan = replace(plan, slots=plan.slots.set(spec.name, slots))
    return plan, tuple(bound)


def _runtime_failure(message: str) -> Failure:
    return Failure("workflows.errors.WorkflowRuntimeError", message)
