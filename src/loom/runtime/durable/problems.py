"""Problems of runs on their way to operators: which hooks there are on a store, and the notices that tell them.

A notice is a run of Loom's own, started in the transaction that stores the problem: so it is neither lost by a crash
nor held in memory, it is tried again by the engine with its back-off, and `loom why` says what holds it. Processes that
have a hook work for the notices of its channel. All others learn from an entry of the store that there is one.

A webhook tells problems to another service, one signed request for each. The body is the problem as JSON. The header
`Loom-Signature` is `t=SECONDS,v1=HEX`: HMAC-SHA256, with a secret that both sides know, of the seconds, a dot and the
body. While secrets are exchanged there is one `v1` for each.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from loom.api.problems import Problem
from loom.effects.redaction import without_secrets
from loom.runtime.durable.names import NOTICE, OWN
from loom.store.codec import StartSpec, encode_start
from loom.store.errors import StoreUnavailable
from loom.store.operations import PurgeRuns, StartRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from loom.api.problems import ProblemKind
    from loom.store.operations import Operation
    from loom.store.ports import EntryStore
    from loom.store.records import RunHead, RunRow


CALLABLE, WEBHOOK = "on_problem", "webhook"
"""The channels: a callable of `loom.connect`, and the webhook of a server."""

_NOTICES = f"{OWN}problems."
_HOOKS = "problem-hook"
_KNOWN_S = 7 * 86_400.0
"""Seconds after which a hook that no process has named is forgotten. Problems are no longer kept for it."""
_RENEW_S = 3_600.0


def notices_of(channel: str) -> str:
    """The workflow of a channel's notices."""
    return f"{_NOTICES}{channel}"


def is_notice(workflow: str) -> bool:
    """Say whether a run is a notice: its own failure is told to nobody."""
    return workflow.startswith(_NOTICES)


async def forget_notice(run_id: str, submit: Callable[[Operation], Awaitable[object]]) -> None:
    """Delete a notice that was taken. If that fails, the retention deletes it."""
    with suppress(StoreUnavailable):
        await submit(PurgeRuns(run_id=run_id))


def problem_of(row: RunRow, head: RunHead, kind: ProblemKind, message: str | None) -> Problem:
    """Describe a run's problem for a hook. Credentials in the message are masked, because it goes to other services."""
    return Problem(
        id=f"{row.run_id}:{head.ticks - 1}:{kind}",
        kind=kind,
        run_id=row.run_id,
        workflow=row.workflow,
        message=without_secrets(message or ""),
        at=datetime.fromtimestamp(head.updated_at, tz=UTC),
        tick=head.ticks - 1,
        tags=row.tags,
    )


class Problems:
    """The hooks of a store, as one process knows them."""

    def __init__(self, store: EntryStore, own: Sequence[str] = (), interval_s: float = 10.0) -> None:
        self._store = store
        self._interval_s = interval_s
        self.own = tuple(own)
        """The channels that this process has a hook for."""
        self.channels = self.own
        """All channels. None: nobody wants to know, and no notices are made."""
        self._looked_at = self._renewed_at = float("-inf")

    async def look(self, now: float) -> None:
        """Learn of the hooks of other processes, and let them know of those here, now and then."""
        if 0 <= now - self._looked_at < self._interval_s:
            return
        if self.own and not 0 <= now - self._renewed_at < _RENEW_S:
            for channel in self.own:
                await self._store.put_entry(_HOOKS, channel, b"", expires_at=now + _KNOWN_S)
            self._renewed_at = now
        found = [entry.key for entry in await self._store.entries(_HOOKS)]
        self.channels = tuple(dict.fromkeys([*self.own, *found]))
        self._looked_at = now

    def notices(self, problem: Problem, at: float, downtime: float = 0.0) -> list[StartRun]:
        """The runs that tell a problem, one for each channel. The same problem gives the same runs."""
        if is_notice(problem.workflow):
            return []
        from loom.effects.flow_codec import AnyEventCodec  # few runs need it

        digest = blake2b(problem.id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        start = encode_start(StartSpec(inputs=AnyEventCodec().value({"problem": msgspec.to_builtins(problem)})))
        return [
            StartRun(f"{NOTICE}{channel}:{digest}", notices_of(channel), start, at, downtime=downtime)
            for channel in self.channels
        ]


SECRET_VARIABLE = "LOOM_PROBLEM_SECRET"  # noqa: S105 - the name of the variable
SIGNATURE, PROBLEM_ID = "Loom-Signature", "Loom-Problem-Id"

_TIMEOUT_S = 10.0
_MAX_ANSWER = 64 * 1024
_LEAST_SECRET = 16


class WebhookRefused(Exception):
    """The service has not taken a problem: it will be told again."""


def signature(secrets: tuple[str, ...], at: int, body: bytes) -> str:
    """The header that says who sent a body, and when."""
    signed = [hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={at}", *(f"v1={each}" for each in signed)])


class Webhook:
    """An address of the operator's, and the secrets that sign what is sent there. Neither is shown by its `repr`."""

    def __init__(self, url: str, secrets: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"problem_webhook must be an address such as https://ops.example.com/loom, not {url!r}.")
        given = os.environ.get(SECRET_VARIABLE, "") if secrets is None else secrets
        self._secrets = tuple(filter(None, (each.strip() for each in given.split(","))))
        if not self._secrets:
            raise ValueError(f"A problem_webhook needs a secret that signs its requests: set {SECRET_VARIABLE}.")
        if any(len(secret) < _LEAST_SECRET for secret in self._secrets):
            raise ValueError(f"A secret in {SECRET_VARIABLE} must have at least {_LEAST_SECRET} characters.")
        self._url = url
        self._place = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    @override
    def __repr__(self) -> str:
        return f"Webhook({self._place!r})"

    async def tell(self, problem: Problem) -> None:
        """Send a problem; `WebhookRefused`, or an error of the connection, if it was not taken."""
        # What sends requests takes a while to load.
        from loom.effects.actions.exchange import HttpRequest, exchange
        from loom.effects.actions.http_client import secret_request, shared_client
        from loom.effects.actions.ssrf import HttpPolicy

        # The operator has named this host: it may be a private one. No redirect leads to another.
        policy = replace(
            HttpPolicy.allowing(self._place),
            max_response_bytes=_MAX_ANSWER, request_timeout_s=_TIMEOUT_S, max_redirects=0,
        )  # fmt: skip
        body = msgspec.json.encode(problem)
        headers = {
            "Content-Type": "application/json",
            SIGNATURE: signature(self._secrets, int(time.time()), body),
            PROBLEM_ID: hashlib.sha256(problem.id.encode("utf-8", "surrogatepass")).hexdigest()[:32],
        }
        with secret_request():
            answer = await exchange(await shared_client(policy), HttpRequest("POST", self._url, headers, body), policy)
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - the codes that mean yes
            raise WebhookRefused(f"{self._place} answered {answer.status}.")
