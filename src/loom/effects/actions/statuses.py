"""The statuses of HTTP in the words of flows. May import the standard library only."""

from __future__ import annotations

from http import HTTPStatus


def code_of(status: int) -> str:
    """The reason of a status as one word: `OK`, `NotFound`; the number itself where it has none."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        return str(status)
    return "".join(character for character in phrase if character.isalnum())


def is_failure(status: int) -> bool:
    """Whether a status is no success: everything but 2xx."""
    return not 200 <= status < 300  # noqa: PLR2004 - the range of successes
