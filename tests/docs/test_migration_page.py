"""The page for those who come from llama-index-workflows counts its differences, and gives each a reason."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migrating-from-llama-index-workflows.md"


def _rows() -> list[list[str]]:
    section = PAGE.read_text("utf-8").partition("## What is different\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_stated_count_is_that_of_the_rows() -> None:
    rows = _rows()
    [stated] = re.findall(r"\*\*(\d+) differences\*\*", PAGE.read_text("utf-8"))
    assert [row[0] for row in rows] == [str(number) for number in range(1, int(stated) + 1)]


def test_each_difference_has_both_sides_and_a_reason() -> None:
    for row in _rows():
        assert len(row) == 4, row
        assert all(row), row
    originals = [row[1] for row in _rows()]
    assert len(set(originals)) == len(originals)
