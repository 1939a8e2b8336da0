"""The record of what operators did: entries of the store that are added and never changed.

Every act of `ACTIONS` that succeeds leaves one. So does one that a key was refused, unless there are too many of them.
A page can be read with an `admin` key. Entries go at the end of their retention, and in no other way.
"""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from loom.api.answers import Page
from loom.api.service import Acted
from loom.api.times import moment
from loom.runtime.durable.acts import AUDIT, Act, record
from loom.server.answers import JsonAnswer
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import CURSOR, LIMIT, Reply, Route, RouteList
from loom.store.errors import StoreError

if TYPE_CHECKING:
    from starlette.responses import Response

    from loom.server.call import Call

route = RouteList("server")

_log = logging.getLogger("loom.audit")

FORCED = "run.event"
"""An event was sent that only an administrator may send."""

ACTIONS: dict[tuple[str, str], str] = {
    ("DELETE", "/v1/runs/{run_id}"): "run.delete",
    ("POST", "/v1/runs/{run_id}/cancel"): "run.cancel",
    ("POST", "/v1/runs/{run_id}/pause"): "run.pause",
    ("POST", "/v1/runs/{run_id}/resume"): "run.resume",
    ("POST", "/v1/runs/{run_id}/retry"): "run.retry",
    ("POST", "/v1/runs/{run_id}/skip"): "run.skip",
    ("POST", "/v1/runs/{run_id}/fork"): "run.fork",
    ("GET", "/v1/runs/{run_id}/export"): "run.export",
    ("PUT", "/v1/runs/{run_id}/export"): "run.import",
    ("PUT", "/v1/runs/{run_id}/tags"): "run.tag",
    ("POST", "/handlers/{handler_id}/cancel"): "run.cancel",
    ("POST", "/v1/runs/{run_id}/events"): FORCED,
    ("POST", "/events/{handler_id}"): FORCED,
    ("PUT", "/v1/definitions/{name}"): "definition.put",
    ("DELETE", "/v1/definitions/{name}"): "definition.delete",
    ("POST", "/v1/definitions/{name}/enable"): "definition.enable",
    ("POST", "/v1/definitions/{name}/triggers/{trigger}/fire"): "definition.fire",
    ("POST", "/v1/definitions/{name}/disable"): "definition.disable",
    ("POST", "/v1/definitions/{name}/address"): "definition.address",
    ("POST", "/v1/schedules"): "schedule.put",
    ("DELETE", "/v1/schedules/{schedule_id}"): "schedule.delete",
    ("POST", "/v1/schedules/{schedule_id}/pause"): "schedule.pause",
    ("POST", "/v1/schedules/{schedule_id}/resume"): "schedule.resume",
}
"""What is recorded, by route. What starts runs, and the events that runs ask for, are in their histories."""

_KEY = re.compile(r"[0-9]{18}-[0-9a-f]{16}")
_MAX_TARGET = 200
FORBIDDEN = 403


def audited(route: Route) -> Route:
    """Wrap a route that is in `ACTIONS`, so that it leaves a record."""
    action = ACTIONS.get((route.method, route.path))
    if action is None:
        return route

    async def answer(call: Call) -> Response:
        response = await route.answer(call)
        if response.status_code < 400 and (action != FORCED or call.forced):  # noqa: PLR2004 - it was done
            location = response.headers.get("location")
            made = location.rpartition("/")[2] if location else None
            await note(call, action, await _target(call), made, response.status_code)
        return response

    return replace(route, answer=answer)


async def note_refusal(route: Route, call: Call, problem: ApiProblem) -> None:
    """Add an act that the caller's key was refused, unless there were too many of them."""
    action = ACTIONS.get((route.method, route.path))
    if problem.status != FORBIDDEN or action is None or (action == FORCED and call.forced is None):
        return
    # The body is not read: a caller who is refused shall not make the server work.
    if call.server.refusals.may_record(call.principal.id):
        await note(call, action, _named(call), None, problem.status)


async def note(call: Call, action: str, target: str, made: str | None, outcome: int) -> None:
    """Add an act of the caller to the record. A store that cannot take it is told of in the log."""
    request, made = call.request, made or call.forced
    if action == "run.cancel" and request.query_params.get("purge", "").lower() in ("true", "1"):
        action = "run.delete"
    act = Act(
        at=call.runtime.now(),
        actor=call.principal.id,
        actor_name=call.principal.name,
        action=action,
        target=target[:_MAX_TARGET],
        made=made[:_MAX_TARGET] if made else None,
        request_id=request.scope.get("state", {}).get("request_id"),
        outcome=outcome,
    )
    try:
        await record(call.runtime.store, act, call.settings.audit_retention)
    except StoreError:
        # It is done, and whoever asked shall know: that it is missing in the record is for the log.
        _log.exception("An act is missing in the record: %s", msgspec.json.encode(act).decode())


async def _target(call: Call) -> str:
    """Return what the act was done to: the path names it, or the body of what was made."""
    named = _named(call)
    body = await call.json() if not named else None
    return named or str(body.get("name", "") if isinstance(body, dict) else "")


def _named(call: Call) -> str:
    return "/".join(str(value) for value in call.request.path_params.values())


@route(
    "GET",
    "/v1/audit",
    "listActs",
    scope="admin",
    summary="See what operators did, and what keys were refused",
    params=(LIMIT, CURSOR),
    replies={200: Reply("A page of acts, newest first.", Page[Acted])},
)
async def page(call: Call) -> Response:
    """`GET /v1/audit`."""
    call.check_query()
    if call.principal.workflows is not None:
        raise ApiProblem("forbidden", "A key that is limited to workflows may not read the record.")
    cursor, limit = call.query("cursor"), call.page_size()
    if cursor is not None and _KEY.fullmatch(cursor) is None:
        raise invalid("The cursor is not one that this server has given.")
    found = await call.runtime.store.entries(AUDIT, cursor or "", limit + 1)
    items = [_shown(entry.data) for entry in found[:limit]]
    return JsonAnswer(Page[Acted](items=items, next_cursor=found[limit - 1].key if len(found) > limit else None))


def _shown(data: bytes) -> Acted:
    act = msgspec.json.decode(data, type=Act)
    return Acted(
        at=moment(act.at),
        actor=act.actor,
        actor_name=act.actor_name,
        action=act.action,
        target=act.target,
        made=act.made,
        request_id=act.request_id,
        outcome=act.outcome,
    )
