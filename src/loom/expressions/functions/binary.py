"""Conversion functions for binary data: base64, the content envelope, data URIs and URI components. Pure.

May import `arguments`, `envelopes`, `errors`, `percent`, `registry` and `values`.
"""

from __future__ import annotations

import binascii
import re
from typing import Any, NamedTuple

from loom.expressions import percent
from loom.expressions.arguments import check_size, refuse, want_string
from loom.expressions.envelopes import base64_bytes, decode_text, envelope, envelope_bytes
from loom.expressions.errors import FunctionError
from loom.expressions.limits import ELEMENT
from loom.expressions.metering import spend_text
from loom.expressions.registry import function
from loom.expressions.values import CONTENT, CONTENT_TYPE, is_envelope, text_of

_BYTES = "application/octet-stream"
_TEXT = "text/plain"
_JSON = "application/json"
_UTF8 = "utf-8"
_SHOWN = 60


def _content(value: Any) -> bytes:
    """The bytes of a value: of an envelope what is in it, of everything else its text."""
    if value is None:
        raise refuse("value", "a value", value)
    return envelope_bytes(value) if is_envelope(value) else percent.utf8(text_of(value))


def _enveloped(content_type: str, data: bytes) -> dict[str, Any]:
    check_size(len(data) // 3 * 4)
    return envelope(content_type, data)


def _base64(data: bytes) -> str:
    check_size(len(data) // 3 * 4)
    return binascii.b2a_base64(data, newline=False).decode("ascii")


# --- base64 and envelopes -----------------------------------------------------------------------------------------


@function("base64", 1)
def base64(value: Any) -> str:
    """A value as base64."""
    return _base64(_content(value))


@function("decodeBase64", 1)
@function("base64ToString", 1)
def base64_to_string(value: Any) -> str:
    """The text of which this is the base64."""
    return decode_text(base64_bytes(want_string("value", value)), _UTF8)


@function("base64ToBinary", 1)
def base64_to_binary(value: Any) -> dict[str, Any]:
    """The envelope of which this is the base64, kept as it is written."""
    text = want_string("value", value)
    base64_bytes(text)
    return {CONTENT_TYPE: _BYTES, CONTENT: text}


@function("binary", 1)
def binary(value: Any) -> dict[str, Any]:
    """A value as bytes in their envelope."""
    return _enveloped(_BYTES, _content(value))


# --- data URIs ----------------------------------------------------------------------------------------------------

_MEDIA_TYPE = re.compile("[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")


class _DataUri(NamedTuple):
    """`data:<media type>;<parameters>;base64,<content>`, taken apart."""

    media_type: str
    parameters: list[str]
    is_base64: bool
    content: str

    def text(self) -> str:
        """What stands for the content of a URI that is not in base64; here, unlike elsewhere, `+` is a space."""
        spend_text(self.content, ELEMENT)
        return self.content.replace("+", " ")


def _data_uri(value: Any) -> _DataUri:
    uri = want_string("value", value)
    scheme, colon, rest = uri.partition(":")
    header, comma, content = rest.partition(",")
    if scheme.lower() != "data" or not colon or not comma:
        raise FunctionError(f"expects its argument 'value' to be a data URI such as 'data:,text', not '{uri[:_SHOWN]}'")
    segments = header.split(";")
    is_base64 = segments[-1].lower() == "base64"
    if is_base64:
        segments.pop()
    if "" in segments[1:]:
        raise FunctionError(f"the data URI '{uri[:_SHOWN]}' has a semicolon too many")
    media_type = segments[0] if segments else ""
    return _DataUri(media_type or _TEXT, segments[1:], is_base64, content)


@function("dataUri", 1)
def data_uri(value: Any) -> str:
    """A value as a data URI in base64."""
    data = _content(value)
    if is_envelope(value):
        content_type = want_string(CONTENT_TYPE, value[CONTENT_TYPE])
    else:
        content_type = f"{_TEXT if isinstance(value, str) else _JSON};charset={_UTF8}"
    return f"data:{content_type};base64,{_base64(data)}"


@function("dataUriToString", 1)
def data_uri_to_string(value: Any) -> str:
    """The text in a data URI. It must be UTF-8, which is looked at in the first parameter only, as the service does."""
    uri = _data_uri(value)
    name, _, charset = (uri.parameters or [""])[0].partition("=")
    if name.lower() == "charset" and charset.lower() != _UTF8:
        raise FunctionError(f"can only read a data URI of charset {_UTF8}, not '{charset}'")
    if uri.is_base64:
        return decode_text(base64_bytes(uri.content), _UTF8)
    return percent.decode(uri.text())


@function("decodeDataUri", 1)
@function("dataUriToBinary", 1)
def data_uri_to_binary(value: Any) -> dict[str, Any]:
    """The content of a data URI in its envelope. Base64 is kept as it is written."""
    uri = _data_uri(value)
    if not _MEDIA_TYPE.fullmatch(uri.media_type):
        raise FunctionError(f"'{uri.media_type[:_SHOWN]}' in the data URI is no media type such as '{_TEXT}'")
    for parameter in uri.parameters:
        name, _, setting = parameter.partition("=")
        if "=" in setting:
            raise FunctionError(f"the parameter '{parameter}' of the data URI has two equals signs")
        if name.lower() == "charset":
            decode_text(b"", setting.lower())  # Refuses a charset that nobody knows.
    content_type = ";".join([uri.media_type, *uri.parameters])
    if uri.is_base64:
        return {CONTENT_TYPE: content_type, CONTENT: uri.content}
    return _enveloped(content_type, percent.decode_bytes(uri.text()))


# --- URI components -----------------------------------------------------------------------------------------------


@function("encodeUriComponent", 1)
@function("uriComponent", 1)
def uri_component(value: Any) -> str:
    """A text as it is written inside a URI."""
    text = want_string("value", value)
    check_size(percent.encoded_length(text))
    spend_text(text, 8)
    return percent.encode(text)


def _escaped(value: Any) -> str:
    """The argument, whose escapes are about to be read one by one."""
    text = want_string("value", value)
    spend_text(text, ELEMENT)
    return text


@function("decodeUriComponent", 1)
@function("uriComponentToString", 1)
def uri_component_to_string(value: Any) -> str:
    """The text of which this is the URI component."""
    return percent.decode(_escaped(value))


@function("uriComponentToBinary", 1)
def uri_component_to_binary(value: Any) -> dict[str, Any]:
    """The bytes of which this is the URI component, in their envelope."""
    return _enveloped(_BYTES, percent.decode_bytes(_escaped(value)))
