"""Checks of data against a JSON Schema, with bounded work and without retrieval of other schemas.

Two choices that refer to the same definition, which has two choices in turn, make four paths. Eighteen such levels make
a quarter of a million, and a check walks all of them. So paths are counted first, over the definitions, each once:
counting costs no more than reading. A schema that refers to itself has no number of paths; its steps are counted for
the value that is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from loom.expressions.meter import ELEMENT, NODE, refuses, spend

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsonschema_rs


SchemaCheck: TypeAlias = "Callable[[Any], str | None]"
"""Returns the schema's objection to a value; None if it fits."""

_SHOWN = 300


def schema_check(schema: Any) -> SchemaCheck:
    """Compile a schema; one that names no draft is of draft 7 or 4. Raises `ValueError` if it cannot be used.

    A check that would take too many steps objects, but in runs that began before there were budgets.
    """
    validator = _validator(schema)
    paths = _SchemaPaths(schema)

    def check(value: Any) -> str | None:
        try:
            if refuses():
                paths.check(value)
                if validator.is_valid(value):
                    return None
                if not paths.can_be_told(value):
                    return "the value does not fit the JSON Schema; it is too large, with so many choices, to say where"
        except _TooManySteps:
            return f"a check of this value takes over {MAX_STEPS:,} steps: the paths of the JSON Schema multiply"
        error = next(validator.iter_errors(value), None)
        return None if error is None else _shown(error)

    return check


def path_problem(schema: Any) -> str | None:
    """Return the objection to a new document's schema whose paths multiply; None if there are few."""
    if _SchemaPaths(schema).count <= MAX_PATHS:
        return None
    return f"this JSON Schema has more than {MAX_PATHS:,} paths: its choices and references multiply"


def unusable(reason: str) -> SchemaCheck:
    """Make the check of a schema that cannot be used. It objects to everything."""
    return lambda _value: f"the JSON Schema cannot be used: {reason}"


def _validator(schema: Any) -> jsonschema_rs.Validator:
    import jsonschema_rs as rs

    if not isinstance(schema, dict | bool):
        raise ValueError("a schema is an object")
    if isinstance(schema, dict) and isinstance(schema.get("$schema"), str):
        candidates: tuple[Any, ...] = (rs.validator_for,)
    else:
        candidates = (rs.Draft7Validator, rs.Draft4Validator)
    first: Exception | None = None
    for make in candidates:
        try:
            made: jsonschema_rs.Validator = make(schema, retriever=_no_retrieval, pattern_options=rs.RegexOptions())
        except (ValueError, TypeError) as error:
            first = first or error
        else:
            return made
    raise ValueError(str(first).splitlines()[0])


def _no_retrieval(uri: str) -> NoReturn:
    raise ValueError(f"a schema may not refer to another place: {uri}")


def _shown(error: jsonschema_rs.ValidationError) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path).lstrip(".")
    message = error.message if len(error.message) <= _SHOWN else error.message[: _SHOWN - 1] + "…"
    return f"{place}: {message}" if place else message


# -- paths and steps ---------------------------------------------------------------------------------------------------

MAX_PATHS = 10_000
"""Paths of a schema in a document that is new."""
MAX_STEPS = 1_000_000
"""Steps of one check. Fewer paths than these over all parts of a value are not counted one by one."""
MAX_TOLD = 4_000_000
"""Characters of all objections to one value. Each of a schema's choices makes one, with the whole value in it."""
_PART = 4
"""Characters of an element beside its own text."""
_MAX_DEPTH = 250
_STEP = 4 * NODE
"""Units of one step that is counted: about 2 us."""

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLES = ("not", "if", "then", "else")
_MAPS = ("dependentSchemas", "dependencies")
_OF_EACH_PROPERTY = ("additionalProperties", "unevaluatedProperties")
_OF_EACH_ITEM = ("items", "additionalItems", "contains", "unevaluatedItems")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class _TooManySteps(Exception):
    """A check would take more steps than one may."""


class _SchemaPaths:
    """The paths of one schema."""

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._anchors: dict[str, Any] | None = None
        self._counted: dict[int, int] = {}
        self._in_place: dict[int, list[Any]] = {}
        """By the identity of a part, which the schema keeps alive."""
        self._open: set[int] = set()
        self.is_recursive = False
        """True if some part of it refers to itself."""
        self.has_choices = False
        """True if one value may be checked by several schemas, of which one must fit."""
        self.count = self._count(schema, 0)
        """Number of paths. Counting stops at ten times `MAX_PATHS`."""

    def _count(self, schema: Any, depth: int) -> int:
        if not isinstance(schema, dict):
            return 1
        key = id(schema)
        if key in self._open or depth > _MAX_DEPTH:
            self.is_recursive = True
            return 1
        if key not in self._counted:
            self._open.add(key)
            self.has_choices = self.has_choices or "anyOf" in schema or "oneOf" in schema
            parts = [*self.in_place(schema), *_inner(schema)]
            total = 1 + len(schema.get("enum") or ()) if isinstance(schema.get("enum"), list) else 1
            self._counted[key] = min(total + sum(self._count(part, depth + 1) for part in parts), 10 * MAX_PATHS)
            self._open.discard(key)
        return self._counted[key]

    def in_place(self, schema: dict[str, Any]) -> list[Any]:
        """List the schemas that are applied to the same value. Found once, because a check asks for each part."""
        known = self._in_place.get(id(schema))
        if known is None:
            known = self._in_place[id(schema)] = self._find_in_place(schema)
        return known

    def _find_in_place(self, schema: dict[str, Any]) -> list[Any]:
        found = [self._target(schema[name]) for name in _REFERENCES if isinstance(schema.get(name), str)]
        for name in _LISTS:
            part = schema.get(name)
            found += part if isinstance(part, list) else []
        found += [schema[name] for name in _SINGLES if name in schema]
        for name in _MAPS:
            part = schema.get(name)
            found += part.values() if isinstance(part, dict) else []
        return found

    def _target(self, reference: str) -> Any:
        """Resolve a reference. One that names nothing here may mean the whole schema."""
        name, _, fragment = reference.partition("#")
        if not name and (not fragment or fragment.startswith("/")):
            return _by_pointer(self._root, fragment)
        if self._anchors is None:
            self._anchors = _anchors(self._root)
        return self._anchors.get(fragment or name, self._root)

    # -- over a value -------------------------------------------------------------------------------------------------

    def check(self, value: Any) -> None:
        """Raise `TooManySteps` if a check of the value would take too many."""
        if not self.is_recursive and self.count * _size(value, MAX_STEPS // self.count) <= MAX_STEPS:
            return
        _Steps(self).of(self._root, value, 0)

    def can_be_told(self, value: Any) -> bool:
        """Tell whether an objection stays small. Its text holds the value once for every choice."""
        return not self.has_choices or self.count * _characters(value, MAX_TOLD // self.count) <= MAX_TOLD


class _Steps:
    """Counts the steps over one value, each pair of a schema and a part once."""

    def __init__(self, paths: _SchemaPaths) -> None:
        self._paths = paths
        self._counted: dict[tuple[int, int], int] = {}

    def of(self, schema: Any, value: Any, depth: int) -> int:
        if not isinstance(schema, dict):
            return 1
        key = (id(schema), id(value))
        found = self._counted.get(key)
        if found is None:
            if depth > _MAX_DEPTH:
                raise _TooManySteps
            spend(_STEP)
            self._counted[key] = MAX_STEPS  # if it comes here again before it is known, it never ends
            enum = schema.get("enum")
            found = 1 + (len(enum) if isinstance(enum, list) else 0)
            for part in self._paths.in_place(schema):
                found += self.of(part, value, depth + 1)
            for part, inner in _applied(schema, value):
                found += self.of(part, inner, depth + 1)
                if found > MAX_STEPS:
                    break
            if found > MAX_STEPS:
                raise _TooManySteps
            self._counted[key] = found
        return found


def _inner(schema: dict[str, Any]) -> list[Any]:
    """List the schemas that are applied to parts of the value."""
    found: list[Any] = []
    for name in ("properties", "patternProperties"):
        part = schema.get(name)
        found += part.values() if isinstance(part, dict) else []
    for name in (*_OF_EACH_PROPERTY, *_OF_EACH_ITEM, "prefixItems", "propertyNames"):
        part = schema.get(name)
        found += part if isinstance(part, list) else [part] if part is not None else []
    return found


def _applied(schema: dict[str, Any], value: Any) -> list[tuple[Any, Any]]:
    """List pairs of a schema and the part of the value that it is, or may be, applied to."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            found += [(part, value[name]) for name, part in properties.items() if name in value]
        patterns = schema.get("patternProperties")
        everywhere = [*patterns.values()] if isinstance(patterns, dict) else []
        everywhere += [schema[name] for name in _OF_EACH_PROPERTY if name in schema]
        found += [(part, item) for part in everywhere for item in value.values()]
    elif isinstance(value, list):
        for name in ("items", "prefixItems"):
            part = schema.get(name)
            if isinstance(part, list):
                found += zip(part, value, strict=False)
        found += [
            (schema[name], item)
            for name in _OF_EACH_ITEM
            if name in schema and not isinstance(schema[name], list)
            for item in value
        ]
    if found:
        spend(len(found) * ELEMENT)
    return found


def _size(value: Any, most: int) -> int:
    """Count the parts of a value, up to about `most`."""
    total, level = 1, [value]
    while level and total <= most:
        inner: list[Any] = []
        for one in level:
            if isinstance(one, dict | list):
                total += len(one)
                inner += one.values() if isinstance(one, dict) else one
        level = inner
    return total


def _characters(value: Any, most: int) -> int:
    """Estimate the length of a value as text, up to about `most`."""
    total, level = 0, [value]
    while level and total <= most:
        one = level.pop()
        if isinstance(one, str):
            total += len(one)
        elif isinstance(one, dict):
            total += _PART * len(one) + sum(map(len, one))
            level += one.values()
        elif isinstance(one, list):
            total += _PART * len(one)
            level += one
    return total


def _by_pointer(root: Any, pointer: str) -> Any:
    found = root
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def _anchors(root: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    level = [root]
    while level:
        one = level.pop()
        if isinstance(one, dict):
            for name in ("$anchor", "$dynamicAnchor", "$id", "id"):
                if isinstance(one.get(name), str):
                    found.setdefault(one[name].lstrip("#"), one)
            level.extend(one.values())
        elif isinstance(one, list):
            level.extend(one)
    return found
