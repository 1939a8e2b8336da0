"""Exports and imports: everything that is stored of a run, for another server or store to go on with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from loom.runtime.durable.names import check_stored_names
from loom.server.answers import etag
from loom.server.call import new_id
from loom.server.caller_limits import check_open
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import Body, Reply, RouteList
from loom.server.v1.runs import NEW_RUN, run_answer
from loom.store.errors import CorruptRecord, StoreError
from loom.store.records import RunRow

if TYPE_CHECKING:
    from loom.server.call import Call

route = RouteList("runs")

MAX_EXPORT = 64 * 2**20
"""How many bytes an export may have. A larger one is for the command line, at the store itself."""


@route(
    "GET",
    "/v1/runs/{run_id}/export",
    "exportRun",
    scope="admin",
    summary="Get everything that is stored of a run",
    description="For `PUT` on another server, or `loom runs import`. It has the run's data as it is, secure data too, "
    f"and at most {MAX_EXPORT >> 20} MiB. Child runs are runs of their own.",
    replies={200: Reply("The run as it is stored.", dict[str, Any], headers=("ETag",))},
    problems=("too-large",),
)
async def export(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/export`."""
    call.check_query()
    row = await call.row()
    data = await call.runtime.export_run(row.run_id)
    if len(data) > MAX_EXPORT:
        raise ApiProblem("too-large", f"The export of run {row.run_id!r} is larger than {MAX_EXPORT} bytes.")
    headers = {"ETag": etag(row), "Content-Disposition": "attachment", "Cache-Control": "no-store"}
    return Response(data, headers=headers, media_type="application/json")


@route(
    "PUT",
    "/v1/runs/{run_id}/export",
    "importRun",
    scope="admin",
    summary="Store a run that was exported",
    description="It keeps its id, its history and what it waits for. If it is not over, it goes on here.",
    body=Body(dict[str, Any]),
    replies={201: NEW_RUN},
    problems=("run-exists", "draining", "memory-exceeded"),
)
async def import_(call: Call) -> Response:
    """`PUT /v1/runs/{run_id}/export`."""
    call.check_query()
    check_open(call)
    _check(call, await call.json())
    if await call.runtime.store.get(call.run_id()) is not None:
        await call.row()  # a key learns nothing of runs that it may not see
    try:
        made = await call.runtime.import_run(await call.request.body())
    except CorruptRecord as error:
        raise invalid(str(error)) from error
    except StoreError as error:
        if type(error) is not StoreError:
            raise
        raise invalid(str(error)) from error
    return await run_answer(call, await call.row(made), 201)


class _ExportedRun(msgspec.Struct):
    row: RunRow


class _Export(msgspec.Struct):
    """What this route reads of an export; the runtime reads the whole."""

    run: _ExportedRun


def _check(call: Call, body: Any) -> None:
    """Refuse what is no export, a run of another id, and one that is out of the key's reach."""
    try:
        row = msgspec.convert(body, _Export).run.row
        check_stored_names(row.run_id, row.workflow, row.tags)
    except (TypeError, ValueError) as error:
        raise invalid(f"This is not an exported run: {error}", "/run/row") from error
    if new_id("run_id", row.run_id) != call.run_id():
        raise invalid(f"The export is that of run {row.run_id!r}.", "/run/row/run_id")
    call.check_workflow(row.workflow)
    if call.principal.workflows is not None and row.parent is not None:
        # Its end is told to its parent, which may be a run of any workflow.
        raise ApiProblem("forbidden", "A key that is limited to workflows may not import child runs.")
