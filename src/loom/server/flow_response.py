"""What a flow's Response action says, as an answer over HTTP. A flow answers for itself, not for the server.

It cannot set cookies of the server, speak for its origins or its connection, and what it sends runs no scripts there.
May import starlette, loom.effects and loom.flows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from loom.effects.actions.bodies import encode_body, text_of
from loom.expressions.errors import FunctionError

if TYPE_CHECKING:
    from loom.flows.calls import FlowResponse

_DROPPED = frozenset({
    "alt-svc", "clear-site-data", "connection", "content-encoding", "content-length", "content-security-policy",
    "date", "idempotent-replay", "keep-alive", "loom-run-id", "proxy-authenticate", "proxy-connection", "server",
    "service-worker-allowed", "set-cookie", "set-cookie2", "strict-transport-security", "te", "trailer",
    "transfer-encoding", "upgrade", "www-authenticate", "x-content-type-options", "x-request-id",
})  # fmt: skip
_CORS = "access-control-"
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_FIRST, _LAST = 200, 599
_BODILESS = frozenset({204, 205, 304})
_SANDBOX = {"Content-Security-Policy": "sandbox"}


def response_of(said: FlowResponse) -> Response | None:
    """The answer; None if it is none that can be sent over HTTP."""
    status = _status(said.status_code)
    if status is None:
        return None
    headers = _headers(said.headers)
    given = headers.pop("content-type", "")
    try:
        content, content_type = encode_body(said.body, given)
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
        allowed = key not in _DROPPED and not key.startswith(_CORS)
        if allowed and _NAME.fullmatch(key) and _VALUE.fullmatch(text):
            found[key] = text
    return found
