"""Statements that take many rows at once. May import the connection beside it.

`sqlite3` lets other threads go on around every statement, and with a busy event loop each return costs up to a switch
interval of 5 ms. So a group of commits is a handful of statements, however many runs it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.store.sqlite.connection import Connection

MOST = 256
"""Rows per statement: the widest has 16 columns, far below SQLite's limit of parameters."""


class Many:
    """A statement over `(VALUES {rows})`, whose columns are column1, column2, ...

    The number of rows is filled up to a power of two with rows of NULL, so that few texts are prepared and kept. The
    statement must do nothing for a row of NULL. `single` does the same for one row, more cheaply.
    """

    def __init__(self, text: str, width: int, *, single: str | None = None) -> None:
        self._text = text
        self._width = width
        self._row = "(" + ", ".join("?" * width) + ")"
        self._texts: dict[int, str] = {} if single is None else {1: single}

    def execute(self, connection: Connection, rows: Sequence[Sequence[Any]]) -> int:
        """Run it for all rows; how many rows of the table it has changed."""
        changed = 0
        for first in range(0, len(rows), MOST):
            block = rows[first : first + MOST]
            size = 1 << (len(block) - 1).bit_length()
            parameters = [value for row in block for value in row]
            parameters.extend([None] * (self._width * (size - len(block))))
            changed += connection.execute(self._sized(size), parameters)
        return changed

    def _sized(self, size: int) -> str:
        text = self._texts.get(size)
        if text is None:
            text = self._texts[size] = self._text.replace("{rows}", ", ".join([self._row] * size))
        return text
