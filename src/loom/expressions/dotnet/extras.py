"""The error for a function whose library is not installed. Pure; may import `errors` only."""

from __future__ import annotations

from loom.expressions.errors import FunctionError


def not_installed(what: str, extra: str) -> FunctionError:
    """The error that says which extra to install. The caller raises it."""
    return FunctionError(f"{what} needs a library that is not installed; install loom-workflows[{extra}]")
