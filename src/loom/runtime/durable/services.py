"""What a worker has beside the workflows that it is told to run.

The actions of its flows find services: HTTP, actors, and addresses for callbacks. Loom's own workflows, schedules and
actors, are registered along with the workflows of authors.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import msgspec

from loom.effects.actions.actors import ActorWorkflow
from loom.effects.actions.handlers import HANDLERS
from loom.effects.actions.outcomes import Services
from loom.effects.actions.ssrf import HttpPolicy
from loom.runtime.durable.names import SCHEDULES
from loom.runtime.durable.registration import prepared
from loom.runtime.durable.schedules_run import ScheduleWorkflow
from loom.runtime.flow import Flow
from loom.store.errors import RunFinished, RunNotFound, StoreError
from loom.store.records import ABSENT

if TYPE_CHECKING:
    from loom.effects.actions.events import ActorMessage, ActorReply
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.settings import Settings
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.steps.workflow import Workflow
    from loom.store.ports import EntryStore


ACTORS = "loom.actor"
"""The name that the runs of actors are stored with."""
SECRETS = "secret"
"""The kind of the store's entries that hold secrets."""
PATH = "/v1/callbacks"
ENVIRONMENT = "LOOM_CALLBACK_URL"

_NAME = "callbacks"
_BYTES = 32


class Callback(NamedTuple):
    """The action that an address belongs to."""

    run_id: str
    key: str
    """Of the action, as it waits for the call."""
    until: float | None = None
    """When it stops being good, in seconds since the epoch. None: it was given out before addresses had an end."""
    get: bool = False
    """Whether a GET is a call too. What follows links, such as a scanner of mail, calls by GET."""

    @property
    def event_id(self) -> str:
        """The id of the call as an event: one action of one run is called back once, by whichever address."""
        token = _token(Callback(self.run_id, self.key))
        return f"callback:{hashlib.sha256(token.encode()).hexdigest()}"


class StoredCallbacks:
    """Gives out addresses, and knows them again: in this process and in all others on the same store."""

    def __init__(self, store: EntryStore, url: str | None = None) -> None:
        self._store = store
        self._secret: bytes | None = None
        found = url if url is not None else os.environ.get(ENVIRONMENT) or None
        self.url = base_url(found) if found is not None else None
        """The server's address for others, such as `https://loom.example.com`. Who serves may say it later."""

    async def address(self, run_id: str, key: str, until: float | None = None, *, get: bool = False) -> str | None:
        """The address for one action of one run; None if nobody has said where the server is."""
        if self.url is None:
            return None
        token = _token(Callback(run_id, key, until, get))
        return f"{self.url.rstrip('/')}{PATH}/{token}?sig={await self._signature(token)}"

    async def find(self, token: str, signature: str) -> Callback | None:
        """Return the action that an address belongs to; None if this store has not signed it."""
        wanted = await self._signature(token)
        if not hmac.compare_digest(wanted.encode(), signature.encode()):
            return None
        return msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=Callback)

    async def _signature(self, token: str) -> str:
        if self._secret is None:
            self._secret = await self._shared_secret()
        return _text(hmac.digest(self._secret, b"callback\0" + token.encode(), hashlib.sha256))

    async def _shared_secret(self) -> bytes:
        """Return the secret of this store, made by the process that needs it first."""
        await self._store.put_entry(SECRETS, _NAME, secrets.token_bytes(_BYTES), expect=ABSENT)
        entry = await self._store.entry(SECRETS, _NAME)
        if entry is None:
            raise StoreError("The secret that signs addresses for callbacks was deleted just now.")
        return entry.data


def base_url(url: str) -> str:
    """An address that can be given to others, or a `ValueError` that says what is wrong with it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in url:
        raise ValueError(f"{url!r} is no address for callbacks: use a form such as https://loom.example.com.")
    return url.rstrip("/")


def _token(callback: Callback) -> str:
    """Letters and digits only: services treat everything else in an address as they please."""
    fields = callback if callback.until is not None or callback.get else callback[:2]
    return _text(msgspec.json.encode(fields))


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


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
