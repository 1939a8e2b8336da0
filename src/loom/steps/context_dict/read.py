"""A run from a context dict.

No process has recovered the state that comes out: nothing is in progress, and a `TickResume` makes it go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.core.body_effects import addressed
from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP, Fifo, Map
from loom.core.reducer import advance, rewound
from loom.core.state import BrokerState, Timer, specs_of
from loom.core.ticks import TickAddEvent
from loom.steps.context_dict.codec import EventReader, StreamNumbers, joined_step
from loom.steps.context_dict.read_work import WorkReader
from loom.steps.context_dict.shapes import LoomShape, malformed, parse
from loom.steps.errors import ContextSerdeError
from loom.steps.planner import JoinBuffer, Origin, StepInput, StepsPlan, StepsPlanner, Stream, takes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom.core.records import EventRecord
    from loom.core.state import BrokerConfig, StepSpec
    from loom.steps.context_dict.shapes import ContextShape, DeliveryShape
    from loom.steps.serializers import BaseSerializer


def context_from_dict(
    data: Mapping[str, Any],
    *,
    config: BrokerConfig,
    serializer: BaseSerializer,
    event_classes: Iterable[type[Any]],
    now: float,
    renames: Mapping[str, str] | None = None,
) -> BrokerState:
    """Return the run in a dict of any version, for the code of `config`.

    Raise `ContextSerdeError` if it cannot go on with that code.

    `renames` says what steps are called now that had another name when the dict was written. A run that had ended
    comes back as one that has not begun. The store in the dict is left to its own reader.
    """
    renames = renames or {}
    shape, is_version_0 = parse(data, config, renames)
    if not shape.is_running:
        return BrokerState(config=config, at=now, alive_since=now)
    _check_steps(shape, config, renames)
    streams = StreamNumbers(shape.stream_seq)
    events = EventReader(serializer, event_classes, streams, renames)
    loom = shape.loom if shape.loom is not None else LoomShape()
    plan = read_plan(shape, config, events, streams, renames)
    work = WorkReader(shape, config, events, streams, renames, only_accepted=is_version_0)
    work.read()
    kept = _kept(loom, events)
    state = BrokerState(
        is_running=True,
        config=config,
        workers=work.workers(),
        at=now,
        alive_since=now - shape.elapsed_alive,
        ticks=shape.journal_seq,
        seed=loom.seed,
        sequence=work.sequence,
        items=work.items,
        active=work.active(),
        asleep=work.asleep(),
        timers=Map(work.timers),
        waiting=replace(work.waiting(), kept=kept, kept_count=sum(map(len, kept.values()))),
        store_version=loom.store_version,
        seen=Map({event_id: order for order, event_id in enumerate(loom.seen)}),
    )
    state = _deliver(replace(state, plan=plan), shape, events, streams, renames)
    # Events still to be delivered may name streams of their own.
    state = replace(state, plan=replace(state.plan, opened=max(state.plan.opened, streams.opened)))
    return _with_timeout(state)


def _check_steps(shape: ContextShape, config: BrokerConfig, renames: Mapping[str, str]) -> None:
    """Refuse a run that has work for steps which the code lacks, and name them all."""
    known = specs_of(config)
    found: dict[str, str] = {}
    missing: dict[str, int] = {}

    def count(step: str, number: int) -> None:
        if number and renames.get(step, step) not in known:
            missing[step] = missing.get(step, 0) + number

    for step, worker in shape.workers.items():
        name = renames.get(step, step)
        if name in found and worker.size():
            raise malformed(f"workers.{step}", f"it is renamed to '{name}', but so is '{found[name]}'.")
        found[name] = step
        count(step, worker.size())
    for stream in shape.streams.values():
        count(stream.source_step, 1)
    for release in shape.collection_release_states.values():
        count(joined_step(release.binding_id), len(release.buffer))
    for delivery in shape.deliveries:
        if delivery.step_id is not None:
            count(delivery.step_id, 1)
    if missing:
        listed = ", ".join(f"'{step}' ({n} {'item' if n == 1 else 'items'})" for step, n in missing.items())
        raise ContextSerdeError(
            f"The workflow '{config.workflow}' has no step {listed}, which the saved context has work for. "
            "Nothing was loaded: bring the step back, or say what it is called now: "
            "from_dict(..., renames={'old': 'new'})."
        )


def _kept(loom: LoomShape, events: EventReader) -> Map[str, Fifo[EventRecord]]:
    """The early events by type, or by the waiter they are meant for."""
    kept: Map[str, Fifo[EventRecord]] = EMPTY_MAP
    for saved, texts in loom.kept.items():
        for index, text in enumerate(texts):
            record = events.record(text, f"loom.kept.{saved}[{index}]")
            name = saved if saved.startswith(addressed("")) else record.kind.name
            kept = kept.set(name, kept.get(name, EMPTY_FIFO).push_back(record))
    return kept


def _deliver(
    state: BrokerState, shape: ContextShape, events: EventReader, streams: StreamNumbers, renames: Mapping[str, str]
) -> BrokerState:
    """Route the events that were on their way. Loom has none at rest, but other writers do."""
    if not shape.deliveries:
        return state
    planner = StepsPlanner()
    routed = replace(state, run_id="loading")
    for index, delivery in enumerate(shape.deliveries):
        recoveries = {renames.get(name, name): count for name, count in delivery.recovery_counts.items()}
        step = renames.get(delivery.step_id, delivery.step_id) if delivery.step_id is not None else None
        tick = TickAddEvent(
            at=state.at,
            more=True,
            event=events.record(delivery.event, f"deliveries[{index}].event"),
            step=step,
            origin=StepInput(Origin(streams.scope(delivery.scope_path), tuple(sorted(recoveries.items())))),
        )
        routed, _ = advance(routed, tick, planner, _read_field)
    # What was published on the way had no readers.
    return replace(rewound(routed, planner), run_id="", published=0, ticks=state.ticks)


def _read_field(event: EventRecord, name: str) -> Any:
    return getattr(event.body, name, None)


def _with_timeout(state: BrokerState) -> BrokerState:
    """Arm the run's timeout with what is left of it."""
    timeout = state.config.timeout_s
    if timeout is None or not state.is_running:
        return state
    number = state.sequence + 1
    deadline = state.alive_since + timeout
    timers = state.timers.set(number, Timer(deadline, "timeout"))
    return replace(state, deadline=deadline, timeout_timer=number, sequence=number, timers=timers)


def read_plan(
    shape: ContextShape,
    config: BrokerConfig,
    events: EventReader,
    numbers: StreamNumbers,
    renames: Mapping[str, str],
) -> StepsPlan:
    """Return the plan of the steps planner."""
    joins = _joins(shape, events, renames)
    tokens = _tokens(shape, config, events)
    streams: Map[int, Stream] = EMPTY_MAP
    for name, stream in shape.streams.items():
        source = renames.get(stream.source_step, stream.source_step)
        found = Stream(source, numbers.scope(stream.scope_path), tokens[name], Map(joins.get(name, {})))
        streams = streams.set(numbers.number(name), found)
    slots = {}
    for name, worker in shape.workers.items():
        if worker.static_collect_events:
            step = renames.get(name, name)
            spread = shape.loom.slots.get(name) if shape.loom is not None else None
            path = f"workers.{name}.static_collect_events"
            records = [events.record(t, f"{path}[{index}]") for index, t in enumerate(worker.static_collect_events)]
            slots[step] = _slots(records, specs_of(config)[step], spread, path)
    return StepsPlan(streams, numbers.opened, Map(slots))


def _joins(shape: ContextShape, events: EventReader, renames: Mapping[str, str]) -> dict[str, dict[str, JoinBuffer]]:
    """Return what has arrived at the joins, by stream and step."""
    joins: dict[str, dict[str, JoinBuffer]] = {}
    for key, release in shape.collection_release_states.items():
        path = f"collection_release_states.{key}"
        if release.stream_id not in shape.streams:
            raise malformed(f"{path}.stream_id", f"there is no stream '{release.stream_id}'.")
        step = joined_step(release.binding_id)
        members = Fifo.of(events.record(text, f"{path}.buffer[{index}]") for index, text in enumerate(release.buffer))
        joins.setdefault(release.stream_id, {})[renames.get(step, step)] = JoinBuffer(members, release.released)
    return joins


def _tokens(shape: ContextShape, config: BrokerConfig, events: EventReader) -> dict[str, int]:
    """The open pieces of each stream as Loom counts them: a stream or an event in it is one, however many take it."""
    tokens = {name: stream.open_work_items for name, stream in shape.streams.items()}
    fired = {(r.stream_id, r.binding_id) for r in shape.collection_release_states.values() if r.released}
    for name, stream in shape.streams.items():
        if stream.scope_path and stream.scope_path[-1] in tokens:
            unfired = sum((name, binding) not in fired for binding in stream.accepting_binding_ids)
            tokens[stream.scope_path[-1]] += 1 - unfired
    for index, delivery in enumerate(shape.deliveries):
        if delivery.scope_path and delivery.scope_path[-1] in tokens:
            takers = _takers(delivery, config, events.record(delivery.event, f"deliveries[{index}].event"))
            tokens[delivery.scope_path[-1]] += 1 - takers
    return tokens


def _takers(delivery: DeliveryShape, config: BrokerConfig, event: EventRecord) -> int:
    if delivery.step_id is not None:
        return 1
    return sum(takes(spec, spec.accepts, event.kind) for spec in config.steps)


def _slots(
    records: list[EventRecord], spec: StepSpec, spread: Mapping[str, int] | None, path: str
) -> Map[str, Fifo[EventRecord]]:
    """The events of a multi-slot join by parameter: as they were spread, else each where the fewest are."""
    by_slot: dict[str, list[EventRecord]] = {name: [] for name, _ in spec.slots}
    if spread is not None and spread.keys() <= by_slot.keys() and sum(spread.values()) == len(records):
        remaining = iter(records)
        for name, number in spread.items():
            by_slot[name] = [next(remaining) for _ in range(number)]
    else:
        for index, record in enumerate(records):
            fitting = [name for name, accepted in spec.slots if takes(spec, accepted, record.kind)]
            if not fitting:
                raise malformed(f"{path}[{index}]", f"step '{spec.name}' has no slot for {record.kind.name}.")
            by_slot[min(fitting, key=lambda name: len(by_slot[name]))].append(record)
    return Map({name: Fifo.of(waiting) for name, waiting in by_slot.items() if waiting})
