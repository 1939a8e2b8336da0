"""How many runs there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.api.counts import Counts
from loom.server.answers import JsonAnswer
from loom.server.routes import Param, Reply, RouteList
from loom.server.v1.runs import workflows_asked

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.call import Call

route = RouteList("runs")

_WORKFLOW = Param("workflow", list[str], "Runs of any of these workflows.")


@route(
    "GET",
    "/v1/counts",
    "countRuns",
    scope="read",
    summary="Count runs by status, by what holds them and by workflow",
    description="Counted at most once a second, and less often where counting takes long: `at` says when.",
    params=(_WORKFLOW,),
    replies={200: Reply("The counts; of the workflows that the key is good for.", Counts)},
)
async def counts(call: Call) -> Response:
    """`GET /v1/counts`."""
    call.check_query()
    return JsonAnswer(await call.server.workflow_counts.get(workflows_asked(call)))
