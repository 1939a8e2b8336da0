"""The pictures of the docs are what the code's tables give, and nothing in them overlaps."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"

sys.path.insert(0, str(ROOT / "tools"))
import pictures  # noqa: E402
from drawing import Drawing, Point, Rect, Text  # noqa: E402

NAMES = sorted(pictures.PICTURES)


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_is_what_the_code_gives(name: str) -> None:
    assert (IMAGES / f"{name}.svg").read_text("utf-8") == pictures.PICTURES[name]().svg(), "run `make pictures`"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_overlaps(name: str) -> None:
    assert list(pictures.PICTURES[name]().problems()) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_file_needs_nothing_from_outside(name: str) -> None:
    text = (IMAGES / f"{name}.svg").read_text("utf-8")
    assert len(text) < 30_000
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"<script|<image|href=|@import|url\((?!#)", text)
    root = ElementTree.fromstring(text)
    assert [root.findtext(f"{{http://www.w3.org/2000/svg}}{tag}") for tag in ("title", "desc")] != [None, None]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_it(name: str) -> None:
    pages = [path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md")]
    assert any(f"images/{name}.svg" in page for page in pages)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("work-item", [(row.before, row.after, row.event) for row in pictures.invariants.TABLE]),
        ("run-life", pictures.run_rows()),
        ("residence", pictures.residence_rows()),
    ],
)
def test_every_change_of_the_table_is_in_the_picture(name: str, rows: list[tuple[str, str, str]]) -> None:
    words = " ".join(ElementTree.parse(IMAGES / f"{name}.svg").getroot().itertext()).split()
    text = " ".join(words)
    assert len(rows) > 10
    assert [fact for _, _, fact in rows if fact not in text] == []


def test_an_arrow_that_the_table_lost_is_told() -> None:
    with pytest.raises(pictures.PictureError, match="no change for these arrows"):
        pictures.Changes([("a", "b", "goes")], {("b", "a")})


def test_a_change_without_an_arrow_stands_in_the_box_that_it_leaves() -> None:
    changes = pictures.Changes([("a", "b", "goes"), ("a", "b", "runs"), ("a", "c", "ends")], {("a", "b")})
    assert changes.fact("a", "b") == "goes / runs"
    assert [text.content for text in changes.others("a")] == ["→ c: ends"]


def test_what_is_drawn_badly_is_told() -> None:
    drawing = Drawing("t", "d", 300, 200)
    drawing.box(Rect(10, 10, 100, 20), [Text("one"), Text("a second text that needs more room")])
    drawing.box(Rect(60, 20, 100, 40), [Text("two")])
    drawing.label(Text("a label"), Point(280, 100), 100)
    drawing.arrow(Point(5, 40), Point(200, 40))
    told = " ".join(drawing.problems())
    for problem in ("too low", "'one' overlaps 'two'", "leaves the picture", "crosses the box 'two'", "ends nowhere"):
        assert problem in told


def test_the_check_names_no_stale_picture() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "pictures.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
