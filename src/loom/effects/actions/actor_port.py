"""How messages reach actors that are runs of their own, and replies their callers. May import loom.steps."""

from __future__ import annotations

from typing import Any, Protocol

from loom.steps.event_base import HumanResponseEvent
from loom.steps.registry import framework_name


class ActorMessage(HumanResponseEvent):
    """Something that an actor is told."""

    key: str
    """The same for every delivery of the message, and for no other message."""
    actor_type: str
    reply_to: str
    """The run that waits for the reply."""
    action: str = ""
    attempt: int = 0
    input: Any = None


class ActorReply(HumanResponseEvent):
    """What came of a message: the fields of an `ActionOutcome`."""

    key: str
    status: str = "Succeeded"
    outputs: Any = None
    code: str = ""
    message: str = ""
    error_type: str = ""
    traceback: str = ""


for _event in (ActorMessage, ActorReply):
    framework_name(_event, f"loom.flows.{_event.__name__}")


class Actors(Protocol):
    """How messages reach actors and replies their callers. Both return when nothing can be lost any more."""

    async def tell(self, run_id: str, message: ActorMessage) -> None:
        """Begin the actor's run if there is none, and send it the message, with the message's key as the event's id."""
        ...

    async def reply(self, run_id: str, reply: ActorReply) -> None:
        """Send a reply to the run that waits for it, with `reply:` and its key as the event's id.

        A run that has ended wants no reply any more, which is no error.
        """
        ...


def actor_run_id(actor_type: str, actor_id: str) -> str:
    """The id of an actor's run."""
    return f"actor:{actor_type}:{actor_id}"
