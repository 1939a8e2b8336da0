"""What a worker has beside the workflows that it is told to run.

The actions of its flows find services: HTTP, actors, and addresses for callbacks. Loom's own workflows, schedules and
actors, are registered along with the workflows of authors.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from loom.effects.actions.actors import ActorWorkflow
from loom.effects.actions.handlers import HANDLERS
from loom.effects.actions.outcomes import Services
from loom.effects.actions.ssrf import HttpPolicy
from loom.runtime.durable.names import SCHEDULES
from loom.runtime.durable.registration import prepared
from loom.runtime.durable.schedules_run import ScheduleWorkflow
from loom.runtime.flow import Flow
from loom.store.errors import RunFinished, RunNotFound

if TYPE_CHECKING:
    from loom.effects.actions.events import ActorMessage, ActorReply
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.settings import Settings
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.steps.workflow import Workflow


ACTORS = "loom.actor"
"""The name that the runs of actors are stored with."""


class StoredActors:
    """How messages reach actors and replies their callers, through the store. See `Actors`."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime

    async def tell(self, run_id: str, message: ActorMessage) -> None:
        """Begin the actor's run if there is none, and send it the message, once."""
        await self._runtime.start_with_event(ACTORS, message, run_id=run_id, event_id=message.key)

    async def reply(self, run_id: str, reply: ActorReply) -> None:
        """Send a reply to the run that waits for it, once. A run that has ended wants none."""
        with suppress(RunFinished, RunNotFound):
            await self._runtime.send_event(run_id, reply, event_id=f"reply:{reply.key}")


def services_for(runtime: WorkerRuntime, settings: Settings) -> Services:
    """The services of a runtime, as its settings have them."""
    allowed = settings.allowed_hosts
    return Services(
        handlers=settings.handlers if settings.handlers is not None else HANDLERS,
        http=HttpPolicy.allowing(*allowed) if allowed is not None else None,
        actors=StoredActors(runtime),
        callbacks=runtime.callbacks,
        max_response=settings.response_bytes,
        max_response_values=settings.max_response_values,
    )


def internal_codes(runtime: WorkerRuntime, workflow: Workflow) -> dict[str, Registration]:
    """Internal workflows to register with a workflow: the scheduler always, actors only with flows."""
    found: dict[str, Workflow] = {}
    if SCHEDULES not in runtime.codes:
        found[SCHEDULES] = ScheduleWorkflow(runtime)
    if ACTORS not in runtime.codes and isinstance(workflow, Flow):
        found[ACTORS] = ActorWorkflow(StoredActors(runtime), runtime.services.handlers)
    return {name: prepared(name, own) for name, own in found.items()}
