"""A request as a flow sees it: what a trigger, or an action that was called back, gets of it.

Credentials never enter a flow. May import the server's frame, loom.effects and loom.flows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loom.effects.actions.bodies import TooManyValues, decode_off_loop, media_type
from loom.effects.threads import OFF_LOOP_BYTES, aside
from loom.flows.plain import plain_value
from loom.server.problems import ApiProblem
from loom.server.routing import json_off_loop

if TYPE_CHECKING:
    from loom.server.routing import Call

_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})


class Received(NamedTuple):
    """What a flow gets of a request."""

    headers: dict[str, str]
    queries: dict[str, str]
    body: Any


async def received(call: Call, *own: str) -> Received:
    """The request, without the queries that are the server's own."""
    request = call.request
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        if name not in _CREDENTIALS:
            shown = "-".join(part.capitalize() for part in name.split("-"))
            headers[shown] = f"{headers[shown]}, {value}" if shown in headers else value
    queries = {name: value for name, value in request.query_params.items() if name not in own}
    body = await _body(call)
    is_large = len(await request.body()) > OFF_LOOP_BYTES
    return Received(headers, queries, await aside("convert", plain_value, body) if is_large else plain_value(body))


async def _body(call: Call) -> Any:
    """JSON as values, text as text, and everything else in an envelope. What does not say its type must be JSON."""
    data = await call.request.body()
    content_type = call.request.headers.get("content-type", "application/json")
    kind = media_type(content_type)
    if kind == "application/json" or kind.endswith("+json"):
        return await json_off_loop(data, call.settings) if data.strip() else None
    try:
        return await decode_off_loop(data, content_type, call.settings.max_values)
    except TooManyValues as error:
        raise ApiProblem("too-large", str(error)) from error
