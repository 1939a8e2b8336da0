"""The words that pages may use: the list, and what is not on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from loomsite.language import MOST_WORDS, is_known, sentences, words

ROOT = Path(__file__).resolve().parents[3]
LIST = ROOT / "docs" / "site" / "words.txt"


def checked_pages() -> list[Path]:
    """List the pages that are read by people: those of the site, and those at the root."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def known_words() -> frozenset[str]:
    """Read the list; a line that begins with # is a remark."""
    lines = LIST.read_text("utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def unknown_words(page: Path, known: frozenset[str]) -> Iterator[str]:
    """Find the words of a page that are neither on the list nor a regular form of one that is."""
    for word in words(page.read_text("utf-8")):
        if not is_known(word.text, known):
            yield f"{page.relative_to(ROOT)}:{word.line}: {word.text}"


def long_sentences() -> Iterator[str]:
    """Find the sentences that a reader may have to read twice. Decisions are left as they were written."""
    for page in checked_pages():
        if page.parent.name == "adr":
            continue
        for text, line in sentences(page.read_text("utf-8")):
            count = len(text.split())
            if count > MOST_WORDS:
                yield f"{page.relative_to(ROOT)}:{line}: {count} words: {' '.join(text.split())[:90]}"
