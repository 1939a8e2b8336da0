"""Loom's own workflows: what a process works for beside what it is told to.

May import loom.effects and the rest of loom.runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.effects.actions.actors import ActorWorkflow
from loom.runtime.durable.actors import ACTORS, StoredActors
from loom.runtime.durable.names import SCHEDULES
from loom.runtime.durable.registered import Registered
from loom.runtime.durable.schedules_run import ScheduleWorkflow
from loom.runtime.flow import Flow

if TYPE_CHECKING:
    from loom.runtime.durable.working import WorkingRuntime
    from loom.steps.workflow import Workflow


def internal_codes(runtime: WorkingRuntime, workflow: Workflow) -> dict[str, Registered]:
    """What goes along with a workflow, by name, as far as it is not at hand: schedules with all, actors with flows."""
    found: dict[str, Workflow] = {}
    if SCHEDULES not in runtime.codes:
        found[SCHEDULES] = ScheduleWorkflow(runtime)
    if ACTORS not in runtime.codes and isinstance(workflow, Flow):
        found[ACTORS] = ActorWorkflow(StoredActors(runtime))
    for own in found.values():
        own._lock()
        own._validate_once()
    return {name: Registered(name, own) for name, own in found.items()}
