"""Whether the server lives, and whether it can do its work. Open to every caller, so it tells no names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.api.service import Alive, Readiness
from loom.server.answers import JsonAnswer
from loom.server.routes import Reply, RouteList
from loom.store.errors import StoreError

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.call import Call

route = RouteList("server")


@route(
    "GET",
    "/v1/health/live",
    "isLive",
    scope=None,
    summary="Whether the process answers",
    replies={200: Reply("It does.", Alive)},
)
async def live(call: Call) -> Response:
    """The process answers."""
    del call
    return JsonAnswer(Alive(status="live"))


@route(
    "GET",
    "/v1/health/ready",
    "isReady",
    scope=None,
    summary="Whether the server takes work",
    replies={200: Reply("It does.", Readiness), 503: Reply("It does not; the reasons are named.", Readiness)},
)
async def ready(call: Call) -> Response:
    """The store is reachable and up to date, commits are written, and the server takes new runs."""
    reasons = await unready(call)
    answer = Readiness(status="unready" if reasons else "ready", reasons=reasons, role=call.runtime.role)
    return JsonAnswer(answer, 503, headers={"Retry-After": "1"}) if reasons else JsonAnswer(answer)


async def unready(call: Call) -> list[str]:
    """Why the server cannot do its work; nothing if it can."""
    reasons = ["draining"] if call.server.draining else []
    runtime = call.runtime
    try:
        await runtime.ready()
        await runtime.store.get("health")  # opening has applied the migrations; this reaches the tables
        await runtime.commits_work()
    except StoreError:
        reasons.append("store-unavailable")
    # The loop turns, or this would not be asked.
    return reasons + [reason for reason in runtime.hindrances() if reason != "stalled"]
