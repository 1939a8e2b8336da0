"""Requests and their answers: addresses, keys, time limits, and what is tried again.

A request is repeated only if that cannot do anything twice: it reads, it carries an idempotency key, it was never sent,
or the server says that nothing has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from random import SystemRandom
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx2
import msgspec

from loom.api.refusals import Problem
from loom.api.trace_context import HEADER, open_span
from loom.client.errors import ClientError, RemoteRunExists, RemoteRunFinished, RemoteRunNotFound, RemoteUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# -- retries ----------------------------------------------------------------------------------------------------------


_chance = SystemRandom()


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """When to try again after a broken connection, or when the server asks for patience. Times are seconds."""

    attempts: int = 4
    """How often a request is made at most."""
    stream_attempts: int = 12
    """How often a stream that brings nothing is opened in a row, at most."""
    first_delay: float = 0.1
    max_delay: float = 5.0
    patience: float = 60.0
    """If the server asks for more than that, the caller is told at once."""

    def delay(self, failures: int) -> float:
        """Return how many seconds to wait after this many failures in a row.

        It is spread, so that many clients do not come back at once.
        """
        longest = min(self.max_delay, self.first_delay * 2 ** min(failures - 1, 30))
        return _chance.uniform(longest / 2, longest)


NEVER = Retries(attempts=1, stream_attempts=1)
"""Each request is made once."""


# -- requests ---------------------------------------------------------------------------------------------------------


T = TypeVar("T")

_NEVER_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_NOTHING_HAPPENED = frozenset({"store-unavailable", "draining", "memory-exceeded", "limited"})
_OF_GATEWAYS = frozenset({502, 503, 504})
_REDIRECT = 300
_LAST_PORT = 65_535


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request to make."""

    method: str
    path: str
    params: Mapping[str, Any] = {}
    body: Any = None
    """Bytes as they are, or what becomes JSON; None: no body."""
    headers: Mapping[str, str] = {}
    run_id: str | None = None
    """The run that it is about, for errors."""
    wait: float = 0.0
    """How long the server may take on purpose."""
    accepts: frozenset[int] = frozenset()
    """Statuses that are answers here, though they are refusals elsewhere."""
    marked_by: str = ""
    """A header that makes an answer of any status one."""

    @property
    def repeatable(self) -> bool:
        """Whether making it twice does the same as making it once."""
        return self.method == "GET" or "Idempotency-Key" in self.headers

    def is_refused_by(self, response: httpx2.Response) -> bool:
        """Whether the server refuses it."""
        is_answer = response.status_code < _REDIRECT or response.status_code in self.accepts
        return not is_answer and not (self.marked_by and self.marked_by in response.headers)


def read(path: str, **more: Any) -> ApiCall:
    """Make a request that changes nothing."""
    return ApiCall(method="GET", path=path, **more)


def act(path: str, body: Any = None, *, key: str | None = None, **more: Any) -> ApiCall:
    """Make a request that does something once, however often it is sent."""
    headers = {"Idempotency-Key": key or uuid4().hex}
    return ApiCall(method="POST", path=path, body={} if body is None else body, headers=headers, **more)


def segment(name: str, what: str = "run id") -> str:
    """Write a name as one part of a path, so that no name can lead elsewhere."""
    if name in ("", ".", ".."):
        raise ValueError(f"{name!r} is no {what}.")
    return quote(name, safe="")


class Exchange:
    """Sends requests to one server."""

    def __init__(
        self,
        url: str,
        api_key: str | None,
        *,
        timeout: float,
        retries: Retries,
        transport: httpx2.AsyncBaseTransport | None,
    ) -> None:
        address = _address(url)
        self.url = str(address).rstrip("/")
        self.retries = retries
        self._timeout = timeout
        key = _key(api_key)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Redirects are not followed: the key is for this server alone. Each open stream holds a connection of its own,
        # so their number is not limited here.
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            headers=headers,
            timeout=timeout,
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
            transport=transport,
            follow_redirects=False,
            # Where nothing is encrypted, the certificates of this machine need not be loaded, which takes a while.
            verify=address.scheme == "https",
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def ask(self, call: ApiCall, kind: type[T]) -> T:
        """Make a request, and read its answer as `kind`."""
        return decoded(await self.send(call), kind)

    async def send(self, call: ApiCall) -> httpx2.Response:
        """Make a request, again if need be, and give an answer that is no refusal."""
        failures = 0
        while True:
            failures += 1
            try:
                return await self._once(call)
            except ClientError as error:
                delay = self._delay(call, error, failures)
                if delay is None:
                    raise
            await asyncio.sleep(delay)

    @asynccontextmanager
    async def stream(self, call: ApiCall, silence: float) -> AsyncIterator[httpx2.Response]:
        """Open an answer that is read as it comes. It breaks when nothing comes for `silence` seconds."""
        timeout = httpx2.Timeout(self._timeout, read=silence)
        request = self._request(call, timeout)
        try:
            response = await self._http.send(request, stream=True)
            try:
                if response.status_code >= _REDIRECT:
                    await response.aread()
                    raise refusal(response, call.run_id)
                yield response
            finally:
                await response.aclose()
        except httpx2.TransportError as error:
            raise unreachable(self.url, error, outcome_unknown=False) from error

    async def _once(self, call: ApiCall) -> httpx2.Response:
        request = self._request(call, httpx2.Timeout(self._timeout, read=self._timeout + call.wait))
        try:
            response = await self._http.send(request)
        except httpx2.TransportError as error:
            unknown = call.method != "GET" and not isinstance(error, _NEVER_SENT)
            raise unreachable(self.url, error, outcome_unknown=unknown) from error
        if call.is_refused_by(response):
            raise refusal(response, call.run_id)
        return response

    def _delay(self, call: ApiCall, error: ClientError, failures: int) -> float | None:
        """Return after how many seconds to try again; None: not at all."""
        if failures >= self.retries.attempts or not _may_repeat(call, error):
            return None
        delay = max(self.retries.delay(failures), error.retry_after or 0.0)
        return delay if delay <= self.retries.patience else None

    def _request(self, call: ApiCall, timeout: httpx2.Timeout) -> httpx2.Request:
        headers = dict(call.headers)
        content: bytes | None = None
        if call.body is not None:
            headers.setdefault("Content-Type", "application/json")
            content = call.body if isinstance(call.body, bytes) else msgspec.json.encode(call.body, enc_hook=_plain)
        if (span := open_span()) is not None:
            headers.setdefault(HEADER, span)
        params = {name: _text(value) for name, value in call.params.items() if value is not None}
        return self._http.build_request(
            call.method, call.path, params=params or None, content=content, headers=headers, timeout=timeout
        )


def _address(url: str) -> httpx2.URL:
    try:
        address = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ValueError(f"{url!r} is no address of a server: {error}.") from error
    if address.scheme not in ("http", "https") or not address.host or (address.port or 0) > _LAST_PORT:
        raise ValueError(f"{url!r} is no address of a server: it is like http://127.0.0.1:8080.")
    if address.userinfo or address.query:
        raise ValueError("The address of a server holds no credentials and no query: a key goes into api_key.")
    return address


def _key(api_key: str | None) -> str:
    """Return a key as it is sent. One that was read from a file may end with the line. No error repeats a key."""
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ValueError("The api_key is no key of a server: it has characters that none has.")
    return key


def decoded(response: httpx2.Response, kind: type[T]) -> T:
    """Decode the body of an answer as `kind`."""
    try:
        # Times may come as texts or as seconds: both are read.
        return msgspec.json.decode(response.content, type=kind, strict=False)
    except msgspec.DecodeError as error:
        raise unexpected(response, str(error)) from error


def passing(error: ClientError) -> bool:
    """Tell whether the same request may well succeed a little later."""
    if error.code == "unexpected-answer":
        return error.http_status in _OF_GATEWAYS
    return error.code in _NOTHING_HAPPENED or error.code in ("unreachable", "request-in-progress")


def _may_repeat(call: ApiCall, error: ClientError) -> bool:
    if call.repeatable or error.code in _NOTHING_HAPPENED:
        return passing(error)
    return error.code == "unreachable" and not getattr(error, "outcome_unknown", True)


def _text(value: Any) -> Any:
    """Write a value of a query: times in ISO 8601, seconds without an exponent, truth as JSON writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value.isoformat()} has no time zone: say which one is meant.")
        return value.isoformat()
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, list | tuple | set | frozenset):
        return [_text(item) for item in value]
    return str(value)


def _plain(value: Any) -> Any:
    """Return the fields of an event, or of another model of pydantic."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"{type(value).__name__} cannot be sent: it is not JSON.")
    fields = dump(mode="json")
    undeclared = fields.pop("_data", {})
    return fields | undeclared


# -- from answers to errors -------------------------------------------------------------------------------------------


_PREVIEW = 200

_OF_RUNS = {
    "run-not-found": RemoteRunNotFound,
    "run-finished": RemoteRunFinished,
    "run-exists": RemoteRunExists,
}
_UNAVAILABLE = frozenset({"store-unavailable", "draining", "memory-exceeded"})


def refusal(response: httpx2.Response, run_id: str | None) -> ClientError:
    """Make the error that an answer means. `run_id` is the run that the request was about."""
    error = _named(_problem(response), run_id)
    after = response.headers.get("retry-after", "")
    error.retry_after = float(after) if after.isdecimal() else None
    return error


def _named(problem: Problem, run_id: str | None) -> ClientError:
    of_run = _OF_RUNS.get(problem.code)
    if of_run is not None:
        return of_run(problem, run_id or "")
    if problem.code in _UNAVAILABLE:
        return RemoteUnavailable(problem)
    if problem.code == "definition-invalid":
        from loom.client.definition_error import RemoteDefinitionError

        return RemoteDefinitionError(problem)
    return ClientError(problem)


def unreachable(url: str, error: Exception, *, outcome_unknown: bool) -> RemoteUnavailable:
    """Make the error for a request that got no answer."""
    reason = str(error) or type(error).__name__
    again = " What was asked may have happened nevertheless." if outcome_unknown else ""
    detail = f"{url} gave no answer: {reason.rstrip('.')}.{again} Is a server running there?"
    return RemoteUnavailable(Problem(code="unreachable", status=0, detail=detail), outcome_unknown=outcome_unknown)


def unexpected(response: httpx2.Response, reason: str) -> ClientError:
    """Make the error for an answer that is not what the API promises."""
    detail = f"{response.request.method} {response.request.url.path} gave an unexpected answer: {reason}"
    request_id = response.headers.get("x-request-id")
    status = response.status_code
    return ClientError(Problem(code="unexpected-answer", status=status, detail=detail, request_id=request_id))


def _problem(response: httpx2.Response) -> Problem:
    try:
        return msgspec.json.decode(response.content, type=Problem)
    except msgspec.DecodeError:
        # Not of Loom: a proxy, or some other server.
        text = response.text[:_PREVIEW].strip() or response.reason_phrase
        return unexpected(response, f"{response.status_code} {text}").problem


def exported_id(data: bytes) -> str:
    """Return the id of a run that was exported; `ValueError` for anything else."""
    try:
        run_id = msgspec.json.decode(data)["run"]["row"]["run_id"]
    except (msgspec.DecodeError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"This is not an exported run: {error}") from error
    if not isinstance(run_id, str):
        raise ValueError("This is not an exported run: its id is no text.")
    return run_id
