"""What is wrong with a document, and where: problems, their places and hints. Pure; may import loom.expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from loom.expressions import join_path
from loom.flows.suggest import closest

if TYPE_CHECKING:
    from collections.abc import Iterable

_HINTED = 100


def at(path: str, key: str | int) -> str:
    """The JSON path of what stands under a key, or at a place, of what stands at `path`."""
    return f"{path}[{key}]" if isinstance(key, int) else join_path(path, key)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a document, or that its author may want to know."""

    path: str
    """Where, in the author's own file; empty: the document as a whole."""
    message: str
    hint: str = ""
    """What to do about it, if that can be guessed."""
    severity: Literal["error", "warning"] = "error"
    spot: tuple[int, int] | None = None
    """Line and column, of what has no path: a text that cannot be read."""

    @override
    def __str__(self) -> str:
        text = f"{self.path or '(document)'}: {self.message}"
        return f"{text} ({self.hint})" if self.hint else text


class DefinitionError(Exception):
    """A definition cannot be loaded. Its message lists all problems, one per line, each with its JSON path."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    @override
    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class Problems:
    """Collects problems, in the order in which they are found."""

    def __init__(self) -> None:
        # A value that is read twice, such as a field in both spellings, has its problems once.
        self._found: dict[Problem, None] = {}
        self.has_errors = False
        """Whether anything keeps the document from being loaded."""

    def near(self, name: str, known: Iterable[str]) -> str:
        """A hint as `suggestion` gives it, but not for all of a great many problems: it costs time."""
        return suggestion(name, known) if len(self._found) < _HINTED else ""

    @property
    def found(self) -> list[Problem]:
        """All of them."""
        return list(self._found)

    def error(self, path: str, message: str, hint: str = "") -> None:
        """The document cannot be loaded because of this."""
        self._found[Problem(path, message, hint)] = None
        self.has_errors = True

    def warn(self, path: str, message: str, hint: str = "") -> None:
        """This is odd, but the document can be loaded."""
        self._found[Problem(path, message, hint, "warning")] = None


def suggestion(name: str, known: Iterable[str]) -> str:
    """A hint that names what the author may have meant, without regard to case; empty if nothing is near."""
    near = closest(name, known)
    return f"did you mean '{near}'?" if near is not None else ""
