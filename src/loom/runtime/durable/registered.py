"""A workflow that this process works for: its code as the engine and its bodies need it.

May import loom.core, loom.effects, loom.steps and loom.store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.core.ticks import TickStartRun
from loom.effects.binding import StepBinding
from loom.effects.stored import StoredBodies
from loom.steps.planner import StepsPlanner, takes
from loom.steps.tagged import TaggedSerializer
from loom.store.codec import StartSpec

if TYPE_CHECKING:
    from loom.core.config import BrokerConfig
    from loom.core.records import EventKind, EventRecord
    from loom.steps.events import StartEvent
    from loom.steps.state_store import InMemoryStateStore
    from loom.steps.workflow import Workflow


def anybody() -> StoredBodies:
    """How events are stored and read where the workflow's own code is not at hand."""
    return StoredBodies(TaggedSerializer())


class Registered:
    """One workflow under the name that its runs are stored with."""

    __slots__ = ("bindings", "convert", "name", "planner", "workflow")

    def __init__(self, name: str, workflow: Workflow) -> None:
        self.name = name
        self.workflow = workflow
        state_type = workflow._get_state_type()
        serializer = workflow._serializer or TaggedSerializer().with_types(*workflow.events, state_type)
        self.convert = StoredBodies(serializer, state_type)
        manager = workflow._resources()
        self.bindings = {
            step: StepBinding(step, function, function._step_config, manager, self.convert)
            for step, function in workflow._get_steps().items()
        }
        self.planner = StepsPlanner()

    @property
    def config(self) -> BrokerConfig:
        """The code as the reducer sees it."""
        return self.workflow._config()

    def accepts(self, kind: EventKind, step: str | None = None) -> bool:
        """Whether some step, or the given one, takes events of this kind."""
        return any(takes(spec, spec.accepts, kind) for spec in self.config.steps if step in (None, spec.name))

    def start_spec(
        self,
        inputs: dict[str, Any] | None,
        start_event: StartEvent | None = None,
        staged: InMemoryStateStore[Any] | None = None,
    ) -> StartSpec:
        """What a run of it begins with. Input that the start event refuses is an error here: nothing was stored."""
        event = self.convert.record(self.workflow._start_event(start_event, dict(inputs or {})))
        # The inputs are kept too: a start that is repeated where the code is not at hand has nothing but them.
        given = self.convert.value(inputs or {}) if start_event is None else None
        if staged is None:
            return StartSpec(event=event, inputs=given)
        store, store_type = self.convert.store_values(staged)
        return StartSpec(event=event, inputs=given, store=store, store_type=store_type)

    def first_tick(self, run_id: str, spec: StartSpec, now: float) -> TickStartRun:
        """The tick that a run begins with, with the code at hand."""
        event: EventRecord | None = spec.event
        if event is None and spec.inputs is not None:
            event = self.convert.record(self.workflow._start_event(None, self.convert.read_value(spec.inputs)))
        return TickStartRun(
            at=now,
            run_id=run_id,
            config=self.config,
            event=event,
            seed=spec.seed,
            store=dict(spec.store),
            store_type=spec.store_type,
        )
