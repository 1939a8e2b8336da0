"""Tables for people, as lines of text. Made here, for what could draw them takes longer to load than all the rest.

May import the standard library. Cells are clean already. A cell that is too long for the terminal is folded, never cut.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GAP = "   "
_NARROWEST = 4
"""So many places a column keeps, if it needs as many."""


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
