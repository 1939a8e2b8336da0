"""Cursors of pages: opaque to callers, and taken back only in the form that they were given in.

May import msgspec and the server's problems.
"""

from __future__ import annotations

import base64
from typing import Any, TypeVar

import msgspec

from loom.server.problems import ApiProblem, invalid

T = TypeVar("T")


def write_cursor(*parts: Any) -> str:
    """A cursor that holds these values."""
    return base64.urlsafe_b64encode(msgspec.json.encode(parts)).decode().rstrip("=")


def read_cursor(cursor: str, kind: type[T]) -> T:
    """The values of a cursor, as a tuple of this type."""
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=kind)
    except ValueError as error:
        raise not_given() from error


def not_given() -> ApiProblem:
    """The problem with a cursor that nobody here has written."""
    return invalid("The cursor is not one that this server has given for this list.")
