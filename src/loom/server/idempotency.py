"""The first answer again, for requests that are repeated with the same `Idempotency-Key`.

A request is claimed in the store before it is carried out, with a nonce that names what it makes (a run, an event). If
the process dies before the answer is kept, a repetition takes the claim over after a while and makes the same thing,
not another one. May import starlette and loom.store.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from loom.server.problems import ApiProblem, invalid
from loom.store.entries import ABSENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.server.routing import Call
    from loom.store.ports import Store

ANSWERS = "idempotency"
"""The kind of the store's entries that hold answers."""

_MAX_KEY = 200
_KEPT_HEADERS = ("content-type", "location", "etag")
_TAKE_OVER = 120.0
"""After so many seconds nobody is at work on a claim any more: no request takes so long."""
_SERVER_ERRORS, _TOO_MANY = 500, 429


class Kept(msgspec.Struct, frozen=True):
    """A request that was claimed, and its answer once there is one."""

    request: str
    """The hash of method, path, query and body."""
    nonce: str
    claimed_at: float
    status: int = 0
    """0: still under way."""
    headers: dict[str, str] = {}
    body: bytes = b""


class Idempotency:
    """Answers in a store."""

    def __init__(self, store: Store, clock: Callable[[], float], ttl: float) -> None:
        self._store = store
        self._now = clock
        self._ttl = ttl

    async def answer(self, call: Call, carry_out: Callable[[], Awaitable[Response]]) -> Response:
        """The answer to a request: the one that was given before, or a new one."""
        given = call.request.headers.get("idempotency-key")
        if given is None or call.request.method != "POST":
            return await carry_out()
        if not 0 < len(given) <= _MAX_KEY:
            raise invalid(f"Idempotency-Key must have 1 to {_MAX_KEY} characters.")
        # By its hash: keys of one caller tell nothing to others, and are never in their way.
        key = hashlib.sha256(f"{call.principal.id}\0{given}".encode()).hexdigest()
        request = await _fingerprint(call)
        kept, version = await self._claim(key, request)
        if version is None:
            return _again(kept)
        call.nonce = kept.nonce
        try:
            response = await carry_out()
        except BaseException as error:
            if isinstance(error, ApiProblem) and error.status < _SERVER_ERRORS:
                await self._store.drop_entry(ANSWERS, key, expect=version)  # nothing has happened
            else:
                await self._free(key, kept, version)
            raise
        await self._keep(key, kept, version, response)
        return response

    async def _claim(self, key: str, request: str) -> tuple[Kept, int | None]:
        """What is known of the request; with a version if it is ours to carry out."""
        now = self._now()
        new = Kept(request, secrets.token_hex(16), now)
        version = await self._put(key, new, ABSENT)
        if version is not None:
            return new, version
        entry = await self._store.entry(ANSWERS, key)
        if entry is None:
            raise _in_progress()  # it went this very moment
        kept = msgspec.json.decode(entry.data, type=Kept)
        if kept.request != request:
            raise ApiProblem("idempotency-mismatch", "This Idempotency-Key was used for another request.")
        if kept.status:
            return kept, None
        if now - kept.claimed_at < _TAKE_OVER:
            raise _in_progress()
        ours = msgspec.structs.replace(kept, claimed_at=now)
        version = await self._put(key, ours, entry.version)
        if version is None:
            raise _in_progress()
        return ours, version

    async def _put(self, key: str, kept: Kept, expect: int) -> int | None:
        expires_at = self._now() + self._ttl
        return await self._store.put_entry(
            ANSWERS, key, msgspec.json.encode(kept), expires_at=expires_at, expect=expect
        )

    async def _free(self, key: str, kept: Kept, version: int) -> None:
        """What became of it is not known: the next repetition may carry it out at once, under the same nonce."""
        await self._put(key, msgspec.structs.replace(kept, claimed_at=0.0), version)

    async def _keep(self, key: str, kept: Kept, version: int, response: Response) -> None:
        if response.status_code >= _SERVER_ERRORS or response.status_code == _TOO_MANY:
            await self._free(key, kept, version)
            return
        headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
        answered = msgspec.structs.replace(
            kept, status=response.status_code, headers=headers, body=bytes(response.body)
        )
        await self._put(key, answered, version)


def _in_progress() -> ApiProblem:
    return ApiProblem(
        "request-in-progress", "The first request with this Idempotency-Key is under way.", headers={"Retry-After": "1"}
    )


async def _fingerprint(call: Call) -> str:
    url = call.request.url
    found = hashlib.sha256(f"{call.request.method} {url.path}?{url.query}\n".encode())
    found.update(await call.request.body())
    return found.hexdigest()


def _again(kept: Kept) -> Response:
    return Response(kept.body, kept.status, {**kept.headers, "Idempotent-Replay": "true"})
