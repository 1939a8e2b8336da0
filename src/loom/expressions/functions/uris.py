"""URI functions: the parts of an absolute URI. Pure."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from loom.expressions.errors import FunctionError
from loom.expressions.functions.registry import function, want_string
from loom.expressions.meter import ELEMENT, spend_text
from loom.expressions.strings import percent_encode

_PORTS = {
    "http": 80,
    "https": 443,
    "ws": 80,
    "wss": 443,
    "ftp": 21,
    "ldap": 389,
    "telnet": 23,
    "gopher": 70,
    "nntp": 119,
}
_NO_PORT = -1
_LAST_PORT = 65_535
_SHOWN = 60
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#\\]*))?([^?#]*)(\?[^#]*)?(?:#.*)?", re.DOTALL)
# User, host (a name or an address in brackets) and port.
_AUTHORITY = re.compile(r"(?:.*@)?(\[[0-9A-Fa-f:.]+\]|[^:@\[\]\s]*)(?::([0-9]*))?", re.DOTALL)
_NOT_OF_A_URI = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]+")


class _Uri(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str
    query: str


def _parse(uri: Any) -> _Uri:
    text = want_string("uri", uri).strip()
    spend_text(text, ELEMENT)
    match = _URI.fullmatch(text)
    if match is None:
        raise FunctionError(f"expects its argument 'uri' to be an absolute URI, not '{text[:_SHOWN]}'")
    scheme, authority, path, query = match[1].lower(), match[2], match[3], match[4]
    host, port = _host_and_port(text, scheme, authority or "")
    if authority is not None:
        path = _without_dots(path.replace("\\", "/")) or "/"
    return _Uri(scheme, host, port, _escaped(path), _escaped(query or ""))


def _host_and_port(uri: str, scheme: str, authority: str) -> tuple[str, int]:
    match = _AUTHORITY.fullmatch(authority)
    if match is None or (not match[1] and scheme in _PORTS):
        raise FunctionError(f"the URI '{uri[:_SHOWN]}' has no valid host")
    port = match[2] or ""
    if len(port) > len(str(_LAST_PORT)) or int(port or 0) > _LAST_PORT:
        raise FunctionError(f"the URI '{uri[:_SHOWN]}' has a port beyond {_LAST_PORT}")
    return match[1].lower(), int(port) if port else _PORTS.get(scheme, _NO_PORT)


def _without_dots(path: str) -> str:
    """The path with its `.` and `..` resolved."""
    if "/." not in path:
        return path
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if len(segments) > 1:
                segments.pop()
        elif segment != ".":
            segments.append(segment)
    if path.endswith(("/.", "/..")):
        segments.append("")
    return "/".join(segments)


def _escaped(text: str) -> str:
    """The text with what may not stand in a URI escaped; what is escaped already stays."""
    return _NOT_OF_A_URI.sub(lambda match: percent_encode(match[0]), text)


@function("uriScheme", 1)
def uri_scheme(uri: Any) -> str:
    """The scheme, such as `https`."""
    return _parse(uri).scheme


@function("uriHost", 1)
def uri_host(uri: Any) -> str:
    """The host, without the port."""
    return _parse(uri).host


@function("uriPort", 1)
def uri_port(uri: Any) -> int:
    """The port, by default that of the scheme; -1 if the scheme has none."""
    return _parse(uri).port


@function("uriPath", 1)
def uri_path(uri: Any) -> str:
    """The path, `/` if there is none."""
    return _parse(uri).path


@function("uriQuery", 1)
def uri_query(uri: Any) -> str:
    """The query with its `?`, empty if there is none."""
    return _parse(uri).query


@function("uriPathAndQuery", 1)
def uri_path_and_query(uri: Any) -> str:
    """The path, and the query with its `?`."""
    parts = _parse(uri)
    return parts.path + parts.query
