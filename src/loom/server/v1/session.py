"""Login for browsers: `/v1/session` changes a key into a cookie, and tells who is asking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

import loom
from loom.api.requests import SessionRequest
from loom.api.service import Session
from loom.api.times import moment
from loom.server.answers import JsonAnswer
from loom.server.auth import LOCAL
from loom.server.problems import ApiProblem
from loom.server.routes import Reply, RouteList
from loom.server.sessions import COOKIE, check_csrf, check_site, csrf_of, session_id, shown_token

if TYPE_CHECKING:
    from loom.server.auth import Principal
    from loom.server.call import Call

route = RouteList("server")

_UNPROVEN = frozenset({"unauthenticated", "forbidden"})


@route(
    "GET",
    "/v1/session",
    "getSession",
    scope=None,
    summary="Who is asking, and what they may do",
    description="Open to every caller. `csrf` is the token that requests by cookie need in the header `X-Loom-CSRF`.",
    replies={200: Reply("The session, the key of the request, or nobody.", Session)},
)
async def get(call: Call) -> Response:
    """`GET /v1/session`."""
    call.check_query()
    return JsonAnswer(await session_of(call))


@route(
    "POST",
    "/v1/session",
    "openSession",
    scope=None,
    summary="Log in: make a session from a key",
    description="Sets the cookie `loom_session`. The session ends with its key, or 12 hours after its last use.",
    body=SessionRequest,
    replies={200: Reply("The session is open.", Session)},
    problems=("unauthenticated", "csrf"),
)
async def log_in(call: Call) -> Response:
    """`POST /v1/session`."""
    call.check_query()
    headers, server = call.request.headers, call.server
    check_site(headers)
    body = await call.body(SessionRequest)
    principal = await server.rates.login(body.key, call.request.scope)
    before = shown_token(headers)
    # A token that the browser brings along is never taken over: who knew it would know the session.
    token = await server.sessions.open(principal)
    if before is not None:
        await server.sessions.close(before)
    answer = JsonAnswer(await _shown(call, principal, token))
    answer.set_cookie(COOKIE, token, path=_path(call), secure=_is_secure(call), httponly=True, samesite="strict")
    return answer


@route(
    "DELETE",
    "/v1/session",
    "closeSession",
    scope=None,
    summary="Log out: end the session of the cookie",
    replies={204: Reply("There is no session any more.")},
    problems=("csrf",),
)
async def log_out(call: Call) -> Response:
    """`DELETE /v1/session`."""
    call.check_query()
    headers, server = call.request.headers, call.server
    check_site(headers)
    token = shown_token(headers)
    if token is not None and (principal := await server.sessions.find(token)) is not None:
        check_csrf(token, headers, call.request.scope)
        await server.sessions.close(token)
        server.open_streams.break_for(principal.holder)
        server.waits.end_for(principal.holder)
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, path=_path(call), secure=_is_secure(call), httponly=True, samesite="strict")
    return answer


async def session_of(call: Call) -> Session:
    """Tell who is asking, by key or by cookie. A caller who is nobody learns that a key is needed, and no more."""
    headers = call.request.headers
    try:
        principal = await call.server.rates.principal(headers, call.request.scope)
    except ApiProblem as problem:
        if problem.code not in _UNPROVEN:
            raise
        return await _shown(call, None, None)
    token = shown_token(headers)
    by_cookie = token is not None and principal.session == session_id(token)
    return await _shown(call, principal, token if by_cookie else None)


async def _shown(call: Call, principal: Principal | None, token: str | None) -> Session:
    workflows = principal.workflows if principal is not None else None
    return Session(
        required=await call.server.keys.required(),
        authenticated=principal is not None,
        name=None if principal is None else principal.name if principal.id != LOCAL.id else LOCAL.id,
        scopes=sorted(principal.scopes) if principal is not None else [],
        workflows=sorted(workflows) if workflows is not None else None,
        csrf=csrf_of(token) if token is not None else None,
        read_only=call.settings.read_only,
        version=loom.__version__,
        server_time=moment(call.runtime.now()),
    )


def _path(call: Call) -> str:
    """Return where the application is mounted: other applications of the host do not get the cookie."""
    root: str = call.request.scope.get("root_path", "")
    return f"{root.rstrip('/')}/"


def _is_secure(call: Call) -> bool:
    """Tell whether the browser speaks https. Behind a proxy only the origin of its page says so."""
    secure = call.request.headers.get("origin", "").lower().startswith("https:")
    return secure or call.request.scope.get("scheme") == "https"
