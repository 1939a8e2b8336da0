"""The content envelope: binary and XML data as `{"$content-type": …, "$content": base64}`. Pure."""

from __future__ import annotations

import binascii
from typing import Any

from loom.expressions.casing import SPACES, translated
from loom.expressions.errors import FunctionError
from loom.expressions.kinds import CONTENT, CONTENT_TYPE, kind_of
from loom.expressions.metering import spend_text

_CHARSETS = {
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "us-ascii": "ascii",
    "ascii": "ascii",
    "iso-8859-1": "latin-1",
    "latin1": "latin-1",
    "windows-1252": "cp1252",
    "utf-16": "utf-16-le",
    "utf-16le": "utf-16-le",
    "utf-16be": "utf-16-be",
    "unicode": "utf-16-le",
    "utf-32": "utf-32-le",
}
_WHITE = dict.fromkeys(map(ord, SPACES + "\x1c\x1d\x1e\x1f"))
"""What `str.split` takes for white space."""


def envelope(content_type: str, data: bytes) -> dict[str, Any]:
    """Bytes in their envelope."""
    return {CONTENT_TYPE: content_type, CONTENT: binascii.b2a_base64(data, newline=False).decode("ascii")}


def envelope_bytes(value: dict[str, Any]) -> bytes:
    """The bytes in an envelope."""
    content = value[CONTENT]
    if not isinstance(content, str):
        raise FunctionError(f"the '{CONTENT}' of the content is no string but of kind {kind_of(content)}")
    return base64_bytes(content)


def envelope_text(value: dict[str, Any]) -> str:
    """The text in an envelope, read in the charset that its content type names, UTF-8 if it names none."""
    return decode_text(envelope_bytes(value), charset_of(value[CONTENT_TYPE]))


def base64_bytes(text: str) -> bytes:
    """What a base64 text stands for; white space in it does not matter."""
    try:
        return binascii.a2b_base64(_without_white(text).encode("ascii"), strict_mode=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise FunctionError(f"'{text[:60]}' is no base64") from error


def _without_white(text: str) -> str:
    """The text without white space. To split it there would make an object of every letter of `a b c d`."""
    spend_text(text, 2)
    return translated(text, _WHITE)


def charset_of(content_type: Any) -> str:
    """The charset that a content type names, in lower case; `utf-8` if it names none."""
    if not isinstance(content_type, str):
        raise FunctionError(f"the '{CONTENT_TYPE}' of the content is no string but of kind {kind_of(content_type)}")
    charset = "utf-8"
    for parameter in content_type.split(";")[1:]:
        name, equal, value = parameter.partition("=")
        if not equal and name.strip():
            raise FunctionError(f"the content type '{content_type}' has a parameter without a value: '{name.strip()}'")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"').lower()
    return charset


def decode_text(data: bytes, charset: str) -> str:
    """Bytes as text. Bytes that mean nothing in the charset become U+FFFD, a byte-order mark is dropped."""
    codec = _CHARSETS.get(charset)
    if codec is None:
        raise FunctionError(f"'{charset}' is no charset that Loom knows")
    return data.decode(codec, "replace").removeprefix("\ufeff")
