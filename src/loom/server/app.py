"""`create_app`: both faces of the API over one runtime, as an ASGI application that can be served or mounted.

Every request goes through three layers before its route: `Guarded` names it and tells failures, `Gate` checks Host and
Origin, `Limited` bounds its size and the time of its arrival. They are pure ASGI, so that streams pass unbuffered.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import secrets
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route as PathRoute

from loom.api.trace_context import HEADER, answering
from loom.runtime.logs import open_request
from loom.server import audit, compat_routes, metrics, openapi, page, streams
from loom.server.addresses import hide_signature, signature_of
from loom.server.auth import NOBODY, Keys, is_loopback
from loom.server.call import Call, Server
from loom.server.idempotency import Idempotency
from loom.server.problems import ApiProblem, problem_of, problem_response
from loom.server.sessions import MemoryEntries, Sessions
from loom.server.settings import ServerSettings
from loom.server.v1 import (
    bulk,
    callbacks,
    changes,
    copies,
    counts,
    definitions,
    events,
    flow_control,
    forks,
    health,
    history,
    invoke,
    runs,
    schedules,
    session,
    views,
    workers,
)
from loom.store.errors import StoreUnavailable
from loom.web import page_files

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from importlib.resources.abc import Traversable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.auth import Principal
    from loom.server.caller_limits import Refusals
    from loom.server.metrics import CountedRequests
    from loom.server.routes import Route


_log = logging.getLogger("loom.server")

ROUTES: tuple[Route, ...] = (
    *compat_routes.route,
    *health.route,
    *metrics.route,
    *runs.route,
    *bulk.route,
    *counts.route,
    *changes.route,
    *workers.route,
    *definitions.route,
    *events.route,
    *forks.route,
    *copies.route,
    *history.route,
    *views.route,
    *schedules.route,
    *invoke.route,
    *callbacks.route,
    *flow_control.route,
    *streams.route,
    *audit.route,
    *openapi.route,
    *session.route,
)
"""Every route of the API. A module adds its own here. The web page beside it is for people, see `page`."""

HEALTH = frozenset({"/health", "/v1/health/live", "/v1/health/ready"})
"""Routes that no rate limits."""


def create_app(
    runtime: WorkerRuntime, settings: ServerSettings | None = None, *, web: Traversable | None = None
) -> Starlette:
    """Make the API over a runtime, which the caller opens and closes. `app.state.server` is what requests share.

    `web` is the folder of the web page's built files; None is the one that Loom brings.
    """
    settings = settings or ServerSettings()
    keys = Keys(runtime.store, required=settings.require_key, now=runtime.now)
    idempotency = Idempotency(runtime, settings.idempotency_ttl)
    # A server that changes nothing in the store still lets people log in.
    logins = MemoryEntries() if settings.read_only else runtime.store
    server = Server(runtime, settings, keys, Sessions(logins, keys, runtime.now), idempotency)
    server.routes = ROUTES
    server.page = page_files(web)
    app = Starlette(
        routes=list(_path_routes((*ROUTES, *page.route), server)),
        middleware=[
            Middleware(Guarded, settings.retry_after, server.requests, server.refusals),
            Middleware(Gate, settings, keys),
            Middleware(Limited, settings),
        ],
        exception_handlers={HTTPException: _http_problem},
    )
    app.router.redirect_slashes = False
    app.state.server = server
    return app


def _path_routes(routes: Iterable[Route], server: Server) -> Iterable[PathRoute]:
    """Make one route per path, so that a method that is not known there is a 405."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        methods = by_path.setdefault(route.path, {})
        if route.method in methods:
            raise ValueError(f"The route {route.method} {route.path} is there twice.")
        methods[route.method] = audit.audited(route)
    for path, methods in by_path.items():
        yield PathRoute(path, _endpoint(path, methods, server), methods=list(methods))


def _endpoint(path: str, methods: dict[str, Route], server: Server) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        route = methods["GET" if request.method == "HEAD" else request.method]
        request.scope["state"]["route"] = path  # by which it is counted
        _check_writable(route, server)
        call = Call(request, server, await _principal(route, request, server), route)
        try:
            _check_scope(route, call)
            return await server.idempotency.answer(call, lambda: route.answer(call))
        except ApiProblem as problem:
            await audit.note_refusal(route, call, problem)
            raise
        except StoreUnavailable as error:
            if not _may_have_happened(call, error):
                raise
            _log.error("The store has failed a request that may be carried out: %s", error)
            raise _half_known(call) from error
        finally:
            if call.reserved:
                server.starts.settle(call)

    return answer


def _may_have_happened(call: Call, error: StoreUnavailable) -> bool:
    """Tell whether a 503 would be wrong, which says that nothing has happened.

    A request with an idempotency key finds it out by repetition.
    """
    route = call.route
    if not route.writes or (route.is_repeatable and "idempotency-key" in call.request.headers):
        return False
    return call.made is not None or error.outcome_unknown


def _half_known(call: Call) -> ApiProblem:
    if call.made is None:
        return ApiProblem(
            "internal", "The store has failed: whether this was done is not known. Look before you repeat it."
        )
    detail = f"Run {call.made!r} was begun, but the store has failed since: ask for it, and do not begin it again."
    return ApiProblem("internal", detail, headers={"Location": call.address_of(call.made)})


async def _principal(route: Route, request: Request, server: Server) -> Principal:
    if route.scope is None:
        if route.path not in HEALTH:
            server.rates.count_address(request.scope)
        return NOBODY
    if route.signed is not None and signature_of(request.scope) is not None:
        return await server.rates.signed(route.signed(server.addresses, request), request.scope)
    return await server.rates.principal(request.headers, request.scope)


def _check_writable(route: Route, server: Server) -> None:
    if server.settings.read_only and route.writes and route not in session.route:
        raise ApiProblem("read-only", "This server shows a store and changes nothing: use `loom serve`, or a command.")


def _check_scope(route: Route, call: Call) -> None:
    if route.scope is not None and not call.principal.has(route.scope):
        raise ApiProblem("forbidden", f"The key lacks the scope {route.scope!r}.")


async def _http_problem(request: Request, error: Exception) -> Response:
    """Answer for what the router refuses by itself."""
    assert isinstance(error, HTTPException)
    code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-request")
    detail = {"not-found": "There is no such route.", "method-not-allowed": "This method is not known here."}
    headers = dict(error.headers or {})
    if "Allow" in headers:
        headers["Allow"] = ", ".join(sorted(headers["Allow"].split(", ")))  # the router has a set of them
    problem = ApiProblem(code, detail.get(code, "The request is not valid."), headers=headers)
    return problem_response(problem, request.scope)


# -- what every request goes through ----------------------------------------------------------------------------------


_REQUEST_ID = re.compile(r"[A-Za-z0-9._:~-]{1,200}")
_METHODS = "GET, POST, PUT, PATCH, DELETE"
_HEADERS = (
    "Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Last-Event-ID, Loom-Parameters, "
    "X-API-Key, X-Request-ID"
)
_EXPOSED = "ETag, Idempotent-Replay, Location, Loom-Response, Loom-Run-ID, Retry-After, X-Request-ID"
_SAFE = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
}
"""What every answer says to browsers, unless its route says otherwise."""


_PROCESS = secrets.token_hex(6)
_COUNTER = itertools.count(1)


def _new_request_id() -> str:
    """A name for one request. It is no secret: a counter under the name of the process will do."""
    return f"{_PROCESS}-{next(_COUNTER):x}"


class Guarded:
    """Names and counts each request, and turns whatever goes wrong in it into an answer that tells no secrets."""

    def __init__(self, app: ASGIApp, retry_after: int, requests: CountedRequests, refusals: Refusals) -> None:
        self._app = app
        self._retry_after = retry_after
        self._requests = requests
        self._refusals = refusals

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else _new_request_id()
        scope.setdefault("state", {})["request_id"] = request_id
        hide_signature(scope)
        begun, began, request = False, perf_counter(), open_request(request_id)

        async def answer(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._requests.add(scope, message["status"], perf_counter() - began)
                message["headers"] = _safe(message.get("headers", ()), request_id)
            await send(message)

        try:
            with answering(Headers(scope=scope).get(HEADER)):
                await self._app(scope, receive, answer)
        except ClientDisconnect:
            _log.info("The client of request %s has left before it was told.", request_id)
        except Exception as error:
            problem = problem_of(error, self._retry_after)
            if problem is None:
                _log.exception("Request %s has failed.", request_id)
            elif problem.status >= 500:  # noqa: PLR2004 - the fault is here
                _log.error("Request %s has failed: %s", request_id, error)
            else:
                self._refusals.log(scope, problem)
            if begun:
                raise  # half an answer cannot be taken back: the connection breaks
            problem = problem or ApiProblem("internal", f"The server has failed. The log has it as {request_id}.")
            await problem_response(problem, scope)(scope, receive, answer)
        finally:
            request.close()


def _safe(headers: Iterable[tuple[bytes, bytes]], request_id: str) -> list[tuple[bytes, bytes]]:
    """Add the headers that all answers have."""
    found = [header for header in headers if header[0] != b"x-request-id"]
    names = {name for name, _ in found}
    found += [header for header in _SAFE.items() if header[0] not in names]
    found.append((b"x-request-id", request_id.encode()))
    return found


class Gate:
    """Keeps web pages and foreign names out: Host, Origin and CORS."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, keys: Keys) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in settings.hosts)
        self._origins = frozenset(origin.lower() for origin in settings.origins)
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        await self._check_host(headers)
        origin = headers.get("origin")
        if origin is None:
            await self._app(scope, receive, send)
            return
        listed = origin.lower() in self._origins
        if not listed and not _is_own(origin, headers.get("host", ""), scope.get("scheme", "http")):
            raise ApiProblem(
                "forbidden", "Web pages of this origin may not use this server: `loom serve --origin` lets one in."
            )
        if not listed:
            await self._app(scope, receive, send)
        elif scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await Response(status_code=204, headers=_cors(origin, preflight=True))(scope, receive, send)
        else:
            await self._app(scope, receive, _with_headers(send, _cors(origin)))

    async def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        name = _host_name(hosts[0]) if len(hosts) == 1 else ""
        known = name in self._hosts if self._hosts else is_loopback(name) or await self._keys.required()
        if not known or not name:
            raise ApiProblem(
                "forbidden",
                "This server is not known by the name in the Host header: `loom serve --allowed-host` adds one.",
            )


@lru_cache(maxsize=64)
def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "") if not set(host) & set("/?#@\\ ") else ""
    except ValueError:
        return ""


def _is_own(origin: str, host: str, scheme: str) -> bool:
    """Whether a page comes from this very server."""
    return origin.lower() == f"{scheme}://{host}".lower()


def _cors(origin: str, *, preflight: bool = False) -> dict[str, str]:
    headers = {"Access-Control-Allow-Origin": origin, "Vary": "Origin", "Access-Control-Expose-Headers": _EXPOSED}
    if preflight:
        headers |= {"Access-Control-Allow-Methods": _METHODS, "Access-Control-Allow-Headers": _HEADERS}
    return headers


def _with_headers(send: Send, added: dict[str, str]) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(added)
        await send(message)

    return answer


class Limited:
    """Takes no more than it should: headers, body, and the time that they may need to arrive."""

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through as long as it stays within its limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        settings = self._settings
        if sum(len(name) + len(value) for name, value in scope["headers"]) > settings.max_header:
            raise ApiProblem("too-large", f"The headers are larger than {settings.max_header} bytes.")
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdecimal() or int(length[:20]) > settings.max_body:
            raise _too_large(settings.max_body)
        until = asyncio.get_running_loop().time() + settings.arrival_timeout
        taken, whole = 0, False

        async def limited() -> Message:
            nonlocal taken, whole
            if whole:
                return await receive()  # from here on only the end of the connection can come
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise ApiProblem("too-slow", "The request took too long to arrive.") from None
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                if taken > settings.max_body:
                    raise _too_large(settings.max_body)
            return message

        await self._app(scope, limited, send)


def _too_large(limit: int) -> ApiProblem:
    return ApiProblem("too-large", f"The body is larger than {limit} bytes.")
