"""One act on many runs: counted first, done run by run with the rights of the key, and told as it goes on."""

from __future__ import annotations

import copy
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from typing_extensions import override

from loom.api.bulk import Bulk, BulkRequest
from loom.api.requests import filter_parameters
from loom.runtime.durable.bulk import BulkWork, check_filter
from loom.server.answers import JsonAnswer, json_bytes
from loom.server.audit import note
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import JSON, NDJSON, Reply, RouteList
from loom.server.v1.runs import query_of_call
from loom.server.waits import while_connected
from loom.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Message, Receive, Scope, Send

    from loom.server.call import Call
    from loom.store.records import RunQuery, RunRow

route = RouteList("runs")

_log = logging.getLogger("loom.server")

_FILTERS = frozenset(name for name, _ in filter_parameters()) - {"order", "include"}


class KeyGuard:
    """Checks each run for the key, records each act, and stops when the server does."""

    def __init__(self, call: Call, action: str) -> None:
        self._call = call
        self._action = action

    def may_act_on(self, row: RunRow) -> bool:
        """See `BulkGuard`: the key is good for the workflow of the run."""
        return self._call.principal.sees(row.workflow)

    def goes_on(self) -> bool:
        """See `BulkGuard`: a server that stops begins nothing more."""
        return not self._call.server.draining

    async def acted(self, run_id: str) -> None:
        """See `BulkGuard`: each act is in the audit."""
        await note(self._call, f"run.{self._action}", run_id, None, 204 if self._action == "delete" else 202)


@route(
    "POST",
    "/v1/bulk",
    "actOnRuns",
    scope="start",
    summary="Cancel, retry, resume, pause or delete all runs that pass a filter",
    description="`filter` has names and values as the query of `GET /v1/runs`; runs that start later are not touched. "
    "An empty one means all runs, and is refused for `delete`, which needs `admin`. `dry_run` counts, and names up to "
    "20 runs. With `Accept: application/x-ndjson` a line tells how far it is, at least once a second. If the client "
    "leaves or the server stops, what is done stays done; only `finished` says that nothing is left.",
    body=BulkRequest,
    replies={200: Reply("How it ended, or how far it is.", Bulk, media=(JSON, NDJSON))},
    problems=("draining",),
)
async def act(call: Call) -> Response:
    """`POST /v1/bulk`."""
    call.check_query()
    body = await call.body(BulkRequest)
    if body.action == "delete" and not call.principal.has("admin"):
        raise ApiProblem("forbidden", "To delete runs, the key needs the scope 'admin'.")
    query = _asked(call, body)
    if call.server.draining:
        raise ApiProblem("draining", "The server is stopping.", headers={"Retry-After": str(call.settings.retry_after)})
    work = BulkWork(call.runtime, body.action, reason=body.reason or "", guard=KeyGuard(call, body.action))
    progress = _recorded(call, body, work.progress(query, dry_run=body.dry_run))
    if NDJSON in call.request.headers.get("accept", ""):
        return BulkStream(call, progress)
    return JsonAnswer(await while_connected(call, _last(progress)))


def _asked(call: Call, body: BulkRequest) -> RunQuery:
    """Read the filter as a query of runs, with what the key may see."""
    for name in body.filter:
        if name not in _FILTERS:
            raise invalid(f"The filter {name[:100]!r} is not known: use {', '.join(sorted(_FILTERS))}.", "/filter")
    given = {name: _texts(name, value) for name, value in body.filter.items() if value is not None}
    try:
        check_filter(body.action, is_empty=not any(given.values()))
    except ValueError as error:
        raise invalid(str(error), "/filter") from error
    asked = copy.copy(call)
    asked.request = Request({**call.request.scope, "query_string": urlencode(given, doseq=True).encode()})
    try:
        return query_of_call(asked)
    except ApiProblem as problem:
        raise invalid(problem.detail, "/filter") from problem


def _texts(name: str, value: Any) -> list[str]:
    """Write a value of a filter as the query has it."""
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(each, str | bool | int | float) for each in values):
        raise invalid(f"The filter {name!r} must be a text, a number, true or false, or a list of them.", "/filter")
    return [str(each).lower() if isinstance(each, bool) else str(each) for each in values]


async def _recorded(call: Call, body: BulkRequest, progress: AsyncIterator[Bulk]) -> AsyncIterator[Bulk]:
    """Pass the progress on, and record at the end what was done, whatever that end was."""
    last: Bulk | None = None
    try:
        async for last in progress:
            yield last
    finally:
        if last is not None and not body.dry_run:
            failed = f", {last.failed_count} failed" if last.failed_count else ""
            await note(call, f"bulk.{body.action}", f"{last.done} of {last.matched} runs{failed}", None, 200)


async def _last(progress: AsyncIterator[Bulk]) -> Bulk | None:
    last = None
    async with aclosing(progress) as told:  # type: ignore[type-var]
        async for each in told:
            last = each
    return last


class BulkStream(Response):
    """The answer that tells how far it is, line by line."""

    def __init__(self, call: Call, progress: AsyncIterator[Bulk]) -> None:
        self._call = call
        self._progress = progress
        self.status_code = 200
        self.media_type = NDJSON
        self.background = None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            await while_connected(self._call, self._feed(send))
        except (ClientDisconnect, ApiProblem):
            return  # the client has left, or its key is gone: without a last message the connection is broken
        except StoreError as error:
            _log.warning("An act on many runs was broken off: %s", error)
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _feed(self, send: Send) -> None:
        async with aclosing(self._progress) as progress:  # type: ignore[type-var]
            async for told in progress:
                await send(_line(told))


def _line(told: Bulk) -> Message:
    return {"type": "http.response.body", "body": json_bytes(told) + b"\n", "more_body": True}
