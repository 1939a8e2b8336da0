"""`create_app`: both faces of the API over one runtime, as an ASGI application that can be served or mounted.

May import starlette and the rest of loom.server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route as PathRoute

from loom.server import compatible, streams
from loom.server.auth import NOBODY, Keys, authenticate
from loom.server.idempotency import Idempotency
from loom.server.middleware import Gate, Guarded, Limited
from loom.server.problems import ApiProblem, problem_of, problem_response
from loom.server.routing import Call, Server
from loom.server.settings import ServerSettings
from loom.server.v1 import events, health, history, listing, runs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from loom.runtime.durable.runtime import DurableRuntime
    from loom.server.auth import Principal
    from loom.server.routing import Route

ROUTES: tuple[Route, ...] = (
    *compatible.ROUTES,
    *health.ROUTES,
    *runs.ROUTES,
    *listing.ROUTES,
    *events.ROUTES,
    *history.ROUTES,
    *streams.ROUTES,
)
"""Every route of the API. A module adds its own here."""


def create_app(runtime: DurableRuntime, settings: ServerSettings | None = None) -> Starlette:
    """The API over a runtime, which whoever calls this opens and closes. `app.state.server` is what requests share."""
    settings = settings or ServerSettings()
    keys = Keys(runtime.store, required=settings.require_key)
    idempotency = Idempotency(runtime.store, runtime.now, settings.idempotency_ttl)
    server = Server(runtime, settings, keys, idempotency)
    app = Starlette(
        routes=list(_path_routes(ROUTES, server)),
        middleware=[
            Middleware(Guarded, settings.retry_after),
            Middleware(Gate, settings, keys),
            Middleware(Limited, settings),
        ],
        exception_handlers={HTTPException: _http_problem},
    )
    app.router.redirect_slashes = False
    app.state.server = server
    return app


def _path_routes(routes: Iterable[Route], server: Server) -> Iterable[PathRoute]:
    """One route per path, so that a method that is not known there is a 405."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in routes:
        methods = by_path.setdefault(route.path, {})
        if route.method in methods:
            raise ValueError(f"The route {route.method} {route.path} is there twice.")
        methods[route.method] = route
    for path, methods in by_path.items():
        yield PathRoute(path, _endpoint(path, methods, server), methods=list(methods))


def _endpoint(path: str, methods: dict[str, Route], server: Server) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        route = methods["GET" if request.method == "HEAD" else request.method]
        status = 500
        try:
            call = Call(request, server, await _principal(route, request, server))
            response = await server.idempotency.answer(call, lambda: route.answer(call))
            status = response.status_code
        except Exception as error:
            problem = problem_of(error)
            status = problem.status if problem is not None else status
            raise
        finally:
            counted = (route.method, path, status)
            server.requests[counted] = server.requests.get(counted, 0) + 1
        return response

    return answer


async def _principal(route: Route, request: Request, server: Server) -> Principal:
    if route.scope is None:
        return NOBODY
    principal = await authenticate(server.keys, request.headers, request.scope)
    if not principal.has(route.scope):
        raise ApiProblem("forbidden", f"The key lacks the scope {route.scope!r}.")
    return principal


async def _http_problem(request: Request, error: Exception) -> Response:
    """What the router refuses by itself."""
    assert isinstance(error, HTTPException)
    code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "invalid-request")
    detail = {"not-found": "There is no such route.", "method-not-allowed": "This method is not known here."}
    problem = ApiProblem(code, detail.get(code, "The request is not valid."), headers=dict(error.headers or {}))
    return problem_response(problem, request.scope)
