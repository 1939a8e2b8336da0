"""The content of requests and responses: values of a flow as bytes with a content type, and the way back.

JSON becomes values, text a string, and everything else the content envelope, with `$formdata` for forms and
`$multipart` for what has parts. Content from outside is measured before it is decoded: see `MAX_VALUES`.
"""

from __future__ import annotations

import json
import math
import re
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

from loom.effects.actions.outcomes import plain
from loom.effects.off_loop import MAX_VALUES, OFF_LOOP_BYTES, aside
from loom.expressions.errors import FunctionError
from loom.expressions.strings import percent_decode_bytes
from loom.expressions.value_text import count_values, decode_text, encode_text, envelope, envelope_bytes, is_deeper
from loom.expressions.values import INT_MAX, INT_MIN

FORM = "application/x-www-form-urlencoded"
MAX_DEPTH = 200
_PARAMETER = re.compile(r';\s*+([^\s;="]*+)\s*+(?:=\s*+(?:"((?:[^"\\]|\\.)*+)"?|([^;]*+)))?', re.DOTALL)
"""A parameter of a content type. Nothing that was taken is given back, so that its time is linear in the text."""
_TYPE, _CONTENT, _FORM_DATA, _MULTIPART = "$content-type", "$content", "$formdata", "$multipart"


def encode_content(body: Any, content_type: str) -> tuple[bytes, str]:
    """The bytes of a request's body and their content type. The author's own content type wins."""
    if body is None:
        return b"", content_type
    if isinstance(body, dict):
        if _MULTIPART in body:
            return _encode_parts(body, content_type)
        if _CONTENT in body:
            return envelope_bytes(body), content_type or str(body.get(_TYPE, "application/octet-stream"))
        if _FORM_DATA in body:
            pairs = [(str(pair.get("key", "")), text_of(pair.get("value"))) for pair in body[_FORM_DATA]]
            return urlencode(pairs).encode(), content_type or FORM
        if media_type(content_type) == FORM:
            return urlencode({key: text_of(value) for key, value in body.items()}).encode(), content_type
    if isinstance(body, str):
        return _text_bytes(body, content_type), content_type or "text/plain; charset=utf-8"
    return json_text(body).encode(), content_type or "application/json"


def _text_bytes(text: str, content_type: str) -> bytes:
    """Write a text in the charset that its content type names, or in UTF-8 if that cannot be."""
    charset = parameter_of(content_type, "charset").lower()
    if charset not in ("", "utf-8", "utf8"):
        try:
            return encode_text(text, charset)
        except FunctionError:
            pass  # a reader makes more of UTF-8 than of nothing
    return text.encode("utf-8", "replace")


class TooManyValues(ValueError):
    """A body that would decode to more values than allowed."""


class _Budget:
    """The values that a body and its parts may still decode to."""

    __slots__ = ("left", "limit")

    def __init__(self, limit: int) -> None:
        self.left = self.limit = limit

    def take(self, values: int) -> None:
        self.left -= values
        if self.left < 0:
            raise TooManyValues(f"The body has more than {self.limit} values, and is not decoded.")


async def decode_content_off_loop(data: bytes, content_type: str, max_values: int = MAX_VALUES) -> Any:
    """Decode a body, in a thread if it is large. See `decode_content`."""
    if len(data) <= OFF_LOOP_BYTES:
        return decode_content(data, content_type, max_values)
    return await aside("convert", decode_content, data, content_type, max_values)


def decode_content(data: bytes, content_type: str, max_values: int = MAX_VALUES) -> Any:
    """The value of a body from outside; `TooManyValues` if it would be too many, told before anything is decoded."""
    return _decoded(data, content_type, _Budget(max_values))


def _decoded(data: bytes, content_type: str, budget: _Budget) -> Any:
    if not data:
        return None
    media = media_type(content_type)
    if media == "application/json" or media.endswith("+json"):
        return _json_value(data.decode("utf-8-sig", "replace"), budget)
    if media.startswith("text/"):
        return _text(data, content_type)
    if media == FORM:
        budget.take(3 * data.count(b"&"))  # a dict with two values each
        return {**envelope(content_type, data), _FORM_DATA: _form_fields(data.decode("utf-8", "replace"))}
    if media.startswith("multipart/"):
        parts = _decode_parts(data, content_type, budget)
        return {**envelope(content_type, data), _MULTIPART: parts} if parts else envelope(content_type, data)
    return envelope(content_type or "application/octet-stream", data)


def media_type(content_type: str) -> str:
    """The type without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def text_of(value: Any) -> str:
    """A value as text in a header, a query or a form."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json_text(value)


def json_text(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def parameter_of(content_type: str, name: str) -> str:
    """A parameter of a content type, empty if it has none of that name."""
    for found in _PARAMETER.finditer(content_type):
        if found[1].lower() == name:
            return re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else (found[3] or "").strip()
    return ""


def _json_value(text: str, budget: _Budget) -> Any:
    """Read a JSON text; gives the text itself if it is no JSON, or too deep to be stored."""
    budget.take(count_values(text, budget.left))
    if is_deeper(text, MAX_DEPTH):
        return text
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite, parse_int=_integer)
    except (ValueError, RecursionError):
        return text
    # Only an escape can bring half of a character, and no store keeps one.
    return plain(value) if "\\ud" in text or "\\uD" in text else value


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no number in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _integer(text: str) -> float:
    number = int(text)
    return number if INT_MIN <= number <= INT_MAX else _finite(text)


def _text(data: bytes, content_type: str) -> str:
    charset = parameter_of(content_type, "charset").lower() or "utf-8"
    if charset not in ("utf-8", "utf8"):
        try:
            return decode_text(data, charset)
        except FunctionError:
            pass  # a charset that nobody knows, or bytes that are none of it
    return data.decode("utf-8-sig", "replace")


def _form_fields(text: str) -> list[dict[str, str]]:
    """The fields of a form. The standard library's reader makes an object of every `%41`, which is 80 bytes for 3."""
    pairs = (field.partition("=") for field in text.split("&") if field)
    return [{"key": _form_text(key), "value": _form_text(value)} for key, _, value in pairs]


def _form_text(text: str) -> str:
    spaced = text.replace("+", " ")
    return percent_decode_bytes(spaced).decode("utf-8", "replace") if "%" in spaced else spaced


def _encode_parts(body: dict[str, Any], content_type: str) -> tuple[bytes, str]:
    """A multipart body. The boundary derives from the content, so that a repeated request is the same request."""
    encoded: list[bytes] = []
    for part in body[_MULTIPART]:
        headers = {str(name): text_of(value) for name, value in (part.get("headers") or {}).items()}
        named = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
        data, kind = encode_content(part.get("body"), named)
        if not named and kind:
            headers["Content-Type"] = kind
        lines = "".join(f"{_one_line(name)}: {_one_line(value)}\r\n" for name, value in headers.items())
        encoded.append(lines.encode() + b"\r\n" + data)
    declared = content_type or str(body.get(_TYPE) or "multipart/form-data")
    boundary = parameter_of(declared, "boundary")
    if not boundary:
        boundary = sha256(b"\0".join(encoded)).hexdigest()[:32]
        declared = f"{declared}; boundary={boundary}"
    mark = boundary.encode()
    return b"".join(b"--%b\r\n%b\r\n" % (mark, part) for part in encoded) + b"--%b--\r\n" % mark, declared


def _decode_parts(data: bytes, content_type: str, budget: _Budget) -> list[dict[str, Any]]:
    boundary = parameter_of(content_type, "boundary")
    if not boundary:
        return []
    parts = []
    mark = b"\r\n--" + boundary.encode()
    budget.take(4 * data.count(mark))  # two dicts, and what they hold
    for piece in (b"\r\n" + data).split(mark)[1:-1]:
        head, _, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        budget.take(head.count(b"\r\n"))
        lines = [line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n") if ":" in line]
        headers = {name.strip(): value.strip() for name, _, value in lines}
        kind = next((value for name, value in headers.items() if name.lower() == "content-type"), "text/plain")
        # Parts of parts stay packed: each level would hold all that is below it once more.
        packed = media_type(kind).startswith("multipart/")
        body = envelope(kind, content) if packed else _decoded(content, kind, budget)
        parts.append({"headers": headers, "body": body})
    return parts


def _one_line(text: str) -> str:
    return text.replace("\r", " ").replace("\n", " ")
