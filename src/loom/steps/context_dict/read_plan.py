"""The streams of a context dict, their joins and slots. May import loom.core, steps.planner and steps.streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from immutables import Map

from loom.core.config import specs_of
from loom.core.persistent import EMPTY_MAP, Fifo
from loom.steps.context_dict.problems import malformed
from loom.steps.context_dict.stream_names import joined_step
from loom.steps.planner import takes
from loom.steps.streams import JoinBuffer, StepsPlan, Stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.core.config import BrokerConfig, StepSpec
    from loom.core.records import EventRecord
    from loom.steps.context_dict.codec import EventReader
    from loom.steps.context_dict.shapes import ContextShape, DeliveryShape
    from loom.steps.context_dict.stream_names import StreamNumbers


def read_plan(
    shape: ContextShape,
    config: BrokerConfig,
    events: EventReader,
    numbers: StreamNumbers,
    renames: Mapping[str, str],
) -> StepsPlan:
    """What the steps planner has to remember."""
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
    """What has arrived at the joins, by stream and step."""
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
    """The open pieces of each stream as Loom counts them: a stream or an event in it is one, whoever takes it."""
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
