"""The site as `make docs` has made it, in a real browser: the search finds what newcomers ask for, nothing is fetched.

`.ci/run` makes the site before the tests. Elsewhere they are skipped unless it is there and not older than its pages.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from page_rig import FLAGS, found_browser
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"
QUESTIONS = re.findall(
    r"^\| (.+\?) \| \[.+\]\((.+)\.md\) \|$", (DOCS / "questions.md").read_text("utf-8"), re.MULTILINE
)
GUARD_MS = 60_000


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """A test has nothing to say on each request."""


def _newest() -> float:
    sources = [ROOT / "README.md", *(path for path in DOCS.rglob("*") if path.suffix in (".md", ".css", ".yml"))]
    return max(path.stat().st_mtime for path in sources)


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    index = SITE / "index.html"
    if not index.exists() or index.stat().st_mtime < _newest():
        assert not os.environ.get("CI"), "make docs has to come before the tests"
        pytest.skip("the site is not there, or older than its pages: run `make docs`")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            serving.join()


@pytest.fixture(scope="module")
def page(site: str) -> Iterator[tuple[Page, list[str]]]:
    """A page of the site, and the addresses outside of it that it has asked for."""
    if found_browser() is None:
        pytest.skip("no browser is installed: run `make browser`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found_browser(), args=list(FLAGS))
        visited = browser.new_page()
        visited.set_default_timeout(GUARD_MS)
        outside: list[str] = []
        visited.on("request", lambda asked: outside.append(asked.url) if not _is_inside(asked.url, site) else None)
        visited.goto(site)
        yield visited, outside
        browser.close()


def _is_inside(url: str, site: str) -> bool:
    return url.startswith((site, "data:", "blob:"))


def _found(page: Page, site: str, question: str) -> list[str]:
    """The pages that the search box shows for a question, the best first."""
    box, told = page.locator(".md-search__input"), page.locator(".md-search-result__meta")
    box.fill("")
    box.press("End")  # the box listens to keys
    told.filter(has_text="Type to start").wait_for()
    box.fill(question)
    box.press("End")
    told.filter(has_text="matching document").wait_for()
    first = "all => all.map(item => item.querySelector('.md-search-result__link').href)"
    links = page.locator(".md-search-result__item").evaluate_all(first)
    return [urlsplit(link).path.strip("/") for link in links]


def test_there_are_fifteen_questions() -> None:
    assert len(QUESTIONS) == 15
    assert len({question for question, _ in QUESTIONS}) == 15


def test_the_search_finds_what_newcomers_ask_for(page: tuple[Page, list[str]], site: str) -> None:
    visited, _ = page
    visited.locator(".md-search__input").click()
    missed = {}
    for question, wanted in QUESTIONS:
        found = _found(visited, site, question)[:3]
        if wanted not in found:
            missed[question] = (wanted, found)
    assert missed == {}


def test_no_page_asks_for_anything_outside(page: tuple[Page, list[str]], site: str) -> None:
    visited, outside = page
    for place in ("", "start/", "architecture/", "flows/", "ui/", "reference/http/", "reference/python-workflows/"):
        visited.goto(site + place, wait_until="networkidle")
    assert outside == []


def test_no_page_names_an_asset_outside(site: str) -> None:
    """Scripts, styles, pictures and frames are files of the site; links of readers may lead anywhere."""
    asset = re.compile(r"<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)")
    named = {
        f"{path.relative_to(SITE)}: {found}"
        for path in SITE.rglob("*.html")
        for found in asset.findall(path.read_text())
    }
    assert named == set()
