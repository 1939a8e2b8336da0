"""Removes keys and credentials from texts that leave the process: log lines and tracebacks.

The patterns know what a secret looks like beside its name, not what it is. A secret that a program writes into a text
without its name cannot be found here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MASK = "***"
_OVERHANG = 256
"""Characters beyond a cut that are looked at, for a credential that begins before it."""

_NAME = r"\b[\w-]{0,40}(?:password|passwd|pwd|passphrase|secret|token(?!s)|(?:api|private|access)[_-]?key)[\w-]{0,40}"


def _with_mask(found: re.Match[str]) -> str:
    quote = found[2] or found[3]
    return f"{found[1]}{quote}{MASK}{quote}"


class _Mask(NamedTuple):
    """One kind of secret: how to find it in a text, and what to write in its place."""

    hints: tuple[str, ...]
    """Every match holds one of these texts, in some case. To look for them costs a hundredth of the pattern."""
    pattern: re.Pattern[str]
    instead: str | Callable[[re.Match[str]], str]


_NAMES = ("passw", "passphrase", "pwd", "secret", "token", "key")
"""What `_NAME` cannot match without."""


@cache
def masks() -> tuple[_Mask, ...]:
    """Return the masks in the order that they are applied in.

    They are compiled when a text is first masked: that takes 2 ms, and most processes never mask one.
    """
    any_case = re.IGNORECASE
    return (
        _Mask(("loom_",), re.compile(r"\b(loom_[0-9a-f]{12}_)[A-Za-z0-9_-]{43}"), rf"\1{MASK}"),
        _Mask(
            ("?", "&"),
            re.compile(r"([?&](?:sig|signature|code|key|api_?key|token|access_token)=)[^&\s'\"]+", any_case),
            rf"\1{MASK}",
        ),
        # A header to the end of its line or quote: a value may have several words.
        _Mask(
            ("authorization", "x-api-key", "cookie"),
            re.compile(
                r"\b((?:proxy-)?authorization|x-api-key|set-cookie|cookie)"
                r"(['\"]?\s*[:=]\s*(?:b?['\"])?|['\"]\s*,\s*b?['\"])[^\n'\"]+",
                any_case,
            ),
            rf"\1\2{MASK}",
        ),
        # The password in an address, such as `postgresql://ada:***@host`.
        _Mask(
            ("://",),
            re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@'\"]{0,100}:)[^\s/@'\"]+(?=@)", any_case),
            rf"\1{MASK}",
        ),
        # A value in quotes beside a name that says what it is, as in a source line: `password="***"`.
        _Mask(
            _NAMES,
            re.compile(
                rf"({_NAME}['\"]?(?:\s{{0,3}}:\s{{0,3}}\w{{1,20}}(?=\s{{0,3}}=))?\s{{0,3}}[:=]=?\s{{0,3}})[rbfu]{{0,2}}"
                r"(?:(\"\"\"|''')(?:\\.|(?!\2).)*(?:\2|\Z)|(['\"])(?:\\.|(?!\3)[^\n])*(?:\3|(?=\n)|\Z))",
                any_case | re.DOTALL,
            ),
            _with_mask,
        ),
        # The same without quotes, as in the parameters of a connection: `host=db password=***`.
        _Mask(
            _NAMES,
            re.compile(
                rf"({_NAME}['\"]?\s{{0,3}}[:=]\s{{0,3}})(?!{re.escape(MASK)}|(?:None|True|False|str|bytes|int|bool|self)\b)"
                r"[^\s'\"()\[\]{},;&=]+(?=[\s'\")\]},;&]|\Z)",
                any_case,
            ),
            rf"\1{MASK}",
        ),
        _Mask(
            ("bearer", "basic"),
            re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", any_case),
            rf"\1 {MASK}",
        ),
    )


def without_secrets(text: str) -> str:
    """Mask keys and credentials in a text."""
    # Beyond ASCII, letters that are not each other's lower case match too, such as the Kelvin sign and "k".
    lowered = text.lower() if text.isascii() else None
    for hints, pattern, instead in masks():
        if lowered is None or any(hint in lowered for hint in hints):
            text = pattern.sub(instead, text)
    return text


def masked(text: str, length: int) -> str:
    """Mask credentials and cut, in this order: half a credential could not be recognized."""
    text = without_secrets(text[: length + _OVERHANG])
    return text if len(text) <= length else f"{text[:length]}…"
