"""Bodies of requests: JSON held to strict limits, and decoded as the type that its route declares.

A refusal names the place that does not fit by a JSON Pointer, and says in plain words what belongs there.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from loom.api.answers import ID_PATTERN
from loom.api.requests import Request
from loom.effects.off_loop import OFF_LOOP_BYTES, aside
from loom.expressions.value_text import count_values, is_deeper
from loom.runtime.durable.names import check_tags
from loom.server.problems import ApiProblem, invalid

if TYPE_CHECKING:
    from loom.server.settings import ServerSettings

RequestT = TypeVar("RequestT", bound=Request)

_ID = re.compile(ID_PATTERN[1:-1])
_PLACE = re.compile(r" - at `\$((?:\.\w+)?)")
_WORDS: dict[Any, str] = {str: "a string", dict: "an object", bool: "true or false", float: "a number of seconds"}


# -- types ------------------------------------------------------------------------------------------------------------


def decoded(body: Any, kind: type[RequestT]) -> RequestT:
    """Convert JSON to a request; no body at all is an empty object, and null counts as left out."""
    if body is None:
        body = {}
    if not isinstance(body, dict):
        raise invalid("The body must be an object.")
    known, fields = kind.__struct_fields__, msgspec.structs.fields(kind)
    for name in body:
        if name not in known:
            raise invalid(f"The field {name[:100]!r} is not known: use {', '.join(known)}.", pointer(name))
    for field in fields:
        if field.required and body.get(field.name) is None:
            raise invalid(f"The field {field.name!r} is missing.", pointer(field.name))
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        found = _PLACE.search(str(error))
        name = found[1][1:] if found is not None else ""
        field_type = next((field.type for field in fields if field.name == name), Any)
        raise invalid(_refusal(name, field_type, body.get(name)), pointer(name)) from error


def _refusal(name: str, kind: Any, value: Any) -> str:
    """Say what belongs into a field."""
    kind, limits = _bare(kind)
    if limits is not None and limits.pattern is not None:
        return _no_id(name)
    if isinstance(kind, type) and issubclass(kind, Request):
        return kind.__refusal__
    if kind is dict and isinstance(value, dict):
        return _bad_tags(value)
    words = f"a number from {limits.ge} on" if limits is not None and limits.ge is not None else _WORDS[kind]
    return f"The field {name!r} must be {words}."


def _bad_tags(tags: dict[str, Any]) -> str:
    """Say what is wrong with tags: their values are strings."""
    try:
        check_tags(tags)
    except (TypeError, ValueError) as error:
        return str(error)
    return "The field 'tags' must be an object."


def _bare(kind: Any) -> tuple[Any, msgspec.Meta | None]:
    """Take a type apart: without `| None` and what is inside of it, and its limits."""
    given = [each for each in get_args(kind) if each is not type(None)]
    if len(given) < len(get_args(kind)):
        return _bare(given[0])
    if get_origin(kind) is Annotated:
        return given[0], next((each for each in given[1:] if isinstance(each, msgspec.Meta)), None)
    return get_origin(kind) or kind, None


def check_id(what: str, value: object) -> str:
    """Return an id of a run or an event if it is one."""
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise invalid(_no_id(what), pointer(what))
    return value


def _no_id(what: str) -> str:
    return f"{what} must be 1 to 200 characters of A-Z a-z 0-9 . _ : ~ -"


def pointer(*parts: str) -> str:
    """Write a JSON Pointer."""
    return "".join(f"/{part[:100].replace('~', '~0').replace('/', '~1')}" for part in parts if part)


# -- JSON -------------------------------------------------------------------------------------------------------------


async def json_off_loop(body: bytes, settings: ServerSettings) -> Any:
    """Read JSON from outside, in a thread if there is much of it. See `read_json`."""
    if len(body) <= OFF_LOOP_BYTES:
        return read_json(body, settings)
    return await aside("convert", read_json, body, settings)


def read_json(body: bytes, settings: ServerSettings) -> Any:
    """JSON from outside: no deeper and no more than allowed, nothing that only Python knows, no key twice, no broken
    text.
    """
    try:
        text = body.decode()
        check_shape(text, settings)
        found = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique)
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()  # half a character has no form in UTF-8
    except (ValueError, RecursionError) as error:
        raise invalid(f"The body is not JSON in UTF-8: {str(error)[:200]}") from error
    return found


def check_shape(text: str, settings: ServerSettings) -> None:
    """Refuse a text that nests too deep or makes too many values, before anything reads it."""
    if is_deeper(text, settings.max_depth):
        raise invalid(f"The body is nested more than {settings.max_depth} deep.")
    if count_values(text, settings.max_values) > settings.max_values:
        raise ApiProblem("too-large", f"The body has more than {settings.max_values} values.")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError(f"{digits[:40]} is larger than any number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found
