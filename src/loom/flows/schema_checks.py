"""Checks of data against a JSON Schema: with bounded work, without a look at any other place. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from loom.expressions.metering import refuses
from loom.flows.schema_paths import MAX_PATHS, MAX_STEPS, SchemaPaths, TooManySteps

if TYPE_CHECKING:
    from collections.abc import Callable

    import jsonschema_rs

SchemaCheck: TypeAlias = "Callable[[Any], str | None]"
"""Says what the schema objects to, None if nothing."""

_SHOWN = 300


def schema_check(schema: Any) -> SchemaCheck:
    """Compile a schema; one that names no draft is of draft 7 or 4. Raises `ValueError` if it cannot be used.

    A check that would take too many steps objects, but in runs that began before there were budgets.
    """
    validator = _validator(schema)
    paths = SchemaPaths(schema)

    def check(value: Any) -> str | None:
        try:
            if refuses():
                paths.check(value)
                if validator.is_valid(value):
                    return None
                if not paths.can_be_told(value):
                    return "the value does not fit the JSON Schema; it is too large, with so many choices, to say where"
        except TooManySteps:
            return f"a check of this value takes over {MAX_STEPS:,} steps: the paths of the JSON Schema multiply"
        error = next(validator.iter_errors(value), None)
        return None if error is None else _shown(error)

    return check


def path_problem(schema: Any) -> str | None:
    """What is wrong with the paths of a schema, if a document that is new has it; None if nothing."""
    if SchemaPaths(schema).count <= MAX_PATHS:
        return None
    return f"this JSON Schema has more than {MAX_PATHS:,} paths: its choices and references multiply"


def unusable(reason: str) -> SchemaCheck:
    """The check of a schema that cannot be used: it objects to everything."""
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
