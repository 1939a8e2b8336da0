"""What all stores agree on about entries: their names, and what a put may expect. Pure."""

from __future__ import annotations

from typing import Final

MAX_NAME: Final = 200

ABSENT: Final = 0
"""What a put expects that shall only add an entry. Versions are greater."""


def check_names(kind: str, key: str) -> None:
    """Raise a `ValueError` that names what no store keeps: a kind or a key of an entry."""
    for what, name in (("The kind", kind), ("The key", key)):
        if not 0 < len(name) <= MAX_NAME:
            raise ValueError(f"{what} of an entry must have 1 to {MAX_NAME} characters, not {len(name)}.")
        if "\0" in name or any("\ud800" <= each <= "\udfff" for each in name):
            raise ValueError(f"{what} {name!r} of an entry has characters that cannot be stored.")
