"""The processes that work on runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from loom.api.answers import Page
from loom.api.workers import Worker
from loom.server.answers import JsonAnswer
from loom.server.routes import Reply, RouteList

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.call import Call

route = RouteList("server")


@route(
    "GET",
    "/v1/workers",
    "listWorkers",
    scope="read",
    summary="List the processes that work on runs",
    description="What the store does not know of a process is null. A key that is limited to workflows sees no other "
    "workflows and no numbers of runs.",
    replies={200: Reply("All of them.", Page[Worker])},
)
async def workers(call: Call) -> Response:
    """`GET /v1/workers`."""
    call.check_query()
    found = [_seen(call, worker) for worker in await call.runtime.workers()]
    return JsonAnswer(Page[Worker](items=found, next_cursor=None))


def _seen(call: Call, worker: Worker) -> Worker:
    """Hide what a limited key may not know: the runs of a process are of all workflows."""
    if call.principal.workflows is None:
        return worker
    names = worker.workflows
    own = None if names is None else [name for name in names if call.principal.sees(name)]
    return replace(worker, workflows=own, owned=None, runs_in_memory=None)
