"""The streams of a run, their joins and slots, as a context dict has them. May import loom.core and steps.streams.

Loom counts a stream as one open piece of the stream around it. The form counts the joins still to fire instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.core.config import specs_of
from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP
from loom.steps.context_dict.stream_names import binding_id, stream_id
from loom.steps.streams import JoinBuffer

if TYPE_CHECKING:
    from loom.core.config import BrokerConfig
    from loom.steps.context_dict.codec import EventWriter
    from loom.steps.streams import StepsPlan, Stream


def write_streams(plan: StepsPlan, config: BrokerConfig) -> dict[str, Any]:
    """The open streams by name."""
    counts = {number: stream.tokens for number, stream in plan.streams.items()}
    for stream in plan.streams.values():
        outer = stream.scope[-1] if stream.scope else None
        if outer in counts:
            unfired = sum(not stream.joins.get(name, JoinBuffer()).fired for name in _joins(stream, config))
            counts[outer] += unfired - 1
    return {
        stream_id(number): {
            "stream_id": stream_id(number),
            "source_step": stream.source,
            "scope_path": [stream_id(outer) for outer in stream.scope],
            "open_work_items": counts[number],
            "accepting_binding_ids": [binding_id(config, stream.source, name) for name in _joins(stream, config)],
        }
        for number, stream in sorted(plan.streams.items())
    }


def _joins(stream: Stream, config: BrokerConfig) -> tuple[str, ...]:
    source = specs_of(config).get(stream.source)
    return source.joins if source is not None else ()


def write_releases(plan: StepsPlan, config: BrokerConfig, events: EventWriter) -> dict[str, Any]:
    """What the joins have got so far, by stream and binding."""
    releases = {}
    for number, stream in sorted(plan.streams.items()):
        for step, join in sorted(stream.joins.items()):
            binding = binding_id(config, stream.source, step)
            key = f"{stream_id(number)}:{binding}"
            releases[key] = {
                "binding_id": binding,
                "stream_id": stream_id(number),
                "buffer": [
                    events.text(member, f"collection_release_states.{key}.buffer[{index}]")
                    for index, member in enumerate(join.members)
                ],
                "released": join.fired,
            }
    return releases


def write_slots(plan: StepsPlan, step: str, events: EventWriter) -> list[str]:
    """The events that wait in the slots of a multi-slot join, slot by slot."""
    slots = plan.slots.get(step, EMPTY_MAP)
    waiting = [record for name in spread_of_slots(plan, step) for record in slots.get(name, EMPTY_FIFO)]
    path = f"workers.{step}.static_collect_events"
    return [events.text(record, f"{path}[{index}]") for index, record in enumerate(waiting)]


def spread_of_slots(plan: StepsPlan, step: str) -> dict[str, int]:
    """How many events wait in which slot."""
    return {name: len(waiting) for name, waiting in sorted(plan.slots.get(step, EMPTY_MAP).items()) if waiting}
