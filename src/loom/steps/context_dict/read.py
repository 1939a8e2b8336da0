"""A run from a context dict. May import loom.core, steps.planner, steps.streams and the rest of this package.

The state that comes out has been taken up by nobody: nothing is in progress, and a `TickResume` makes it go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from immutables import Map
from msgspec.structs import replace

from loom.core.body_effects import addressed
from loom.core.config import specs_of
from loom.core.persistent import EMPTY_FIFO, EMPTY_MAP, Fifo
from loom.core.reducer import advance, rewound
from loom.core.state import BrokerState, Timer
from loom.core.ticks import TickAddEvent
from loom.steps.context_dict.codec import EventReader
from loom.steps.context_dict.problems import malformed
from loom.steps.context_dict.read_plan import read_plan
from loom.steps.context_dict.read_work import WorkReader
from loom.steps.context_dict.shapes import LoomShape
from loom.steps.context_dict.stream_names import StreamNumbers, joined_step
from loom.steps.context_dict.versions import parse
from loom.steps.errors import ContextSerdeError
from loom.steps.planner import Origin, StepInput, StepsPlanner

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom.core.config import BrokerConfig
    from loom.core.records import EventRecord
    from loom.steps.context_dict.shapes import ContextShape
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
    """The run in a dict of any version, for the code of `config`; `ContextSerdeError` if it cannot go on there.

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
