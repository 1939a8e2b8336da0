"""The web page: `GET /` leads to it, `/ui/` has it. Its files are open to every caller, and tell nothing of the runs.

All addresses are relative, so the page works wherever the application is mounted, and behind a proxy that adds a
prefix. The page may load scripts, styles and data from this server alone, and no other page may frame it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from starlette.responses import Response

from loom.server.answers import is_known, json_bytes
from loom.server.problems import ApiProblem
from loom.server.routes import Reply, RouteList
from loom.server.v1.session import session_of
from loom.web import INDEX

if TYPE_CHECKING:
    from loom.server.call import Call
    from loom.web import PageFile

route = RouteList("server")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_HASHED = "assets/"
"""Files below it have a hash of their content in their names."""
_FOR_EVER, _ASK_AGAIN = "public, max-age=31536000, immutable", "no-cache"
_PLACE = re.compile(rb'(<script type="application/json" id="loom-session">)[^<]*(</script>)')
_ESCAPED = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    b"\xe2\x80\xa8": b"\\u2028",
    b"\xe2\x80\xa9": b"\\u2029",
}
_NO_GZIP = re.compile(r"gzip\s*;\s*q=0(\.0*)?\s*$")


@route("GET", "/", "openPage", scope=None, summary="The way to the page", replies={307: Reply("For browsers.")})
async def front_door(call: Call) -> Response:
    """`GET /`: browsers are led to the page; programs get 404, as from any address that is no route."""
    if "text/html" not in call.request.headers.get("accept", ""):
        raise ApiProblem("not-found", "There is no such route.", headers={"Vary": "Accept"})
    return _moved("ui/", {"Vary": "Accept"})


@route("GET", "/ui", "openPageBelow", scope=None, summary="The way to the page", replies={307: Reply("To the page.")})
async def without_slash(call: Call) -> Response:
    """`GET /ui`: what the page loads is relative to `/ui/`."""
    del call
    return _moved("ui/", {})


@route("GET", "/ui/", "getPage", scope=None, summary="The page", replies={200: Reply("HTML.")})
async def index(call: Call) -> Response:
    """`GET /ui/`: the page, with the session in it, so that it need not ask for it."""
    found = call.server.page.get(INDEX)
    if found is None:
        raise ApiProblem("not-found", "This installation has no web page: `make ui` builds it.")
    session = json_bytes(await session_of(call))
    for sign, escaped in _ESCAPED.items():
        session = session.replace(sign, escaped)
    body = _PLACE.sub(lambda place: place[1] + session + place[2], found.body, count=1)
    return Response(body, headers={**_HEADERS, "Cache-Control": "no-store"}, media_type="text/html")


@route("GET", "/ui/{path:path}", "getPageFile", scope=None, summary="A file of the page", replies={200: Reply("It.")})
async def file(call: Call) -> Response:
    """`GET /ui/{path}`: a file by its name in the table of files, compressed for those who can read that."""
    name: str = call.request.path_params["path"]
    found = call.server.page.get(name) if name != INDEX else None
    if found is None:
        raise ApiProblem("not-found", "The page has no such file.")
    packed = found.gzip if _takes_gzip(call.request.headers.get("accept-encoding", "")) else None
    mark = f'"{found.etag}-gzip"' if packed is not None else f'"{found.etag}"'
    headers = {
        **_HEADERS,
        "Cache-Control": _FOR_EVER if name.startswith(_HASHED) else _ASK_AGAIN,
        "ETag": mark,
        "Vary": "Accept-Encoding",
    }
    if is_known(call.request.headers, mark):
        return Response(status_code=304, headers=headers)
    return _sent(found, packed, headers)


def _sent(found: PageFile, packed: bytes | None, headers: dict[str, str]) -> Response:
    if packed is None:
        return Response(found.body, headers=headers, media_type=found.media_type)
    return Response(packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=found.media_type)


def _takes_gzip(accepted: str) -> bool:
    return any(
        each.strip().partition(";")[0].strip() == "gzip" and _NO_GZIP.match(each.strip()) is None
        for each in accepted.lower().split(",")
    )


def _moved(place: str, headers: dict[str, str]) -> Response:
    return Response(status_code=307, headers={**headers, "Location": place})
