"""What tags and event types are called in search attributes: words that every kind of visibility store can look for.

A cluster's visibility store may split, cut or refuse what is long or has quotes in it. Such texts are searched by their
digest. What is found by a keyword is compared with the text itself afterwards. May import the standard library.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MANY = "loom-many"
"""Stands for all the words of a run that has more of them than an attribute can hold."""
PRESENT = "loom-run"
"""The first tag of every run: it tells those that have search attributes from those that have none."""

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,99}")
_MOST_BYTES = 1800


def keyword(text: str) -> str:
    """The word for a text: itself, if it can be searched for."""
    if _PLAIN.fullmatch(text) and text not in (MANY, PRESENT):
        return text
    return f"x{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def keywords(texts: Iterable[str]) -> list[str]:
    """The words for texts; only `MANY` if there are too many."""
    words = list(dict.fromkeys(keyword(text) for text in texts))
    return words if sum(len(word) + 3 for word in words) <= _MOST_BYTES else [MANY]


def tag_text(key: str, value: str) -> str:
    """A tag as one text."""
    return f"{key}={value}"


def tag_keywords(tags: Mapping[str, str]) -> list[str]:
    """The words for the tags of a run."""
    return [PRESENT, *keywords(tag_text(key, value) for key, value in sorted(tags.items()))]
