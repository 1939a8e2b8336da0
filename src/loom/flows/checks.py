"""Checks of what a run begins with, against the program. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions.values import is_number, kind_of
from loom.flows.schema_checks import schema_check
from loom.flows.suggest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.flows.program import Program, Trigger

_FITS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": is_number,
    "bool": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: value is None or isinstance(value, dict),
}


def body_problems(program: Program, trigger: str, body: Any) -> list[str]:
    """What the schema of the trigger objects to in the body of a start.

    A run of a trigger that splits has an element as its body, and the schema is about the whole.
    """
    named = [found for found in program.triggers if found.name == trigger] or program.triggers[:1]
    return schema_problems(named[0], body) if named and named[0].split_on is None else []


def schema_problems(trigger: Trigger, body: Any) -> list[str]:
    """What the schema of a trigger objects to in what it brings, if the trigger wants it to be checked."""
    if not trigger.validates or trigger.schema is None:
        return []
    objection = schema_check(trigger.schema)(body)
    return [f"The body does not fit the schema of the trigger '{trigger.name}': {objection}"] if objection else []


PARAMETER_TYPES = ("String", "SecureString", "Int", "Float", "Bool", "Array", "Object", "SecureObject")


def fits(kind: str, value: Any) -> bool:
    """Whether a value is of a type of parameters, in lower case; of an unknown one everything is."""
    check = _FITS.get(kind.removeprefix("secure"))
    return check is None or check(value)


def parameter_problems(program: Program, given: dict[str, Any]) -> list[str]:
    """What is wrong with the parameters of a start, a sentence each."""
    problems = []
    for name, value in given.items():
        parameter = program.parameters.get(name.lower())
        if parameter is None:
            known = [known.name for known in program.parameters.values()]
            problems.append(f"There is no parameter '{name}'.{did_you_mean(name, known)}")
            continue
        if not fits(parameter.type, value):
            problems.append(f"The parameter '{name}' is of type {parameter.type}, and the value is {kind_of(value)}.")
        elif parameter.allowed is not None and value not in parameter.allowed:
            problems.append(f"The parameter '{name}' must be one of {list(parameter.allowed)}.")
    return problems
