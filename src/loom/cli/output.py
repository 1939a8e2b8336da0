"""Print for people and for programs: lines, tables and times in words, JSON as ASCII.

What comes from runs is not trusted: control characters in it are escaped before they reach a terminal. Tables are made
here, because a library that draws them takes longer to load than all other code of a command.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import unicodedata
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from loom.api.times import span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, RenderableType


def print_json(value: Any) -> None:
    """Print one JSON document. It is ASCII, so that no terminal or pipe can spoil it."""
    click.echo(json.dumps(value, indent=2, default=plain))


def print_json_line(value: Any) -> None:
    """Print one JSON document on one line, for programs that read line by line."""
    click.echo(json.dumps(value, default=plain))


def plain(value: Any) -> Any:
    """Convert a type of the API to plain data, as JSON has it."""
    from msgspec import to_builtins  # help texts are printed without it

    return to_builtins(value)


def print_line(text: str) -> None:
    """A line for people."""
    click.echo(clean(text))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """A table for people. Long cells are folded, never cut."""
    page = TextPage()
    page.table(columns, rows, title)
    page.print()


class _Table(NamedTuple):
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str | None


class TextPage:
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
    """Make the console that rich draws on. It is made when needed, because embedding programs replace stdout."""
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


def ago(moment: datetime | float | None, now: float) -> str:
    """Write a time for people, seen from now: `3m ago`, or `in 5s`. Nothing if there is none."""
    if moment is None:
        return ""
    then = moment.timestamp() if isinstance(moment, datetime) else moment
    return f"{span(now - then)} ago" if then <= now else f"in {span(then - now)}"


_GAP = "   "
_NARROWEST = 4
"""Places that a column keeps at least, if it needs them."""


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None, rule: str = "─"
) -> tuple[list[str], list[str]]:
    """The lines of a table's head, and those below: a rule and the rows. They take as many places as there are."""
    widths = [max(map(_widest, column)) for column in zip(columns, *rows, strict=True)]
    if width is not None:
        _shrink(widths, width - len(_GAP) * (len(widths) - 1))
    across = rule * (sum(widths) + len(_GAP) * (len(widths) - 1))
    return list(_folded(columns, widths)), [across, *(line for row in rows for line in _folded(row, widths))]


def _shrink(widths: list[int], room: int) -> None:
    """Take from the widest columns what there is no room for."""
    while sum(widths) > room and max(widths) > _NARROWEST:
        widest = max(widths)
        wide = [position for position, width in enumerate(widths) if width == widest]
        next_widest = max((width for width in widths if width < widest), default=0)
        share = -(-(sum(widths) - room) // len(wide))
        for position in wide:
            widths[position] = max(widest - share, next_widest, _NARROWEST)


def _folded(row: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """A row as one line, or as several if a cell needs them."""
    cells = [list(_pieces(cell, width)) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, cells))):
        pieces = [cell[number] if number < len(cell) else "" for cell in cells]
        yield _GAP.join(piece + " " * (width - _places(piece)) for piece, width in zip(pieces, widths, strict=True))


def _pieces(text: str, width: int) -> Iterator[str]:
    """A text in pieces that fit, broken between words if one ends in the second half of a piece, and at line ends."""
    first, line_end, rest = text.partition("\n")
    if line_end:
        yield from _pieces(first, width)
        yield from _pieces(rest, width)
        return
    while _places(text) > width:
        fits = _fitting(text, width)
        space = text.rfind(" ", 0, fits + 1)
        end = space if space > fits // 2 else fits
        yield text[:end].rstrip(" ")
        text = text[end:].lstrip(" ")
    yield text


def _fitting(text: str, width: int) -> int:
    """How many characters fit; one does at least."""
    taken = 0
    for position, sign in enumerate(text):
        taken += _places(sign)
        if taken > width:
            return max(position, 1)
    return len(text)


def _widest(text: str) -> int:
    return max(map(_places, text.split("\n")))


def _places(text: str) -> int:
    """How many places a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(_sign_places(sign) for sign in text)


def _sign_places(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1


_MODE = 0o600


def write_private(path: str, data: bytes) -> None:
    """Write a file for its owner alone, also if it was there and others could read it. `OSError` if that fails."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0), _MODE)
    with os.fdopen(descriptor, "wb") as file:
        if hasattr(os, "fchmod") and stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, _MODE)
        file.write(data)
