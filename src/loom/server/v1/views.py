"""A run over time: its graph with counts, its timeline, and the iterations of its loops."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from loom.api.answers import Page
from loom.api.views import Iteration, RunGraph, Timeline
from loom.runtime.render_views import rendered_graph, rendered_iterations, rendered_timeline
from loom.runtime.views.timeline import MOST_BARS, Window
from loom.server.answers import json_answer
from loom.server.pages import not_given, read_cursor, write_cursor
from loom.server.problems import invalid
from loom.server.routes import CURSOR, LIMIT, Number, Param, Reply, RouteList

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.call import Call

route = RouteList("runs")


@route(
    "GET",
    "/v1/runs/{run_id}/graph",
    "getRunGraph",
    scope="read",
    summary="See the graph of a run, with counts per step or action",
    params=(Param("tick", Number, "As it was after this tick."),),
    replies={200: Reply("Nodes, edges, counts and loops.", RunGraph)},
    problems=("history-gone",),
)
async def graph(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/graph`."""
    call.check_query()
    tick = call.number("tick")
    row = await call.row()
    try:
        shown = await rendered_graph(call.runtime, row, tick)
    except ValueError as error:
        raise invalid(str(error)) from error
    return await json_answer(shown)


@route(
    "GET",
    "/v1/runs/{run_id}/timeline",
    "getTimeline",
    scope="read",
    summary="See what a run did over time",
    params=(
        Param("begin", datetime, "Only what goes on at this moment or later."),
        Param("end", datetime, "Only what goes on at this moment or earlier."),
        Param("lane", str, "Only this step or action, with a page of its bars."),
        Param("offset", Number, "With `lane`: how many of its bars to pass over."),
        Param("limit", Annotated[int, Meta(ge=1, le=MOST_BARS)], "With `lane`: how many bars to give."),
    ),
    replies={200: Reply("Lanes with bars, or with their density where they are too many.", Timeline)},
    problems=("history-gone",),
)
async def timeline(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/timeline`."""
    call.check_query()
    lane, offset = call.query("lane"), call.number("offset")
    limit = call.number("limit", least=1, most=MOST_BARS)
    if lane is None and (offset is not None or limit is not None):
        raise invalid("The parameters 'offset' and 'limit' need 'lane'.")
    window = Window(call.time("begin"), call.time("end"), lane, offset or 0, limit or MOST_BARS)
    if window.begin is not None and window.end is not None and window.end < window.begin:
        raise invalid("The parameter 'end' lies before 'begin'.")
    row = await call.row()
    return await json_answer(await rendered_timeline(call.runtime, row, window))


@route(
    "GET",
    "/v1/runs/{run_id}/iterations",
    "listIterations",
    scope="read",
    summary="List the iterations of a loop",
    params=(
        Param("path", str, "The loop, such as `loop` or `outer[2]/inner`.", required=True),
        Param("order", Literal["-iteration", "iteration"], "Newest first if nothing is said."),
        LIMIT,
        CURSOR,
    ),
    replies={200: Reply("A page of iterations.", Page[Iteration])},
    problems=("history-gone",),
)
async def iterations(call: Call) -> Response:
    """`GET /v1/runs/{run_id}/iterations`."""
    call.check_query()
    path, order, limit = call.query("path"), call.query("order") or "-iteration", call.page_size()
    row = await call.row()
    if not path:
        raise invalid("The parameter 'path' names the loop.")
    if order not in ("-iteration", "iteration"):
        raise invalid("The parameter 'order' is -iteration or iteration.")
    after, cursor = None, call.query("cursor")
    if cursor is not None:
        *bound, after = read_cursor(cursor, tuple[str, str, str, int])
        if bound != [row.run_id, path, order] or after < 0:
            raise not_given()
    try:
        items, more = await rendered_iterations(call.runtime, row, path, limit, after, ascending=order == "iteration")
    except ValueError as error:
        raise invalid(str(error)) from error
    following = write_cursor(row.run_id, path, order, more) if more is not None else None
    return await json_answer(Page[Iteration](items=items, next_cursor=following))
