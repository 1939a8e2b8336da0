"""Tutorials, how-to pages and comparisons: each can be found, and has the parts that a reader looks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDERS = ("tutorials", "howto", "compare")
COMPARED = [page for page in sorted((DOCS / "compare").glob("*.md")) if page.name != "README.md"]
ANSWERS = [page for page in sorted((DOCS / "howto").glob("*.md")) if page.name != "README.md"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_first_page_of_a_folder_names_all_others(folder: str) -> None:
    index = (DOCS / folder / "README.md").read_text("utf-8")
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert linked == {page.name for page in (DOCS / folder).glob("*.md")} - {"README.md"}


@pytest.mark.parametrize("page", ANSWERS, ids=lambda page: page.stem)
def test_a_how_to_page_asks_one_question_and_shows_code_that_runs(page: Path) -> None:
    text = page.read_text("utf-8")
    [title] = re.findall(r"^# (.+)$", text, re.MULTILINE)[:1]
    assert title.endswith("?")
    assert re.search(r"(?<!<!-- no-run -->\n)^```(python|sh)\n", text, re.MULTILINE)


@pytest.mark.parametrize("page", COMPARED, ids=lambda page: page.stem)
def test_a_comparison_has_both_sides(page: Path) -> None:
    text = page.read_text("utf-8")
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert sections[:2] == ["Concept by concept", "The same program"]
    assert re.fullmatch(r"What .+ (has|have) and Loom lacks", sections[2])
    assert sections[3:] == ["How to move"]
    opening = text.partition("## Concept by concept")[0]
    assert re.search(r"\d+\.\d+\.\d+|20\d\d-\d\d-\d\d", opening), "which version is compared?"
    lacks = text.partition(f"## {sections[2]}\n")[2].partition("\n## ")[0]
    assert lacks.count("\n- **") + lacks.startswith("\n- **") >= 4
