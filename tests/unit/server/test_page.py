"""The web page: its way, its files and their headers, wherever the application is mounted."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from server_serving import Served, serving
from starlette.applications import Starlette
from starlette.routing import Mount

from loom.server.app import create_app
from loom.server.page import POLICY

SCRIPT = b"console.log(1)" * 50
HTML = '<html><head><script type="application/json" id="loom-session">null</script></head></html>'


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A built page."""
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text(HTML)
    (folder / "assets" / "index-1a2b.js").write_bytes(SCRIPT)
    (folder / "assets" / "index-1a2b.js.gz").write_bytes(gzip.compress(SCRIPT))
    (folder / "assets" / "index-1a2b.css").write_bytes(b"body{}")
    (folder / "icon.svg").write_bytes(b"<svg/>")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    return folder


@pytest.fixture
async def page(built: Path) -> AsyncIterator[Served]:
    """A server with that page."""
    async with serving() as served:
        served.app = create_app(served.runtime, web=built)
        served.server = served.app.state.server
        yield served


def session_in(html: str) -> Any:
    found = re.search(r'id="loom-session">(.*?)</script>', html)
    assert found is not None
    return json.loads(found[1])


async def test_browsers_are_led_to_the_page_and_programs_are_not(page: Served) -> None:
    async with page.client() as client:
        for method in ("GET", "HEAD"):
            answer = await client.request(method, "/", headers={"Accept": "text/html,*/*;q=0.8"})
            assert (answer.status_code, answer.headers["location"]) == (307, "ui/")
        assert (await client.get("/ui")).headers["location"] == "ui/"
        assert (await client.get("/", headers={"Accept": "*/*"})).status_code == 404
        assert (await client.post("/")).status_code == 405


async def test_the_page_has_the_session_in_it(page: Served) -> None:
    async with page.client() as client:
        answer = await client.get("/ui/")
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        found, asked = session_in(answer.text), (await client.get("/v1/session")).json()
        assert {**found, "server_time": 0} == {**asked, "server_time": 0}
        assert (found["authenticated"], found["name"]) == (True, "local")


async def test_a_name_with_markup_does_not_leave_its_place(page: Served) -> None:
    from loom.server.auth import new_key

    name = "</script><script>alert(1)</script><!-- & \u2028"
    key, stored = new_key(("read",), name=name)
    await page.server.keys.add(stored)
    async with page.client(key) as client:
        text = (await client.get("/ui/")).text
        assert "alert(1)</script>" not in text
        assert "<!--" not in text
        assert "\u2028" not in text
        assert session_in(text)["name"] == name
    async with page.client() as client:
        found = session_in((await client.get("/ui/")).text)
        assert (found["authenticated"], found["name"], found["scopes"], found["csrf"]) == (False, None, [], None)


async def test_every_file_has_the_headers_that_hold_a_page_together(page: Served) -> None:
    async with page.client() as client:
        for path in ("/ui/", "/ui/assets/index-1a2b.js", "/ui/assets/index-1a2b.css", "/ui/icon.svg"):
            answer = await client.get(path)
            assert answer.status_code == 200
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cross-origin-opener-policy"] == "same-origin"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert "unsafe" not in POLICY


async def test_files_are_packed_marked_and_kept(page: Served) -> None:
    path = "/ui/assets/index-1a2b.js"
    async with page.client() as client:
        packed = await client.get(path, headers={"Accept-Encoding": "br, gzip;q=0.5"})
        assert packed.headers["content-encoding"] == "gzip"
        assert int(packed.headers["content-length"]) < len(SCRIPT)
        assert packed.content == SCRIPT
        assert packed.headers["content-type"] == "text/javascript; charset=utf-8"
        assert "immutable" in packed.headers["cache-control"]
        for refuses in ("identity", "gzip;q=0", "gzip; q=0.0, br", ""):
            plain = await client.get(path, headers={"Accept-Encoding": refuses})
            assert "content-encoding" not in plain.headers
            assert plain.content == SCRIPT
        assert plain.headers["vary"] == "Accept-Encoding"
        assert plain.headers["etag"] != packed.headers["etag"]
        same = await client.get(path, headers={"If-None-Match": packed.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["content-security-policy"] == POLICY
        assert (await client.get("/ui/icon.svg")).headers["cache-control"] == "no-cache"
        unpacked = await client.get("/ui/assets/index-1a2b.css", headers={"Accept-Encoding": "gzip"})
        assert unpacked.text == "body{}"


@pytest.mark.parametrize(
    "path",
    [
        "/ui/../secret.txt",
        "/ui/%2e%2e/secret.txt",
        "/ui/assets/..%2f..%2fsecret.txt",
        "/ui//etc/passwd",
        "/ui/assets",
        "/ui/assets/",
        "/ui/assets/index-1a2b.js.gz",
        "/ui/assets/%00",
        "/ui/index.html",
        "/ui/__init__.py",
    ],
)
async def test_no_path_leads_out_of_the_table(page: Served, path: str) -> None:
    async with page.client() as client:
        assert (await client.get(path)).status_code == 404


async def test_it_works_below_a_prefix(page: Served) -> None:
    key = await page.key("admin")
    page.app = Starlette(routes=[Mount("/x/y", page.app)])
    async with page.client(base="http://127.0.0.1/x/y") as client:
        answer = await client.get("/", headers={"Accept": "text/html"}, follow_redirects=True)
        assert answer.url.path == "/x/y/ui/"
        assert session_in(answer.text)["authenticated"] is False
        assert (await client.get("/ui/assets/index-1a2b.js")).content == SCRIPT
        login = await client.post("/v1/session", json={"key": key})
        assert "Path=/x/y/;" in login.headers["set-cookie"]
        assert session_in((await client.get("/ui/")).text)["authenticated"] is True


async def test_a_proxy_may_strip_the_prefix(page: Served) -> None:
    async with page.client() as client:
        answer: httpx2.Response = await client.get("/ui")
        assert not answer.headers["location"].startswith("/")
