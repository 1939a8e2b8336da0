"""Whether the server lives, and whether it can do its work. Open to everybody, so it tells no names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.server.answers import JsonAnswer
from loom.server.routing import Route
from loom.store.errors import StoreError

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.routing import Call
    from loom.server.shapes import Alive, Readiness


async def live(call: Call) -> Response:
    """The process answers."""
    del call
    answer: Alive = {"status": "live"}
    return JsonAnswer(answer)


async def ready(call: Call) -> Response:
    """The store is reachable and up to date, commits are written, and the server takes new runs."""
    reasons = await unready(call)
    answer: Readiness = {"status": "unready" if reasons else "ready", "reasons": reasons}
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


ROUTES = (
    Route("GET", "/v1/health/live", live, None),
    Route("GET", "/v1/health/ready", ready, None),
)
