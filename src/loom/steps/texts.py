"""Texts as they can be stored. Imports nothing, for whoever reads stored runs needs it."""

from __future__ import annotations


def well_formed(text: str) -> str:
    """The text with U+FFFD in place of lone surrogates, which no encoding has a form for."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def message_of(error: BaseException) -> str:
    """The text of an exception. If its own code fails when it is asked, the text says so: the failure must be told."""
    try:
        text = str(error)
        return text if type(text) is str else str.__str__(text)
    except BaseException as broken:  # noqa: BLE001 - an author's __str__ may raise anything, and the failure is there
        return f"(its text cannot be shown: {type(broken).__name__})"


def described(error: BaseException) -> str:
    """Name an exception and tell its text, also of one whose own code fails when it is asked."""
    name, text = type(error).__name__, message_of(error)
    return f"{name}: {text}" if text else name
