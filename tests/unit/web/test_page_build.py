"""The built page belongs to its sources: found without Node, since installing Loom never needs it."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "ui"
DIST = ROOT / "src" / "loom" / "web" / "dist"
FIRST_LOAD = 150 * 1024
"""Bytes after gzip that a browser loads before the page can be used."""


def digest_of_sources() -> str:
    """Compute the digest that ui/scripts/finish.mjs records."""
    paths = sorted(
        (path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*") if path.is_file()), key=str.encode
    )
    lines = [
        f"{hashlib.sha256((SOURCES / path).read_bytes()).hexdigest()}  {path}\n"
        for path in paths
        if "node_modules" not in path.split("/")
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def test_the_build_is_that_of_the_sources() -> None:
    assert (DIST / "sources.sha256").read_text().strip() == digest_of_sources(), "The page is stale: run `make ui`."


def test_what_is_packed_is_what_is_beside_it() -> None:
    packed = sorted(DIST.rglob("*.gz"))
    assert packed
    for path in packed:
        assert gzip.decompress(path.read_bytes()) == path.with_suffix("").read_bytes(), path


def test_the_first_load_is_small() -> None:
    page = DIST / "index.html"
    # Chunks that the first one imports at once are named as well, so that they are loaded beside it.
    names = ["index.html", *re.findall(r'(?:src|href)="\./([^"]*)"', page.read_text())]
    assert sum((DIST / f"{name}.gz").stat().st_size for name in names) <= FIRST_LOAD


def test_the_page_needs_no_other_host_and_no_inline_code() -> None:
    page = (DIST / "index.html").read_text()
    links = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert links
    for link in links:
        assert link.startswith("./assets/"), link
        assert (DIST / link).is_file(), link
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=", page)
    scripts = re.findall(r"<script([^>]*)>([^<]*)</script>", page)
    assert [text for attributes, text in scripts if "application/json" not in attributes] == [""]


def test_the_script_evaluates_no_text() -> None:
    for script in (DIST / "assets").glob("*.js"):
        assert not re.search(r"\beval\(|new Function\(|\bFunction\(", script.read_text()), script


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text())
    assert lock["packages"]
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
