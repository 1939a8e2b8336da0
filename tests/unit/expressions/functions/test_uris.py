"""The URI functions."""

from __future__ import annotations

from typing import Any

import pytest

from loom.expressions.errors import FunctionError
from loom.expressions.functions import uris

ALL = [uris.uri_scheme, uris.uri_host, uris.uri_port, uris.uri_path, uris.uri_query, uris.uri_path_and_query]


@pytest.mark.parametrize(
    ("uri", "parts"),
    [
        ("https://www.contoso.com", ["https", "www.contoso.com", 443, "/", "", "/"]),
        (
            "HTTP://User:pw@Host:8080/A/b.htm?x=1&y=?#z",
            ["http", "host", 8080, "/A/b.htm", "?x=1&y=?", "/A/b.htm?x=1&y=?"],
        ),
        ("http://h?q", ["http", "h", 80, "/", "?q", "/?q"]),
        ("http://[::1]:99/x", ["http", "[::1]", 99, "/x", "", "/x"]),
        ("https://h:/x#f?no", ["https", "h", 443, "/x", "", "/x"]),
        ("ftp://h/a/../b/./c/..", ["ftp", "h", 21, "/b/", "", "/b/"]),
        (
            "https://h/a b/\u00e4?q=\u00fc%20",
            ["https", "h", 443, "/a%20b/%C3%A4", "?q=%C3%BC%20", "/a%20b/%C3%A4?q=%C3%BC%20"],
        ),
        ("file:///c:/x", ["file", "", -1, "/c:/x", "", "/c:/x"]),
        (
            "mailto:me@contoso.com?subject=a",
            ["mailto", "", -1, "me@contoso.com", "?subject=a", "me@contoso.com?subject=a"],
        ),
    ],
)
def test_the_parts_of_a_uri(uri: str, parts: list[Any]) -> None:
    assert [part(uri) for part in ALL] == parts


@pytest.mark.parametrize("path", ["/..", "/../..", "/a/../..", "/."])
def test_dots_never_lead_out_of_the_root(path: str) -> None:
    assert uris.uri_path(f"https://h{path}") == "/"


@pytest.mark.parametrize("part", ALL)
@pytest.mark.parametrize(
    "uri",
    [
        "",
        "www.contoso.com",
        "/path",
        "http://",
        "http:///x",
        "http:x",
        "http://h:99999",
        "http://h:x",
        "http://[::1",
        "1a://h",
    ],
)
def test_what_is_no_absolute_uri_is_refused(part: Any, uri: str) -> None:
    with pytest.raises(FunctionError, match="URI"):
        part(uri)


@pytest.mark.parametrize("value", [None, 1, [], {}])
def test_a_uri_is_a_string(value: Any) -> None:
    with pytest.raises(FunctionError, match="'uri' to be a string"):
        uris.uri_host(value)
