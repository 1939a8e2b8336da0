"""Whether the journal of a run still gives what is stored. May import the server's frame and loom.runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.runtime.replaying import replay_view
from loom.server.answers import JsonAnswer
from loom.server.routing import Route

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.routing import Call


async def replay(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/replay`."""
    call.check_query()
    row = await call.row()
    return JsonAnswer(await replay_view(call.runtime, row.run_id))


ROUTES = (Route("GET", "/v1/runs/{run_id}/replay", replay, "read"),)
