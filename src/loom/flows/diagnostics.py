"""Problems of a document: what is wrong, where, and what its author may have meant.

Loading collects all problems before it refuses a document, so that an author repairs them in one go. Each has a JSON
path into the author's own file; `loom.flows.source_map` turns it into a line and a column.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from typing_extensions import override

from loom.expressions import join_path

if TYPE_CHECKING:
    from collections.abc import Iterable


_HINTED = 100


def at(path: str, key: str | int) -> str:
    """Extend a JSON path by a key of an object or an index of an array."""
    return f"{path}[{key}]" if isinstance(key, int) else join_path(path, key)


class Problem(Struct, frozen=True):
    """An error in a document, or a warning to its author."""

    path: str
    """JSON path in the author's own file; empty: the document as a whole."""
    message: str
    hint: str = ""
    """Advice for the author; empty if none can be guessed."""
    severity: Literal["error", "warning"] = "error"
    spot: tuple[int, int] | None = None
    """Line and column of an error in a text that cannot be parsed, which has no paths; else None."""

    @override
    def __str__(self) -> str:
        text = f"{self.path or '(document)'}: {self.message}"
        return f"{text} ({self.hint})" if self.hint else text


class DefinitionError(Exception):
    """Raised for a definition that cannot be loaded. Its text lists all problems, one per line, with JSON paths."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    @override
    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class ProblemList:
    """Problems in the order in which they were found."""

    def __init__(self) -> None:
        # A value that is read twice, such as a field in both spellings, has its problems once.
        self._found: dict[Problem, None] = {}
        self.has_errors = False
        """True if the document cannot be loaded."""

    def near(self, name: str, known: Iterable[str]) -> str:
        """Suggest a known name as `suggestion` does. Only the first problems get one, because it costs time."""
        return suggestion(name, known) if len(self._found) < _HINTED else ""

    @property
    def found(self) -> list[Problem]:
        """All problems so far."""
        return list(self._found)

    def error(self, path: str, message: str, hint: str = "") -> None:
        """Add a problem that keeps the document from being loaded."""
        self._found[Problem(path, message, hint)] = None
        self.has_errors = True

    def warn(self, path: str, message: str, hint: str = "") -> None:
        """Add a problem that does not keep the document from being loaded."""
        self._found[Problem(path, message, hint, "warning")] = None


def suggestion(name: str, known: Iterable[str]) -> str:
    """Give a hint with the name that the author may have meant; empty if none is close. Case does not matter."""
    near = _closest(name, known)
    return f"did you mean '{near}'?" if near is not None else ""


_LOOKED_AT = 1_000


def _closest(name: str, known: Iterable[str]) -> str | None:
    """Find the known name closest to this one; None if none is close."""
    # In order: what is suggested becomes part of an error, and must not depend on the order of a map.
    by_lower = {candidate.lower(): candidate for candidate in sorted(known)[:_LOOKED_AT]}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Give a sentence with the closest known name, with a blank before it; empty if none is close."""
    found = _closest(name, known)
    return f" Did you mean '{found}'?" if found is not None else ""
