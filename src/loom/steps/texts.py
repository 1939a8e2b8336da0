"""Texts as they can be stored. Imports nothing, for whoever reads stored runs needs it."""

from __future__ import annotations


def well_formed(text: str) -> str:
    """The text with U+FFFD in place of lone surrogates, which no encoding has a form for."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
