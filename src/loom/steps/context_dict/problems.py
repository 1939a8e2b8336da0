"""How a context dict that cannot be read or written is reported: with the path of the key. May import steps.errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.steps.errors import ContextSerdeError

if TYPE_CHECKING:
    from collections.abc import Iterable


def path_of(parts: Iterable[str | int]) -> str:
    """The way to a value, as in `workers.ask.queue[0].event`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def malformed(path: str, reason: object) -> ContextSerdeError:
    """The error for a dict that does not say what it should."""
    where = f"{path}: " if path else ""
    return ContextSerdeError(f"Context dict specified in an invalid format: {where}{reason}")


def unwritable(path: str, reason: object) -> ContextSerdeError:
    """The error for a run that a dict cannot hold."""
    return ContextSerdeError(f"The context cannot be written as a dict: {path}: {reason}")
