"""`create_app`: both faces of the API over one runtime, as an ASGI application that can be served or mounted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route as PathRoute

from loom.server import audit, compatible, metrics, openapi, streams
from loom.server.auth import NOBODY, Keys
from loom.server.call import Call, Server
from loom.server.idempotency import Idempotency
from loom.server.middleware import Gate, Guarded, Limited
from loom.server.problems import ApiProblem, problem_response
from loom.server.settings import ServerSettings
from loom.server.v1 import definitions, events, health, history, invoke, runs, schedules
from loom.store.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.auth import Principal
    from loom.server.routes import Route

_log = logging.getLogger("loom.server")

ROUTES: tuple[Route, ...] = (
    *compatible.route,
    *health.route,
    *metrics.route,
    *runs.route,
    *definitions.route,
    *events.route,
    *history.route,
    *schedules.route,
    *invoke.route,
    *streams.route,
    *audit.route,
    *openapi.route,
)
"""Every route of the API. A module adds its own here."""

HEALTH = frozenset({"/health", "/v1/health/live", "/v1/health/ready"})
"""Routes that no rate limits."""


def create_app(runtime: WorkerRuntime, settings: ServerSettings | None = None) -> Starlette:
    """Make the API over a runtime, which the caller opens and closes. `app.state.server` is what requests share."""
    settings = settings or ServerSettings()
    keys = Keys(runtime.store, required=settings.require_key, now=runtime.now)
    idempotency = Idempotency(runtime, settings.idempotency_ttl)
    server = Server(runtime, settings, keys, idempotency)
    server.routes = ROUTES
    app = Starlette(
        routes=list(_path_routes(ROUTES, server)),
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
    request = call.request
    if request.method in ("GET", "HEAD") or (request.method == "POST" and "idempotency-key" in request.headers):
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
    return await server.rates.principal(request.headers, request.scope)


def _check_scope(route: Route, call: Call) -> None:
    if route.scope is not None and not call.principal.has(route.scope):
        raise ApiProblem("forbidden", f"The key lacks the scope {route.scope!r}.")


async def _http_problem(request: Request, error: Exception) -> Response:
    """Answer for what the router refuses by itself."""
    assert isinstance(error, HTTPException)
    code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-request")
    detail = {"not-found": "There is no such route.", "method-not-allowed": "This method is not known here."}
    problem = ApiProblem(code, detail.get(code, "The request is not valid."), headers=dict(error.headers or {}))
    return problem_response(problem, request.scope)
