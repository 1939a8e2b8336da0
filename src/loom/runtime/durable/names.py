"""Names that callers give to runs, events and tags: what a store can keep. May import the standard library."""

from __future__ import annotations

SCHEDULES = "loom.schedule"
"""The name that the runs of schedules are stored with."""

MAX_NAME = 500
"""Longer names would be content, not names; every store has them in its indexes."""


def can_be_kept(name: str) -> bool:
    """Whether a store could have something under this name; if not, it need not be asked."""
    return 0 < len(name) <= MAX_NAME and "\0" not in name and not any("\ud800" <= each <= "\udfff" for each in name)


def check_name(what: str, name: object) -> None:
    """Raise a `ValueError` that names the thing, if no store could keep the name."""
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a string, not {type(name).__name__}.")
    if not name or len(name) > MAX_NAME:
        raise ValueError(f"{what} must have 1 to {MAX_NAME} characters, not {len(name)}.")
    if not can_be_kept(name):
        raise ValueError(f"{what} {name!r} has characters that cannot be stored.")


def check_tags(tags: dict[str, str]) -> None:
    """The same for the keys and values of tags; a value may be empty."""
    for key, value in tags.items():
        check_name("The key of a tag", key)
        if value != "":
            check_name(f"The tag {key!r}", value)
