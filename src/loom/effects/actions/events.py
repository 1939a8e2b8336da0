"""Events between actions and the world, and the ports that bring them: callbacks of services, messages to actors."""

from __future__ import annotations

from typing import Any, Protocol

from pydantic import Field

from loom.steps.events import HumanResponseEvent
from loom.steps.registry import built_on_first_use, framework_name


@built_on_first_use
class CallbackEvent(HumanResponseEvent, defer_build=True):
    """A service has called back."""

    key: str
    """The key of the action that waits for it, or its name."""
    body: Any = None
    headers: dict[str, Any] = Field(default_factory=dict)
    queries: dict[str, Any] = Field(default_factory=dict)


@built_on_first_use
class ActorMessage(HumanResponseEvent, defer_build=True):
    """Something that an actor is told."""

    key: str
    """The same for every delivery of the message, and for no other message."""
    actor_type: str
    reply_to: str
    """The run that waits for the reply."""
    action: str = ""
    attempt: int = 0
    input: Any = None


@built_on_first_use
class ActorReply(HumanResponseEvent, defer_build=True):
    """What came of a message: the fields of an `ActionOutcome`."""

    key: str
    status: str = "Succeeded"
    outputs: Any = None
    code: str = ""
    message: str = ""
    error_type: str = ""
    traceback: str = ""


for _event in (CallbackEvent, ActorMessage, ActorReply):
    framework_name(_event, f"loom.flows.{_event.__name__}")


class Actors(Protocol):
    """The way of messages to actors and of replies to their callers. Both return when nothing can be lost any more."""

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


class Callbacks(Protocol):
    """The server's addresses for callbacks."""

    url: str | None
    """The address that the server has for others; None: nobody can call back."""

    async def address(
        self, run_id: str, key: str, until: float | None = None, *, get: bool = False, repeats: bool = False
    ) -> str | None:
        """The address at which the action of a key is called back until a time, and nothing else can be done.

        `get`: a GET is a call too, not only a POST. `repeats`: each call counts, not only the first.
        """
        ...
