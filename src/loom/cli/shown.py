"""How things are printed: tables and words for people, JSON for programs. May import click, rich inside functions.

What comes from runs is not trusted: control characters in it are escaped before they reach a terminal.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from loom.api.lengths import span
from loom.cli.tables import table_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, RenderableType


def print_json(value: Any) -> None:
    """One JSON document. It is ASCII, so that no terminal or pipe can spoil it."""
    click.echo(json.dumps(value, indent=2))


def print_json_line(value: Any) -> None:
    """One JSON document on one line, for those who read line by line."""
    click.echo(json.dumps(value))


def print_line(text: str) -> None:
    """A line for people."""
    click.echo(clean(text))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """A table for people. Long cells are folded, never cut."""
    page = Page()
    page.table(columns, rows, title)
    page.print()


class _Table(NamedTuple):
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None


class Page:
    """Lines and tables for people, to be printed once or drawn again and again."""

    def __init__(self) -> None:
        self._parts: list[str | _Table] = []

    def line(self, text: str) -> None:
        """Add a line."""
        self._parts.append(clean(text))

    def lines(self, text: str, first: str = "", margin: str = "") -> None:
        """Add a text of several lines, each as a line: the first one after a label, the others below it."""
        for number, line in enumerate(text.splitlines() or [""]):
            self.line(f"{margin if number else first}{line}")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
        """Add a table. Long cells are folded, never cut."""
        self._parts.append(_Table(columns, [[clean_lines(cell) for cell in row] for row in rows], title))

    def print(self) -> None:
        """Print everything."""
        from shutil import get_terminal_size

        # What is not a terminal takes lines of any length, and click leaves out there what makes them bold.
        knows_bold = os.environ.get("TERM") != "dumb"
        for line, is_head in self._lines(get_terminal_size().columns if sys.stdout.isatty() else None):
            click.echo(click.style(line, bold=True) if is_head and knows_bold else line)

    def drawn(self, width: int) -> RenderableType:
        """Everything as one thing that rich can draw."""
        from rich.text import Text

        return Text("\n").join(Text(line, style="bold" if is_head else "") for line, is_head in self._lines(width))

    def _lines(self, width: int | None) -> Iterator[tuple[str, bool]]:
        """The lines, and whether each is a title or the head of a table."""
        rule = "─" if (sys.stdout.encoding or "utf-8").lower().startswith("utf") else "-"
        for part in self._parts:
            if isinstance(part, str):
                yield part, False
                continue
            if part.title is not None:
                yield "", False
                yield part.title, True
            head, below = table_lines(part.columns, part.rows, width, rule)
            yield from ((line, True) for line in head)
            yield from ((line, False) for line in below)


def console() -> Console:
    """Where things are drawn. Asked when it is needed: whoever tests or embeds the command may have replaced it."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False)


def clean(text: str) -> str:
    """Text without anything that could steer a terminal, or that has no UTF-8 form."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def clean_lines(text: str) -> str:
    """Clean a text, but keep its line ends: each line is cleaned by itself."""
    return text if text.isprintable() else "\n".join(clean(line) for line in text.splitlines())


def clock(moment: float) -> str:
    """A time of the engine for people, in the time of their place."""
    return datetime.fromtimestamp(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def seconds_of(moment: str) -> float:
    """A time in ISO 8601 as seconds since the epoch."""
    return datetime.fromisoformat(moment).timestamp()


def ago(moment: str | float | None, now: float) -> str:
    """A time for people, seen from now: `3m ago`, or `in 5s`."""
    if moment is None:
        return ""
    then = seconds_of(moment) if isinstance(moment, str) else moment
    return f"{span(now - then)} ago" if then <= now else f"in {span(then - now)}"
