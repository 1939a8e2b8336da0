"""Requests and answers of flows in terms of HTTP: what a flow sees of a request, and how its Response goes out.

Credentials never enter a flow. A flow answers for itself, not for the server: it cannot set cookies of the server,
speak for its origins or its connection, and what it sends runs no scripts there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import Response

from loom.effects.actions.content import TooManyValues, decode_content_off_loop, encode_content, media_type, text_of
from loom.effects.off_loop import OFF_LOOP_BYTES, aside, aside_if_large
from loom.expressions.errors import FunctionError
from loom.flows.plain import plain_value
from loom.server.addresses import HIDDEN, signature_of
from loom.server.call import json_off_loop
from loom.server.problems import ApiProblem
from loom.server.routes import PARAMETERS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.flows.calls import FlowResponse
    from loom.server.call import Call

# -- the request as a flow sees it ------------------------------------------------------------------------------------


_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key", PARAMETERS.lower()})
"""Headers that a flow does not get. The parameters of a start may be secrets too."""


class Received(NamedTuple):
    """What a flow gets of a request."""

    headers: dict[str, str]
    queries: dict[str, str]
    body: Any


async def received(call: Call, own: Iterable[str]) -> Received:
    """The request, without the queries that are the server's own."""
    request = call.request
    headers: dict[str, str] = {}
    signature = signature_of(request.scope)
    for name, value in request.headers.items():
        if name not in _CREDENTIALS:
            if signature:
                value = value.replace(signature, HIDDEN)  # noqa: PLW2901 - proxies and browsers repeat addresses
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
        return await decode_content_off_loop(data, content_type, call.settings.max_values)
    except TooManyValues as error:
        raise ApiProblem("too-large", str(error)) from error


# -- the answer of a flow ---------------------------------------------------------------------------------------------


_DROPPED = frozenset({
    "alt-svc", "clear-site-data", "connection", "content-encoding", "content-length", "content-security-policy",
    "date", "idempotent-replay", "keep-alive", "proxy-authenticate", "proxy-connection", "server",
    "service-worker-allowed", "set-cookie", "set-cookie2", "strict-transport-security", "te", "trailer",
    "transfer-encoding", "upgrade", "www-authenticate", "x-content-type-options", "x-request-id",
})  # fmt: skip
_OTHERS = ("access-control-", "loom-")
"""What else belongs to the server, by what its names begin with."""
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_FIRST, _LAST = 200, 599
_BODILESS = frozenset({204, 205, 304})
_SANDBOX = {"Content-Security-Policy": "sandbox"}


async def response_of(said: FlowResponse) -> Response | None:
    """Return the answer, which is written in a thread if it is large; None if it is none that HTTP has a form for."""
    return await aside_if_large(_response_of, said)


def _response_of(said: FlowResponse) -> Response | None:
    status = _status(said.status_code)
    if status is None:
        return None
    headers = _headers(said.headers)
    given = headers.pop("content-type", "")
    try:
        content, content_type = encode_content(said.body, given)
    except (FunctionError, ValueError, TypeError, AttributeError):
        return None  # an envelope that holds no content
    if not _VALUE.fullmatch(content_type):
        return None
    if status in _BODILESS:
        return Response(status_code=status, headers={**headers, **_SANDBOX})
    if content_type:
        headers["content-type"] = content_type
    return Response(content, status, {**headers, **_SANDBOX})


def _status(value: Any) -> int | None:
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    number = int(text) if re.fullmatch("[0-9]{3}", text, re.ASCII) else 0
    return number if _FIRST <= number <= _LAST else None


def _headers(given: Any) -> dict[str, str]:
    """The headers that a flow may set, by their names in lower case."""
    found: dict[str, str] = {}
    for name, value in given.items() if isinstance(given, dict) else ():
        key, text = str(name).lower(), text_of(value)
        allowed = key not in _DROPPED and not key.startswith(_OTHERS)
        if allowed and _NAME.fullmatch(key) and _VALUE.fullmatch(text):
            found[key] = text
    return found
