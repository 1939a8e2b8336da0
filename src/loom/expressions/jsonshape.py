"""The shape of a JSON text, measured before anything decodes it: how many values it makes, and how deep they nest.

Decoding multiplies: three bytes of `[],` become a list of 56. So a text from outside is measured first. Both measures
are linear in the text and the same on every machine.
"""

from __future__ import annotations

import re

# A string without its end is taken to the end, so that no text is read twice; what was taken is never given back.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_STRINGS = re.compile(_STRING, re.DOTALL)
_TOKENS = re.compile(_STRING + r"|[\[{\]}]", re.DOTALL)


def count_values(text: str, limit: int) -> int:
    """Count the values of a JSON text, keys left out: at most as many as it has commas and opening brackets, and one.

    A text that may have more than `limit` is looked at more closely: what its strings hold does not count then. The
    count of a text that has more is any number above the limit.
    """
    count = text.count(",") + text.count("[") + text.count("{") + 1
    if count <= limit:
        return count
    for strings, found in enumerate(_STRINGS.finditer(text)):
        if strings > 2 * limit:  # each of them is a key or a value
            return limit + 1
        start, end = found.span()
        if end - start > 2:  # noqa: PLR2004 - the quotes
            count -= text.count(",", start, end) + text.count("[", start, end) + text.count("{", start, end)
    return count


def is_deeper(text: str, max_depth: int) -> bool:
    """Say whether the brackets of a text nest deeper than allowed. Most texts have too few of them for that."""
    if text.count("[") + text.count("{") <= max_depth:
        return False
    depth = 0
    for token in _TOKENS.finditer(text):
        sign = token[0]
        if sign in ("[", "{"):
            depth += 1
            if depth > max_depth:
                return True
        elif sign in ("]", "}"):
            depth -= 1
    return False
