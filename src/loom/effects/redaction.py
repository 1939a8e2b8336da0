"""Removes keys and credentials from texts that leave the process: log lines and tracebacks.

The patterns know what a secret looks like beside its name, not what it is. A secret that a program writes into a text
without its name cannot be found here.
"""

from __future__ import annotations

import re

MASK = "***"
_OVERHANG = 256
"""Characters beyond a cut that are looked at, for a credential that begins before it."""

_KEY = re.compile(r"\b(loom_[0-9a-f]{12}_)[A-Za-z0-9_-]{43}")
_BEARER = re.compile(r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|x-api-key|set-cookie|cookie)(['\"]?\s*[:=]\s*(?:b?['\"])?|['\"]\s*,\s*b?['\"])[^\n'\"]+",
    re.IGNORECASE,
)
"""A header to the end of its line or quote: a value may have several words."""
_QUERY = re.compile(r"([?&](?:sig|signature|code|key|api_?key|token|access_token)=)[^&\s'\"]+", re.IGNORECASE)
_ADDRESS = re.compile(r"(\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@'\"]{0,100}:)[^\s/@'\"]+(?=@)", re.IGNORECASE)
"""The password in an address, such as `postgresql://ada:***@host`."""
_NAME = r"\b[\w-]{0,40}(?:password|passwd|pwd|passphrase|secret|token(?!s)|(?:api|private|access)[_-]?key)[\w-]{0,40}"
_QUOTED = re.compile(
    rf"({_NAME}['\"]?(?:\s{{0,3}}:\s{{0,3}}\w{{1,20}}(?=\s{{0,3}}=))?\s{{0,3}}[:=]=?\s{{0,3}})[rbfu]{{0,2}}"
    r"(?:(\"\"\"|''')(?:\\.|(?!\2).)*(?:\2|\Z)|(['\"])(?:\\.|(?!\3)[^\n])*(?:\3|(?=\n)|\Z))",
    re.IGNORECASE | re.DOTALL,
)
"""A value in quotes beside a name that says what it is, as in a source line: `password="***"`."""
_BARE = re.compile(
    rf"({_NAME}['\"]?\s{{0,3}}[:=]\s{{0,3}})(?!{re.escape(MASK)}|(?:None|True|False|str|bytes|int|bool|self)\b)"
    r"[^\s'\"()\[\]{},;&=]+(?=[\s'\")\]},;&]|\Z)",
    re.IGNORECASE,
)
"""The same without quotes, as in the parameters of a connection: `host=db password=***`."""


def without_secrets(text: str) -> str:
    """Mask keys and credentials in a text."""
    text = _KEY.sub(rf"\1{MASK}", text)
    text = _QUERY.sub(rf"\1{MASK}", text)
    text = _HEADER.sub(rf"\1\2{MASK}", text)
    text = _ADDRESS.sub(rf"\1{MASK}", text)
    text = _QUOTED.sub(_with_mask, text)
    text = _BARE.sub(rf"\1{MASK}", text)
    return _BEARER.sub(rf"\1 {MASK}", text)


def _with_mask(found: re.Match[str]) -> str:
    quote = found[2] or found[3]
    return f"{found[1]}{quote}{MASK}{quote}"


def masked(text: str, length: int) -> str:
    """Mask credentials and cut, in this order: half a credential could not be recognized."""
    text = without_secrets(text[: length + _OVERHANG])
    return text if len(text) <= length else f"{text[:length]}…"
