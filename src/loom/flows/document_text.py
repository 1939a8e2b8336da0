"""From text to plain data: JSON, or YAML with JSON's types, with what was written twice. Pure.

Nothing here knows what a definition looks like. YAML is read with JSON's scalars only, so that `on`, `no` and dates
stay text. Doubled keys are kept as facts, because a dict would hide them.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import reduce
from typing import Any, TypeAlias

from loom.expressions.values import INT_MAX, INT_MIN
from loom.flows.diagnostics import DefinitionError, Problem, at

MAX_BYTES = 16 << 20
"""How large a file may be."""
MAX_DEPTH = 100
"""How deep a document may nest."""
MAX_VALUES = 1_000_000
"""How many values it may have, all references of YAML followed."""
MAX_PATHS = 128 << 20
"""How many characters the paths of all its values may have."""
MAX_ALIASES = 1_000
"""How many references a YAML text may have."""


_HALVES = frozenset(map(chr, range(0xD800, 0xE000)))


class Doubled(dict[str, Any]):
    """An object some of whose keys were written twice; of each, the last value counts."""

    doubles: tuple[str, ...] = ()


def parse_text(text: str) -> Any:
    """Plain data from the text of a document. Raises `DefinitionError` with line and column if it is none."""
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise DefinitionError([Problem("", "the document is empty")])
    looks_like_json = text.lstrip()[:1] in ("{", "[")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        if looks_like_json:
            error = _with_comma(error)
            raise _unreadable("JSON", error.lineno, error.colno, error.msg) from None
    except ValueError as error:
        raise DefinitionError([Problem("", str(error))]) from None
    return _yaml(text)


def _with_comma(error: json.JSONDecodeError) -> json.JSONDecodeError:
    """The error of a comma too many, at the comma: Python says so from 3.13 on, and before at what follows it."""
    text, before = error.doc, error.doc[: error.pos].rstrip()
    kind = {"}": "object", "]": "array"}.get(text[error.pos : error.pos + 1])
    if kind is None or not before.endswith(","):
        return error
    return json.JSONDecodeError(f"Illegal trailing comma before end of {kind}", text, len(before) - 1)


def check_plain(data: Any) -> None:
    """Refuse what JSON does not know, what nests too deep, and what is too much. Raises `DefinitionError`."""
    level: list[tuple[Any, _Trail]] = [(data, None)]
    seen = 0
    for _ in range(MAX_DEPTH + 1):
        seen += len(level)
        inner: list[tuple[Any, _Trail]] = []
        for value, trail in level:
            if seen + len(inner) > MAX_VALUES:
                raise DefinitionError([Problem("", f"the document has more than {MAX_VALUES:,} values")])
            if isinstance(value, dict):
                _check_keys(value, trail)
                inner.extend((item, (trail, key)) for key, item in value.items())
            elif isinstance(value, list):
                inner.extend((item, (trail, index)) for index, item in enumerate(value))
            elif not _is_scalar(value):
                raise DefinitionError([Problem(_path(trail), _objection(value))])
        if not inner:
            return
        level = inner
    raise _too_deep()


def check_paths(data: Any) -> None:
    """Refuse names so long that the paths of what is under them would fill the memory. Raises `DefinitionError`."""
    total, level = 0, [(data, 0)]
    while level:
        inner: list[tuple[Any, int]] = []
        for value, length in level:
            if isinstance(value, dict):
                total += length * len(value)
                inner.extend((item, length + len(key)) for key, item in value.items())
            elif isinstance(value, list):
                total += length * len(value)
                inner.extend((item, length + 8) for item in value)
            if total > MAX_PATHS:
                message = (
                    f"the names in the document are too long: all paths together have over {MAX_PATHS:,} characters"
                )
                raise DefinitionError([Problem("", message)])
        level = inner


_Trail: TypeAlias = "tuple[_Trail, str | int] | None"
"""How to get to a value: from where, and by which key. A path is made of it only for a problem."""


def _path(trail: _Trail) -> str:
    keys = []
    while trail is not None:
        trail, key = trail
        keys.append(key)
    return reduce(at, reversed(keys), "")


def _check_keys(value: dict[Any, Any], trail: _Trail) -> None:
    for key in value:
        if not isinstance(key, str) or not _is_text(key):
            raise DefinitionError([Problem(_path(trail), f"the key {key!r} is no text")])


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str):
        return _is_text(value)
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor NaN
    if isinstance(value, int):
        return INT_MIN <= value <= INT_MAX
    return value is None


def _is_text(value: str) -> bool:
    """Whether all its characters are whole: JSON can write halves of them, which no store keeps."""
    return value.isascii() or _HALVES.isdisjoint(value)


def _objection(value: Any) -> str:
    if isinstance(value, str):
        return "the text has half of a character in it (a lone surrogate)"
    if isinstance(value, int):
        return "the number does not fit into 64 bits"
    return f"a {type(value).__name__} is no JSON value"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    counts = Counter(key for key, _ in pairs)
    doubled = Doubled(plain)
    doubled.doubles = tuple(key for key in plain if counts[key] > 1)
    return doubled


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")


def _too_deep() -> DefinitionError:
    return DefinitionError([Problem("", f"the document nests deeper than {MAX_DEPTH} levels")])


def _unreadable(language: str, line: int, column: int, reason: str, hint: str = "") -> DefinitionError:
    message = f"this is not {language}: {reason} at line {line}, column {column}"
    return DefinitionError([Problem("", message, hint, spot=(line, column))])


def _yaml(text: str) -> Any:
    try:
        import yaml

        from loom.flows.document_yaml import load_yaml
    except ModuleNotFoundError:
        hint = "for YAML, install PyYAML"
        raise DefinitionError([Problem("", "this is not JSON", hint)]) from None
    try:
        return load_yaml(text, _object, MAX_ALIASES, MAX_DEPTH)
    except RecursionError:
        raise _too_deep() from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        reason = error.problem or error.context or "it cannot be read"
        raise _unreadable("JSON or YAML", line, column, reason, _YAML_HINTS.get(reason, "")) from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise DefinitionError([Problem("", f"this is neither JSON nor YAML: {reason}")]) from None


_STRAY = "found character '{}' that cannot start any token"
_YAML_HINTS = {
    _STRAY.format("@"): "put an expression in quotes",
    _STRAY.format("\\t"): "indent with blanks, not with tabs",
    "mapping values are not allowed here": "look at the indentation, and put a text with a colon in quotes",
}
"""What to do about the usual mistakes, by what the parser says."""
