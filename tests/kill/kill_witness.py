"""The side file: what was acknowledged, and what bodies did, written by the processes that are killed.

Every line is one JSON object, appended with one write, so that lines of several processes do not mix.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path
from typing import Any


class Witness:
    """Writes lines."""

    def __init__(self) -> None:
        self._file: int | None = None

    def open(self, path: Path) -> None:
        """Write to this file from now on."""
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close(self) -> None:
        """Write nothing any more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def note(self, what: str, **values: Any) -> None:
        """Something has happened. Without a file nobody wants to know."""
        if self._file is not None:
            os.write(self._file, json.dumps({"what": what, **values}).encode() + b"\n")

    def acknowledged(self, what: str, **values: Any) -> None:
        """A call has returned: from now on its fact must not be lost, and this line is on the disk."""
        self.note(what, **values)
        if self._file is not None:
            os.fsync(self._file)


def words_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """All lines by what they are about, in order. A line that was cut off by a kill is nobody's word."""
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            entry = json.loads(line)
            lines[entry.pop("what")].append(entry)
    return lines
