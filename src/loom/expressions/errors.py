"""What can go wrong with an expression. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable


class FunctionError(Exception):
    """A function refuses its arguments, or a name means nothing. Raised by functions and environments.

    The compiled call knows where in the text that was, and makes an `ExpressionError` of it.
    """


class SettingNotNamed(FunctionError):
    """Raised for a setting that did not come with the start, because the definition does not name it.

    What was asked for is not repeated: a name that is computed may be made of a secret.
    """

    def __init__(self, names: Iterable[str]) -> None:
        known = ", ".join(names) or "none"
        super().__init__(
            "an app setting is asked for by a name that the definition does not have. Settings come with the start by "
            f"the names that stand in expressions, here {known}: write the name into an expression"
        )


class ExpressionError(Exception):
    """An expression does not parse, or cannot be evaluated: what is wrong, and where in the text."""

    def __init__(
        self, message: str, text: str = "", position: int | None = None, function: str = "", path: str = ""
    ) -> None:
        self.message = message
        """What is wrong, without the place."""
        self.text = text
        """The whole template string."""
        self.position = position
        """The index in `text` at which the part in question begins."""
        self.function = function
        """The function that refused its arguments, as the author wrote it."""
        self.path = path
        """Where the template string is in the JSON value around it, like `headers['X']`, if that is known."""
        super().__init__(message, text, position, function)

    @override
    def __str__(self) -> str:
        places = []
        if self.position is not None:
            places.append(f"at position {self.position} of {_shortened(self.text)!r}")
        if self.path:
            places.append(f"in {self.path}")
        return f"{self.message} ({' '.join(places)})" if places else self.message


_SHOWN = 120


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def not_installed(what: str, extra: str) -> FunctionError:
    """The error that says which extra to install. The caller raises it."""
    return FunctionError(f"{what} needs a library that is not installed; install loom-workflows[{extra}]")
