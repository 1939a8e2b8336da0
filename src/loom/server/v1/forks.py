"""Forks: new runs from past states of others, perhaps with another input, store or event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.api.requests import ForkRequest
from loom.runtime.durable.fork_changes import CannotFork
from loom.server.call import new_id, pointer
from loom.server.caller_limits import check_open
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import RouteList
from loom.server.v1.events import event_of
from loom.server.v1.runs import NEW_RUN, run_answer
from loom.store.errors import RunExists

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.call import Call
    from loom.store.records import RunRow

route = RouteList("runs")


@route(
    "POST",
    "/v1/runs/{run_id}/fork",
    "forkRun",
    scope="start",
    summary="Start a new run from a past state of this one",
    description="What was in progress at that tick runs again. The original is never touched. `input` (only at "
    "tick 0), `store` and `event` change the new run, in one transaction with its start; each of them needs `admin`.",
    body=ForkRequest,
    replies={201: NEW_RUN},
    problems=("run-exists", "history-gone", "draining", "memory-exceeded"),
)
async def fork(call: Call) -> Response:
    """`POST /v1/runs/{run_id}/fork`."""
    call.check_query()
    body = await call.body(ForkRequest)
    changes = [name for name in ("input", "event", "store") if getattr(body, name) is not None]
    if changes and not call.principal.has("admin"):
        raise ApiProblem("forbidden", f"A fork with another {changes[0]} needs a key with the scope 'admin'.")
    check_open(call)
    row = await call.row()
    run_id = new_id("run_id", body.run_id) if body.run_id is not None else call.nonce
    await call.server.starts.reserve(call)
    made = await _forked(call, row, body, run_id)
    call.has_begun(made)
    return await run_answer(call, await call.row(made), 201)


async def _forked(call: Call, row: RunRow, body: ForkRequest, run_id: str | None) -> str:
    told = body.event
    if told is not None:
        await call.check_event_size()
    event = event_of(call, row, told.type, told.value, at=("event",)) if told is not None else None
    try:
        return await call.runtime.store_fork(
            row.run_id, tick=body.tick, run_id=run_id, input=body.input, event=event, store=body.store
        )
    except CannotFork as error:
        raise invalid(str(error), pointer(error.field)) from error
    except ValueError as error:
        raise invalid(str(error), "/tick") from error
    except RunExists as error:
        # An earlier attempt at this same request may have stored the fork already.
        if not call.is_repeated or (await call.row(error.run_id)).forked_from != row.run_id:
            raise
        return error.run_id
