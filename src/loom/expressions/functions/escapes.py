"""The rest of the string functions: GUIDs, the escapes of XML names and values, byte-order marks. Pure.

May import `arguments`, `envelopes`, `environment`, `errors`, `registry` and `values`.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Any

from loom.expressions.arguments import check_size, refuse, want_string
from loom.expressions.casing import translated
from loom.expressions.envelopes import envelope, envelope_bytes
from loom.expressions.errors import FunctionError
from loom.expressions.limits import ELEMENT, NODE
from loom.expressions.metering import spend_text
from loom.expressions.registry import function
from loom.expressions.values import CONTENT_TYPE, is_envelope

if TYPE_CHECKING:
    from loom.expressions.environment import Environment

# --- guid ---------------------------------------------------------------------------------------------------------

_WORD = 2**32
_GUID_FORMS = {"N": "{}{}{}{}{}", "D": "{}-{}-{}-{}-{}", "B": "{{{}-{}-{}-{}-{}}}", "P": "({}-{}-{}-{}-{})"}


@function("guid", 0, 1, asks=True)
def guid(env: Environment, form: Any = "D") -> str:
    """A new random identifier in one of the forms N, D, B, P, X."""
    letter = want_string("format", form).upper()
    if letter != "X" and letter not in _GUID_FORMS:
        raise FunctionError(f"expects its argument 'format' to be one of N, D, B, P and X, not '{form}'")
    digits = "".join(f"{env.random_below(_WORD):08x}" for _ in range(4))
    # Version 4, and the variant that the standard gives to it.
    digits = f"{digits[:12]}4{digits[13:16]}{'89ab'[int(digits[16], 16) & 3]}{digits[17:]}"
    if letter == "X":
        tail = ",".join(f"0x{digits[i : i + 2]}" for i in range(16, 32, 2))
        return f"{{0x{digits[:8]},0x{digits[8:12]},0x{digits[12:16]},{{{tail}}}}}"
    return _GUID_FORMS[letter].format(digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])


# --- XML names ----------------------------------------------------------------------------------------------------

_NAME_START = (
    ":A-Z_a-z\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f\u2c00-\u2fef"
    "\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd"
)
_NAME_REST = _NAME_START + "\\-.0-9\xb7\u0300-\u036f\u203f-\u2040"
# A `_` that would begin an escape, a first character that may not be first, and any character that may not be there.
_UNFIT = re.compile(f"_(?=x(?:[0-9A-Fa-f]{{4}}|[0-9A-Fa-f]{{8}})_)|^[^{_NAME_START}]|[^{_NAME_REST}]", re.DOTALL)
_ESCAPE = re.compile("_x([0-9A-Fa-f]{8}|[0-9A-Fa-f]{4})_")
_LONGEST_ESCAPE = len("_x0001F600_")


@function("encodeXmlName", 1)
def encode_xml_name(name: Any) -> str:
    """The text as an XML name: what a name may not have becomes an escape like `_x0020_`."""
    name = want_string("name", name)
    check_size(len(name) * _LONGEST_ESCAPE)
    spend_text(name, NODE)
    return _UNFIT.sub(_escaped, name)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"_x{code:04X}_" if code <= 0xFFFF else f"_x{code:08X}_"  # noqa: PLR2004


@function("decodeXmlName", 1)
def decode_xml_name(name: Any) -> str:
    """The text of which `encodeXmlName` made this name."""
    text = want_string("name", name)
    spend_text(text, ELEMENT)
    return _ESCAPE.sub(lambda match: _character(int(match[1], 16), match[0]), text)


def _character(code: int, otherwise: str) -> str:
    """The character of a code, or what stands there if there is no such character."""
    is_character = 0 < code < 0xD800 or 0xDFFF < code <= 0x10FFFF  # noqa: PLR2004
    return chr(code) if is_character else otherwise


# --- XML values ---------------------------------------------------------------------------------------------------

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}
_CHARACTERS = {entity: character for character, entity in _ENTITIES.items()}
_ENTITY = re.compile("&(?:amp|lt|gt|quot|apos|#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6}));")


@function("encodeXmlValue", 1)
def encode_xml_value(value: Any) -> str:
    """The text as it is written inside XML: the five special characters become entities."""
    text = want_string("value", value)
    check_size(len(text) + sum(text.count(character) * (len(entity) - 1) for character, entity in _ENTITIES.items()))
    spend_text(text, 4)
    return translated(text, {ord(character): entity for character, entity in _ENTITIES.items()})


@function("decodeXmlValue", 1)
def decode_xml_value(value: Any) -> str:
    """The text with its entities resolved; what is no entity stays."""
    text = want_string("value", value)
    spend_text(text, ELEMENT)
    return _ENTITY.sub(_resolved, text)


def _resolved(match: re.Match[str]) -> str:
    entity, decimal, hexadecimal = match[0], match[1], match[2]
    if decimal or hexadecimal:
        return _character(int(decimal) if decimal else int(hexadecimal, 16), entity)
    return _CHARACTERS[entity]


# --- byte-order marks ---------------------------------------------------------------------------------------------

_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@function("trimByteOrderMark", 1)
def trim_byte_order_mark(content: Any) -> Any:
    """A text or binary content without the byte-order mark at its beginning."""
    if isinstance(content, str):
        return content.removeprefix("\ufeff")
    if not is_envelope(content):
        raise refuse("content", "a string or binary content", content)
    data = envelope_bytes(content)
    mark = next((mark for mark in _MARKS if data.startswith(mark)), b"")
    return envelope(content[CONTENT_TYPE], data[len(mark) :]) if mark else content
