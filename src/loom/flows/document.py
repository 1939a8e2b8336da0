"""Documents: from text or data to one definition, and its stored form.

`read_document` parses JSON, or YAML with JSON's types. It refuses what no store could hold, and takes the definition
out of the wrapper that it was published in. `document_text` writes what a store keeps; its digest names a version of a
flow. Input is text or data, never a file.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache, reduce
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict

from loom.expressions.parser import is_opaque
from loom.expressions.values import INT_MAX, INT_MIN
from loom.flows.beside import Beside
from loom.flows.diagnostics import DefinitionError, Problem, at, suggestion
from loom.flows.limits import Limits
from loom.flows.plain import copy_of

COMPILER = 1
"""Version of the compiler. It rises when a document would become another program, so that stored runs can tell."""

_RESOURCE = "microsoft.logic/workflows"
_NAMED_BY_THEMSELVES = "variable"
"""Suffix of types whose `name` is not the name of the action."""

_DEFINITION_KEYS = ("actions", "triggers", "$schema", "contentVersion")

Shape = Literal["definition", "actions", "action"]


class Document(Struct, frozen=True):
    """A definition and its origin."""

    definition: dict[str, Any]
    name: str = ""
    kind: str = ""
    """The kind in a file of Logic Apps Standard: Stateful, Stateless, …"""
    path: str = ""
    """JSON path of the definition in the author's file."""
    shape: Shape = "definition"
    """What the author wrote: a whole definition, a map of actions, or a single action."""
    beside: Beside | None = None
    """The names that its project gives it; None: it has no project, or needs nothing of it."""

    @property
    def actions_path(self) -> str:
        """JSON path of the map of actions in the author's file."""
        return at(self.path, "actions") if self.shape == "definition" else self.path


def read_document(source: dict[str, Any] | str, *, name: str = "") -> Document:
    """Find the definition in a text or in plain data, in any of its wrappers. Raises `DefinitionError`."""
    data = parse_text(source) if isinstance(source, str) else source
    if data is None and isinstance(source, str):
        raise DefinitionError([Problem("", "the document is empty")])
    if not isinstance(data, dict):
        raise DefinitionError([Problem("", f"a definition is an object, not {_kind_of(data)}")])
    check_plain(data)
    # The caller may change its data later; the program is made of what it is now.
    return _unwrap(data if isinstance(source, str) else copy_of(data), name)


def document_text(document: Document, limits: Limits | None = None) -> str:
    """Write the stored form of a document with its limits: compact, in the author's order, which has a meaning."""
    facts = asdict(document)
    if facts.pop("beside") is not None:  # the text of all other documents stays what it was, and so do their digests
        facts["beside"] = to_builtins(document.beside)
    facts |= {"limits": _limits_text(limits or Limits()), "compiler": COMPILER}
    return json.dumps(facts, separators=(",", ":"), allow_nan=False)


def _limits_text(limits: Limits) -> dict[str, Any]:
    """Write limits. The default width came later, and is left out unless the operator has set it."""
    facts = asdict(limits)
    if facts["foreach_width"] == Limits().foreach_width:
        del facts["foreach_width"]
    return facts


def digest_of(text: str) -> str:
    """Digest that identifies a stored text."""
    return sha256(text.encode()).hexdigest()


def stored_document(text: str) -> tuple[Document, Limits]:
    """Read a document and its limits from their stored text."""
    facts = json.loads(text)
    limits = Limits(**facts.pop("limits"))
    compiler = facts.pop("compiler")
    if compiler != COMPILER:
        raise ValueError(f"this document was stored for compiler {compiler}; this one is {COMPILER}")
    if "beside" in facts:
        facts["beside"] = convert(facts["beside"], Beside)
    return Document(**facts), limits


def _unwrap(data: dict[str, Any], name: str) -> Document:
    if isinstance(data.get("resources"), list):
        return _arm(data, name)
    properties = data.get("properties")
    if isinstance(properties, dict) and isinstance(properties.get("definition"), dict):
        wrapped_name = data.get("name") or properties.get("displayName")
        return Document(
            _with_values(properties), name or _text(wrapped_name), _text(data.get("kind")), "properties.definition"
        )
    if isinstance(data.get("definition"), dict):
        return Document(data["definition"], name or _text(data.get("name")), _text(data.get("kind")), "definition")
    if not isinstance(data.get("type"), str) and any(key in data for key in _DEFINITION_KEYS):
        return Document(data, name or _text(data.get("name")))
    return _bare_actions(data, name)


def _arm(data: dict[str, Any], name: str) -> Document:
    found = [
        (index, resource)
        for index, resource in enumerate(data["resources"])
        if isinstance(resource, dict) and str(resource.get("type", "")).lower() == _RESOURCE
    ]
    if len(found) != 1:
        message = (
            f"an ARM template needs exactly one resource of type Microsoft.Logic/workflows, this one has {len(found)}"
        )
        raise DefinitionError([Problem("resources", message)])
    index, resource = found[0]
    properties = resource.get("properties")
    path = at(at("resources", index), "properties")
    if not isinstance(properties, dict) or not isinstance(properties.get("definition"), dict):
        raise DefinitionError([Problem(at(path, "definition"), "the workflow has no definition")])
    return Document(_with_values(properties), name or _text(resource.get("name")), "", at(path, "definition"))


def _with_values(properties: dict[str, Any]) -> dict[str, Any]:
    """Take the definition out of a resource, and give its parameters the values beside it, such as `$connections`.

    Values replace defaults. A value that a deployment would have to evaluate is not known here, and is left out.
    """
    definition: dict[str, Any] = properties["definition"]
    given, declared = properties.get("parameters"), definition.get("parameters")
    if isinstance(given, dict) and isinstance(declared, dict):
        for name, entry in given.items():
            if isinstance(declared.get(name), dict) and _has_value(entry):
                declared[name] = {**declared[name], "defaultValue": entry["value"]}
    return definition


def _has_value(entry: Any) -> bool:
    if not isinstance(entry, dict) or "value" not in entry:
        return False
    return not (isinstance(entry["value"], str) and is_opaque(entry["value"]))


def _bare_actions(data: dict[str, Any], name: str) -> Document:
    kind = data.get("type")
    if isinstance(kind, str):
        own = "" if kind.lower().endswith(_NAMED_BY_THEMSELVES) else _text(data.get("name"))
        return Document({"actions": {own or kind: data}}, name or own, shape="action")
    if data and all(isinstance(value, dict) and isinstance(value.get("type"), str) for value in data.values()):
        return Document({"actions": data}, name, shape="actions")
    raise DefinitionError(_no_definition(data))


def _no_definition(data: dict[str, Any]) -> list[Problem]:
    """Explain why data is neither a definition nor a map of actions. Values with a `type` make it a map."""
    looks = [key for key, value in data.items() if isinstance(value, dict) and "type" in value]
    if looks:
        wrong = {key: value for key, value in data.items() if key not in looks or not isinstance(value["type"], str)}
        words = {True: "an action needs a 'type'", False: "an action must be an object"}
        return [Problem(at("", key), words[isinstance(value, dict)]) for key, value in wrong.items()]
    near = next((key for key in data if suggestion(key, _DEFINITION_KEYS[:1])), None)
    hint = f"did you mean 'actions' by '{near}'?" if near is not None else "a definition has an object `actions`"
    return [Problem("", "there is no workflow definition in this document", hint)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) and not value.startswith("[") else ""


def _kind_of(data: Any) -> str:
    kinds = {list: "an array", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(data), "a number")


# -- text to plain data ------------------------------------------------------------------------------------------------

MAX_BYTES = 16 << 20
"""Largest size of a file."""
MAX_DEPTH = 100
"""Deepest nesting of a document."""
MAX_VALUES = 1_000_000
"""Most values of a document, all aliases of YAML followed."""
MAX_PATHS = 128 << 20
"""Most characters of the paths of all values together."""
MAX_ALIASES = 1_000
"""Most aliases of a YAML text."""


_HALVES = frozenset(map(chr, range(0xD800, 0xE000)))


class _Doubled(dict[str, Any]):
    """An object with keys that were written twice. The last value counts; the keys are kept, to report them."""

    doubles: tuple[str, ...] = ()


def parse_text(text: str) -> Any:
    """Parse the text of a document to plain data. Raises `DefinitionError` with line and column."""
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


def without_comments(text: str) -> str:
    """Blank comments and trailing commas of a JSON text, which Azure's tools take. All else stays in its place."""
    text = _comments().sub(lambda found: found[0] if found[0][0] == '"' else _blank().sub(" ", found[0]), text)
    return _trailing_comma().sub(lambda found: found[0] if found[0][0] == '"' else " ", text)


_TEXT = r'"(?:[^"\\]|\\.)*+"?'
"""A text in JSON, also one without an end: possessive, so that reading it takes time in proportion to it."""


@cache
def _comments() -> re.Pattern[str]:
    """Compile the pattern of a text or a comment, on first use."""
    return re.compile(_TEXT + r"|//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?", re.DOTALL)


@cache
def _blank() -> re.Pattern[str]:
    """Compile the pattern of what is blanked in a comment: lines keep their numbers."""
    return re.compile(r"[^\r\n]")


@cache
def _trailing_comma() -> re.Pattern[str]:
    """Compile the pattern of a text or a trailing comma, on first use."""
    return re.compile(_TEXT + r"|,(?=\s*[}\]])", re.DOTALL)


def _with_comma(error: json.JSONDecodeError) -> json.JSONDecodeError:
    """Move the error of a trailing comma to the comma: Python does so since 3.13, and before named what follows."""
    text, before = error.doc, error.doc[: error.pos].rstrip()
    kind = {"}": "object", "]": "array"}.get(text[error.pos : error.pos + 1])
    if kind is None or not before.endswith(","):
        return error
    return json.JSONDecodeError(f"Illegal trailing comma before end of {kind}", text, len(before) - 1)


def check_plain(data: Any) -> None:
    """Refuse values that JSON lacks, deep nesting and too many values. Raises `DefinitionError`."""
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
    """Refuse names so long that the paths below them would fill the memory. Raises `DefinitionError`."""
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
"""Way to a value: the way to its container, and its key. A path is made of it only for a problem."""


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
    """Tell whether all characters are whole. JSON can write lone surrogates, which no store keeps."""
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
    doubled = _Doubled(plain)
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

        from loom.flows.strict_yaml import load_yaml
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
"""Advice about the usual mistakes, by the parser's message."""
