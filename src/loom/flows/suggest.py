"""Names that somebody may have meant. Pure."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LOOKED_AT = 1_000


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like this one, if one is."""
    # In order: what is suggested becomes part of an error, and must not depend on the order of a map.
    by_lower = {candidate.lower(): candidate for candidate in sorted(known)[:_LOOKED_AT]}
    found = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names the closest known name, with a blank before it; empty if nothing is close."""
    found = closest(name, known)
    return f" Did you mean '{found}'?" if found is not None else ""
