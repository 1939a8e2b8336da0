"""Small pieces of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Make a table; a cell is one line."""
    lines = [_row(head), _row(["---"] * len(head)), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def code(text: str) -> str:
    """Show a text as code."""
    return f"`{text}`" if text else ""


def heading(level: int, text: str, anchor: str) -> str:
    """Make a heading with an anchor of its own, which does not follow its words."""
    return f"{'#' * level} {text} {{ #{anchor} }}\n"


def slug(text: str) -> str:
    """Make an anchor of a text as GitHub and the site do it."""
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def sentence(text: str) -> str:
    """Join the lines of a docstring's paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))


def anchor(text: str, separator: str) -> str:
    """Make the anchor of a heading, for mkdocs."""
    assert separator == "-"
    return slug(text)
