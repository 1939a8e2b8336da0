"""Actors that are runs of their own: they live in the same store as the flows that talk to them.

May import loom.effects and the rest of loom.runtime.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from loom.store.errors import RunFinished, RunNotFound

if TYPE_CHECKING:
    from loom.effects.actions.actor_port import ActorMessage, ActorReply
    from loom.runtime.durable.working import WorkingRuntime

ACTORS = "loom.actor"
"""The name that the runs of actors are stored with."""


class StoredActors:
    """How messages reach actors and replies their callers, through the store. See `Actors`."""

    def __init__(self, runtime: WorkingRuntime) -> None:
        self._runtime = runtime

    async def tell(self, run_id: str, message: ActorMessage) -> None:
        """Begin the actor's run if there is none, and send it the message, once."""
        await self._runtime.start_with_event(ACTORS, message, run_id=run_id, event_id=message.key)

    async def reply(self, run_id: str, reply: ActorReply) -> None:
        """Send a reply to the run that waits for it, once. A run that has ended wants none."""
        with suppress(RunFinished, RunNotFound):
            await self._runtime.send_event(run_id, reply, event_id=f"reply:{reply.key}")
