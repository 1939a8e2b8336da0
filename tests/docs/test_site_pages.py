"""What the maker of the site writes: links that hold there, generated parts, a navigation that follows index pages."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from loomsite import pages as maker
from loomsite.classes import fields
from loomsite.markdown import slug, table
from loomsite.navigation import with_folders

ROOT = Path(__file__).resolve().parents[2]
PAGES = maker.pages()
SETTINGS = (ROOT / "docs" / "site" / "mkdocs.yml").read_text("utf-8")


def _places(settings: str) -> list[str]:
    return re.findall(r"([\w./-]+\.md)$", settings.partition("\nnav:\n")[2].partition("\nplugins:")[0], re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    places = _places(with_folders(SETTINGS, PAGES))
    assert sorted(places) == sorted(PAGES)


def test_the_sections_are_those_that_readers_need() -> None:
    sections = re.findall(r"^  - ([\w-]+):", SETTINGS.partition("\nnav:\n")[2].partition("\nplugins:")[0], re.MULTILINE)
    assert sections[:5] == ["Start", "Tutorials", "How-to", "Reference", "Understanding"]


def test_a_folder_is_listed_in_the_words_and_order_of_its_index() -> None:
    pages = {
        "a/README.md": "[Two](two.md) [One `x`](one.md) [Two again](two.md) [Gone](gone.md)",
        "a/one.md": "",
        "a/two.md": "",
    }
    nav = with_folders("nav:\n  - A: a/\n  - a/\nplugins:\n", pages)
    assert nav.splitlines()[1:5] == [
        "  - A:",
        "      - a/README.md",
        '      - "Two": a/two.md',
        '      - "One x": a/one.md',
    ]
    assert nav.splitlines()[5:8] == ["  - a/README.md", '  - "Two": a/two.md', '  - "One x": a/one.md']


def test_nothing_that_is_generated_is_missing() -> None:
    asked = re.compile(r"^<!-- generated: .* -->$", re.MULTILINE)
    sources = [page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md")]
    assert sum(len(asked.findall(text)) for text in sources) > 20
    assert [place for place, text in PAGES.items() if asked.search(text)] == []


def test_links_out_of_the_docs_lead_to_pages_of_the_site() -> None:
    assert "](examples/durable.py.md)" in PAGES["durable-runs.md"]
    assert "](../architecture.md)" in PAGES["project/contributing.md"]
    assert "# Changelog" in PAGES["project/changes.md"] or PAGES["project/changes.md"].count("\n") > 10
    assert "class Article(Workflow):" in PAGES["examples/hello.py.md"]


def test_a_link_to_what_is_not_on_the_site_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("[The reducer](reducer.py)\n")
    (tmp_path / "reducer.py").write_text("")
    monkeypatch.setattr(maker, "ROOT", tmp_path)
    monkeypatch.setattr(maker, "DOCS", tmp_path / "docs")
    with pytest.raises(ValueError, match=r"links to reducer\.py, which is not on the site"):
        maker._page(page, "page.md")


def test_links_in_code_are_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nx[0](gone.py)\n```\n")
    assert maker._page(page, "page.md") == page.read_text()


def test_links_to_other_hosts_have_a_good_form() -> None:
    """There is no network where tests run: what is checked is that an address can be one."""
    fenced = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    found = {
        address
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for address in re.findall(r"\]\((\w+:[^)\s]*)\)", fenced.sub("", page.read_text("utf-8")))
    }
    assert len(found) >= 3
    parts = {address: urlsplit(address) for address in found}
    assert [address for address, part in parts.items() if part.scheme != "https" or "." not in part.netloc] == []


def test_a_table_keeps_its_cells() -> None:
    assert table(("a", "b"), [("x | y", "two\nlines")]) == "| a | b |\n| --- | --- |\n| x \\| y | two lines |\n"


def test_anchors_are_those_of_a_forge() -> None:
    assert slug("Once, though asked twice") == "once-though-asked-twice"
    assert slug("`GET /v1/runs`") == "get-v1runs"


def test_fields_are_read_with_their_texts() -> None:
    found = {field.name: field for field in fields("loom.steps.events", "UnhandledEvent")}
    assert found["step_name"] == ("step_name", "str | None", "None", "The step it was addressed to, if any.")
    assert found["idle"].default is None
