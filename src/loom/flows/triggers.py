"""Triggers and starts: fire a trigger, and check the body and the parameters that a run begins with.

A run that is started by hand fires no trigger. It begins with the body that its caller gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions import Constant, ContextEnvironment, ExpressionError
from loom.expressions.dotnet.timestamps import timestamp_text
from loom.expressions.meter import Meter, metered_by
from loom.expressions.values import is_number, kind_of
from loom.flows.action_types import is_loop_variable
from loom.flows.diagnostics import did_you_mean
from loom.flows.nodes.data import InitializeVariables
from loom.flows.schema_checks import schema_check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from loom.flows.program import Program, Trigger


REQUESTS = frozenset({"request", "manual"})
"""Types of triggers that a request fires."""
TIMED = frozenset({"recurrence", "schedule", "slidingwindow"})
"""Types of triggers that time fires."""
POLLED = frozenset({"http", "apiconnection", "openapiconnection", "serviceprovider"})
"""Types of triggers that ask a service again and again whether there is something new."""
SUBSCRIBED = frozenset({"httpwebhook", "apiconnectionwebhook", "openapiconnectionwebhook"})
"""Types of triggers that a service calls, after it was asked to."""
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
"""Methods that a trigger may ask for."""


class FiringRefused(ValueError):
    """Raised if a trigger cannot fire with the outputs that it was given."""


def request_trigger(program: Program) -> Trigger | None:
    """Find the trigger that a request fires: one of its types, else the first; None if there is none."""
    made_for_it = (trigger for trigger in program.triggers if trigger.type in REQUESTS)
    return next(made_for_it, program.triggers[0] if program.triggers else None)


def fires_by_request(trigger: Trigger | None) -> bool:
    """Tell whether a trigger is made for requests. A flow without triggers is fired by any."""
    return trigger is None or trigger.type in REQUESTS


def request_methods(trigger: Trigger | None) -> tuple[str, ...]:
    """List the methods of requests that fire a trigger: those that it names, POST if it names none."""
    named = named_methods(_asked(trigger, "method"))
    return tuple(method for method in METHODS if method in named) or (() if named else ("POST",))


def named_methods(asked: Any) -> set[str]:
    """Read the methods that a trigger names: one, several with commas, or a list. They are in upper case."""
    texts = asked if isinstance(asked, list) else [asked]
    return {part.strip().upper() for text in texts if isinstance(text, str) for part in text.split(",")} - {""}


def relative_path(trigger: Trigger | None) -> str | None:
    """Return the path below its address that a trigger asks for, such as `orders/{id}`; None if it asks for none."""
    path = _asked(trigger, "relativePath")
    return path.strip("/") or None if isinstance(path, str) else None


def path_values(relative: str, given: Sequence[str]) -> dict[str, str] | None:
    """Return the values that the segments of a path have for a relative path; None if it is another path."""
    wanted = relative.split("/")
    if len(wanted) != len(given):
        return None
    values: dict[str, str] = {}
    for part, value in zip(wanted, given, strict=True):
        if len(part) > 2 and part[0] == "{" and part[-1] == "}" and value:  # noqa: PLR2004 - the braces
            values[part[1:-1]] = value
        elif part != value:
            return None
    return values


def _asked(trigger: Trigger | None, name: str) -> Any:
    """Return what a trigger says about requests: in its inputs, or in Loom's dialect beside them."""
    definition = trigger.definition if trigger is not None else {}
    inputs = definition.get("inputs")
    return inputs[name] if isinstance(inputs, dict) and name in inputs else definition.get(name)


def asks_before_it_fires(trigger: Trigger | None) -> bool:
    """Tell whether a trigger has expressions, which `fired` evaluates with what the project gives."""
    return trigger is not None and (bool(trigger.conditions) or trigger.split_on is not None)


def fired(
    program: Program,
    trigger: Trigger | None,
    outputs: dict[str, Any],
    at: float,
    parameters: dict[str, Any] | None = None,
    given: Mapping[str, Any] | None = None,
) -> list[Any] | None:
    """List the bodies of the runs that a firing starts: one per element of `splitOn`. None if a condition fails.

    `given` are the `parameters` and `appSettings` of the flow's project, if it has one; `parameters` are values that
    the caller gives in place of these and of the defaults.
    """
    if trigger is None:
        return [outputs.get("body")]
    problems = _schema_problems(trigger, outputs.get("body"))
    if problems:
        raise FiringRefused(" ".join(problems))
    if not asks_before_it_fires(trigger):
        return [outputs.get("body")]
    given = given or {}
    defaults = {each.name: each.default for each in program.parameters.values() if each.has_default}
    env = ContextEnvironment(
        {
            "utcNow": timestamp_text(at),
            **given,
            "parameters": {**defaults, **given.get("parameters", {}), **(parameters or {})},
            "trigger": {"name": trigger.name, "inputs": None, "outputs": outputs, "status": "Succeeded", "code": "OK"},
        }
    )
    try:
        with metered_by(Meter()):
            if not all(condition(env) for condition in trigger.conditions):
                return None
            found = trigger.split_on(env) if trigger.split_on is not None else [outputs.get("body")]
    except ExpressionError as error:
        # An error about a secret may repeat it.
        is_secret = bool(given.get("appSettings")) or any(each.is_secure for each in program.parameters.values())
        why = "" if is_secret else f": {error}"
        raise FiringRefused(f"The trigger '{trigger.name}' cannot fire{why or '.'}") from error
    if not isinstance(found, list):
        raise FiringRefused(f"splitOn of the trigger '{trigger.name}' gives {kind_of(found)}, not an array.")
    return found


# -- checks of a start -------------------------------------------------------------------------------------------------

_FITS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": is_number,
    "bool": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: value is None or isinstance(value, dict),
}


def body_problems(program: Program, trigger: str, body: Any) -> list[str]:
    """List the objections of the trigger's schema to the body of a start.

    There are none for a trigger that splits: its run has an element as its body, and the schema is for the whole.
    """
    named = [found for found in program.triggers if found.name == trigger] or program.triggers[:1]
    return _schema_problems(named[0], body) if named and named[0].split_on is None else []


def _schema_problems(trigger: Trigger, body: Any) -> list[str]:
    """List the objections of a trigger's schema to a body, if the trigger asks for the check."""
    if not trigger.validates or trigger.schema is None:
        return []
    objection = schema_check(trigger.schema)(body)
    return [f"The body does not fit the schema of the trigger '{trigger.name}': {objection}"] if objection else []


PARAMETER_TYPES = ("String", "SecureString", "Int", "Float", "Bool", "Array", "Object", "SecureObject")


def fits(kind: str, value: Any) -> bool:
    """Tell whether a value fits a type of parameters, in lower case. Every value fits an unknown type."""
    check = _FITS.get(kind.removeprefix("secure"))
    return check is None or check(value)


def variable_problems(program: Program, given: dict[str, Any]) -> list[str]:
    """List the problems of a start's variables: names that only loops may set, unless the flow declares them."""
    operations = [node.operation for node in program.nodes]
    names = [spec.name for one in operations if isinstance(one, InitializeVariables) for spec in one.variables]
    own = {str(name.value).lower() for name in names if isinstance(name, Constant)}
    return [
        f"The variable '{name}' is set by the loops themselves, so a start cannot give it."
        for name in given
        if is_loop_variable(name) and name.lower() not in own
    ]


def parameter_problems(program: Program, given: dict[str, Any]) -> list[str]:
    """List the problems of a start's parameters, a sentence each."""
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
