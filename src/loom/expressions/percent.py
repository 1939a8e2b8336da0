"""Percent-encoding as RFC 3986 has it. Pure; may import nothing of Loom."""

from __future__ import annotations

import re

_UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~"
_ESCAPES = [chr(byte) if byte in _UNRESERVED else f"%{byte:02X}" for byte in range(256)]
# Not with `{2}`: up to Python 3.11.3 such a group keeps the `%` of `%zz`, where it does not match.
_RUN = re.compile("(?:%[0-9A-Fa-f][0-9A-Fa-f])++")
_UNREAD = re.compile("[\udc80-\udcff]")


def utf8(text: str) -> bytes:
    """The bytes of a text; half a character, which some texts have, becomes U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


def encoded_length(text: str) -> int:
    """How long the text will be when it is encoded."""
    data = utf8(text)
    return len(data) + 2 * len(data.translate(None, _UNRESERVED))


def encode(text: str) -> str:
    """All but letters, digits and `-_.~` as `%XX`, in UTF-8."""
    return "".join([_ESCAPES[byte] for byte in utf8(text)])


def decode(text: str) -> str:
    """The text with its escapes resolved. One that is no UTF-8 stays, and so does a `+`."""
    return _RUN.sub(_decoded, text)


def decode_bytes(text: str) -> bytes:
    """The bytes that a text stands for: those of its escapes, and UTF-8 for everything else."""
    parts, end = [], 0
    for match in _RUN.finditer(text):
        parts += [utf8(text[end : match.start()]), _bytes(match)]
        end = match.end()
    return b"".join([*parts, utf8(text[end:])])


def _bytes(match: re.Match[str]) -> bytes:
    return bytes.fromhex(match[0].replace("%", ""))


def _decoded(match: re.Match[str]) -> str:
    # Bytes that are no UTF-8 come out as U+DC80 and up, and are escaped again.
    text = _bytes(match).decode("utf-8", "surrogateescape")
    return text if text.isascii() else _UNREAD.sub(lambda byte: f"%{ord(byte[0]) - 0xDC00:02X}", text)
