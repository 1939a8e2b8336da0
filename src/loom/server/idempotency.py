"""The first answer again, for requests that are repeated with the same `Idempotency-Key`.

A request is claimed in the store before it is carried out, with a nonce that names what it makes (a run, an event). If
the process dies before the answer is kept, a repetition takes the claim over and makes the same thing, not another one:
at once where no other process can work on the store, else when the claim was not renewed for a while.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from loom.runtime.durable.addresses import OWN_QUERIES
from loom.server.auth import NOBODY
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import PARAMETERS
from loom.store.errors import StoreUnavailable
from loom.store.records import ABSENT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.call import Call

ANSWERS = "idempotency"
"""The kind of the store's entries that hold answers."""

_MAX_KEY = 200
_OWN_HEADERS = frozenset({"content-length"})
"""What each answer has of itself."""
_RENEW_S, _TAKE_OVER_S = 3.0, 10.0
"""How often the owner of a claim renews it, and after how long without renewal it has none, in seconds."""
_SERVER_ERRORS, _TOO_MANY = 500, 429

_PROCESS = secrets.token_hex(8)
"""The name of this process among the claimants of requests."""
_UNDER_WAY: set[str] = set()
"""The nonces of the requests that this process is at work on. What it claimed beside them, it has given up."""

_log = logging.getLogger("loom.server")


class Kept(msgspec.Struct, frozen=True):
    """A request that was claimed, and its answer once there is one."""

    request: str
    """The hash of method, path, query and body."""
    nonce: str
    claimed_at: float
    claimed_by: str = ""
    """The server that is, or was, at work on it."""
    status: int = 0
    """0: still under way."""
    headers: dict[str, str] = {}
    body: bytes = b""


class _Claim:
    """A request that is ours to carry out."""

    def __init__(self, key: str, kept: Kept, version: int, *, is_repeated: bool = False) -> None:
        self.key = key
        self.kept = kept
        self.version = version
        self.is_repeated = is_repeated
        """Another process worked on it before, and may have got far."""
        self.done = asyncio.Event()


class Idempotency:
    """Answers in a store."""

    def __init__(self, runtime: WorkerRuntime, ttl: float) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._ttl = ttl

    async def answer(self, call: Call, carry_out: Callable[[], Awaitable[Response]]) -> Response:
        """The answer to a request: the one that was given before, or a new one."""
        given = call.request.headers.get("idempotency-key")
        if given is None or not call.route.is_repeatable or call.principal is NOBODY:
            return await carry_out()  # what strangers may do is repeatable, and they keep nothing here
        if not 0 < len(given) <= _MAX_KEY:
            raise invalid(f"Idempotency-Key must have 1 to {_MAX_KEY} characters.")
        # By its hash: keys of one caller tell nothing to others, and are never in their way. A caller is the same
        # one after its API key was rotated.
        key = hashlib.sha256(f"{call.principal.lineage}\0{given}".encode()).hexdigest()
        found = await self._claim(key, await _fingerprint(call))
        if isinstance(found, Kept):
            return _again(found)
        call.nonce, call.is_repeated = found.kept.nonce, found.is_repeated
        try:
            return await self._carried_out(found, call, carry_out)
        finally:
            _UNDER_WAY.discard(found.kept.nonce)

    async def _carried_out(self, claim: _Claim, call: Call, carry_out: Callable[[], Awaitable[Response]]) -> Response:
        """Answer a request that is ours, and keep the answer. The caller gets it also if it cannot be kept."""
        renewing = asyncio.create_task(self._renew(claim))
        try:
            response = await carry_out()
        except BaseException as error:
            await _end(claim, renewing)
            # A caller may be refused after a run was made: its key was revoked while it waited for the end.
            refused = isinstance(error, ApiProblem) and error.status < _SERVER_ERRORS and call.made is None
            with _told_by_the_log():
                await (self._drop(claim) if refused else self._free(claim))
            raise
        await _end(claim, renewing)
        with _told_by_the_log():
            await self._keep(claim, response, final=call.is_outcome)
        return response

    async def _claim(self, key: str, request: str) -> Kept | _Claim:
        """The answer that was given, or a claim if the request is ours to carry out."""
        now = self._runtime.now()
        new = Kept(request, secrets.token_hex(16), now, _PROCESS)
        version = await self._claimed(key, new, ABSENT)
        if version is not None:
            return _Claim(key, new, version)
        entry = await self._store.entry(ANSWERS, key)
        if entry is None:
            raise _in_progress()  # it went this very moment
        kept = msgspec.json.decode(entry.data, type=Kept)
        if kept.request != request:
            raise ApiProblem("idempotency-mismatch", "This Idempotency-Key was used for another request.")
        if kept.status:
            return kept
        if not self._is_left(kept, now):
            raise _in_progress()
        ours = msgspec.structs.replace(kept, claimed_at=now, claimed_by=_PROCESS)
        version = await self._claimed(key, ours, entry.version)
        if version is None:
            raise _in_progress()
        return _Claim(key, ours, version, is_repeated=True)

    async def _claimed(self, key: str, kept: Kept, expect: int) -> int | None:
        """Put a claim, which counts as under way from here on, unless it could not be put."""
        _UNDER_WAY.add(kept.nonce)
        version = None
        try:
            version = await self._put(key, kept, expect)
        finally:
            if version is None:
                _UNDER_WAY.discard(kept.nonce)
        return version

    def _is_left(self, kept: Kept, now: float) -> bool:
        """Tell whether a claim has no owner any more."""
        if kept.claimed_by == _PROCESS:
            return kept.nonce not in _UNDER_WAY
        return self._runtime.is_alone or now - kept.claimed_at >= _TAKE_OVER_S

    async def _renew(self, claim: _Claim) -> None:
        """Keep a claim for as long as its request takes."""
        while True:
            with suppress(TimeoutError):  # then it takes longer
                async with asyncio.timeout(_RENEW_S):
                    await claim.done.wait()
                return
            renewed = msgspec.structs.replace(claim.kept, claimed_at=self._runtime.now())
            try:
                version = await self._put(claim.key, renewed, claim.version)
            except StoreUnavailable as error:
                _log.warning("The claim of a request with an Idempotency-Key could not be renewed: %s", error)
            else:
                claim.version = version if version is not None else claim.version

    async def _put(self, key: str, kept: Kept, expect: int) -> int | None:
        expires_at = self._runtime.now() + self._ttl
        return await self._store.put_entry(
            ANSWERS, key, msgspec.json.encode(kept), expires_at=expires_at, expect=expect
        )

    async def _drop(self, claim: _Claim) -> None:
        """Nothing has happened: the key may be used again, for another request too."""
        await self._store.drop_entry(ANSWERS, claim.key, expect=claim.version)

    async def _free(self, claim: _Claim) -> None:
        """What became of it is not known: the next repetition may carry it out at once, under the same nonce."""
        await self._put(claim.key, msgspec.structs.replace(claim.kept, claimed_at=0.0), claim.version)

    async def _keep(self, claim: _Claim, response: Response, *, final: bool) -> None:
        if not final and (response.status_code >= _SERVER_ERRORS or response.status_code == _TOO_MANY):
            await self._free(claim)
            return
        headers = {name: value for name, value in response.headers.items() if name not in _OWN_HEADERS}
        answered = msgspec.structs.replace(
            claim.kept, status=response.status_code, headers=headers, body=bytes(response.body)
        )
        await self._put(claim.key, answered, claim.version)


@contextmanager
def _told_by_the_log() -> Iterator[None]:
    """What became of a request is known here. That the store does not know it delays a repetition at most."""
    try:
        yield
    except StoreUnavailable as error:
        _log.warning("The answer to a request with an Idempotency-Key could not be kept: %s", error)


async def _end(claim: _Claim, renewing: asyncio.Task[None]) -> None:
    claim.done.set()
    await renewing


def _in_progress() -> ApiProblem:
    return ApiProblem(
        "request-in-progress", "The first request with this Idempotency-Key is under way.", headers={"Retry-After": "1"}
    )


async def _fingerprint(call: Call) -> str:
    url, query = call.request.url, call.request.url.query
    if call.principal.address_key is not None:
        # A request is the same one by another address of the same trigger.
        query = urlencode([each for each in call.request.query_params.multi_items() if each[0] not in OWN_QUERIES])
    found = hashlib.sha256(f"{call.request.method} {url.path}?{query}\n".encode())
    if (parameters := call.request.headers.get(PARAMETERS)) is not None:
        found.update(f"{parameters}\n".encode())
    found.update(await call.request.body())
    return found.hexdigest()


def _again(kept: Kept) -> Response:
    return Response(kept.body, kept.status, {**kept.headers, "Idempotent-Replay": "true"})
