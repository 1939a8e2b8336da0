"""Removes keys and credentials from texts that leave the process: log lines and tracebacks.

The patterns know what a secret looks like beside its name, not what it is. A secret that a program writes into a text
without its name cannot be found here.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MASK = "***"
_OVERHANG = 256
"""Characters beyond a cut that are looked at, for a credential that begins before it."""

_NAME = r"\b[\w-]{0,40}(?:password|passwd|pwd|passphrase|secret|token(?!s)|(?:api|private|access)[_-]?key)[\w-]{0,40}"


def _with_mask(found: re.Match[str]) -> str:
    quote = found[2] or found[3]
    return f"{found[1]}{quote}{MASK}{quote}"


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]:
    """Return the patterns in the order that they are applied in, each with what takes the place of its match.

    They are compiled when a text is first masked: that takes 2 ms, and most processes never mask one.
    """
    any_case = re.IGNORECASE
    return (
        (re.compile(r"\b(loom_[0-9a-f]{12}_)[A-Za-z0-9_-]{43}"), rf"\1{MASK}"),
        (
            re.compile(r"([?&](?:sig|signature|code|key|api_?key|token|access_token)=)[^&\s'\"]+", any_case),
            rf"\1{MASK}",
        ),
        # A header to the end of its line or quote: a value may have several words.
        (
            re.compile(
                r"\b((?:proxy-)?authorization|x-api-key|set-cookie|cookie)"
                r"(['\"]?\s*[:=]\s*(?:b?['\"])?|['\"]\s*,\s*b?['\"])[^\n'\"]+",
                any_case,
            ),
            rf"\1\2{MASK}",
        ),
        # The password in an address, such as `postgresql://ada:***@host`.
        (
            re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@'\"]{0,100}:)[^\s/@'\"]+(?=@)", any_case),
            rf"\1{MASK}",
        ),
        # A value in quotes beside a name that says what it is, as in a source line: `password="***"`.
        (
            re.compile(
                rf"({_NAME}['\"]?(?:\s{{0,3}}:\s{{0,3}}\w{{1,20}}(?=\s{{0,3}}=))?\s{{0,3}}[:=]=?\s{{0,3}})[rbfu]{{0,2}}"
                r"(?:(\"\"\"|''')(?:\\.|(?!\2).)*(?:\2|\Z)|(['\"])(?:\\.|(?!\3)[^\n])*(?:\3|(?=\n)|\Z))",
                any_case | re.DOTALL,
            ),
            _with_mask,
        ),
        # The same without quotes, as in the parameters of a connection: `host=db password=***`.
        (
            re.compile(
                rf"({_NAME}['\"]?\s{{0,3}}[:=]\s{{0,3}})(?!{re.escape(MASK)}|(?:None|True|False|str|bytes|int|bool|self)\b)"
                r"[^\s'\"()\[\]{},;&=]+(?=[\s'\")\]},;&]|\Z)",
                any_case,
            ),
            rf"\1{MASK}",
        ),
        (re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", any_case), rf"\1 {MASK}"),
    )


def without_secrets(text: str) -> str:
    """Mask keys and credentials in a text."""
    for pattern, instead in _patterns():
        text = pattern.sub(instead, text)
    return text


def masked(text: str, length: int) -> str:
    """Mask credentials and cut, in this order: half a credential could not be recognized."""
    text = without_secrets(text[: length + _OVERHANG])
    return text if len(text) <= length else f"{text[:length]}…"
