"""What happens when a trigger fires: its conditions, and how it splits what it brings. Pure.

A run that is started by hand has nothing to do with this: it begins with what it is given. May import loom.expressions
and the rest of loom.flows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions import ContextEnvironment, ExpressionError
from loom.expressions.dotnet.timestamps import timestamp_text
from loom.expressions.metering import Meter, metered_by
from loom.expressions.values import kind_of
from loom.flows.checks import schema_problems

if TYPE_CHECKING:
    from loom.flows.program import Program, Trigger

REQUESTS = frozenset({"request", "manual"})
"""The types of triggers that are fired by a request."""


class FiringRefused(ValueError):
    """A trigger cannot fire with what it was given."""


def request_trigger(program: Program) -> Trigger | None:
    """The trigger that a request fires: the one that is made for it, else the first; None if there is none at all."""
    made_for_it = (trigger for trigger in program.triggers if trigger.type in REQUESTS)
    return next(made_for_it, program.triggers[0] if program.triggers else None)


def fired(program: Program, trigger: Trigger | None, outputs: dict[str, Any], at: float) -> list[Any]:
    """The bodies of the runs that a firing starts: none if a condition does not hold, one per element of `splitOn`."""
    if trigger is None:
        return [outputs.get("body")]
    problems = schema_problems(trigger, outputs.get("body"))
    if problems:
        raise FiringRefused(" ".join(problems))
    env = ContextEnvironment(
        {
            "utcNow": timestamp_text(at),
            "parameters": {each.name: each.default for each in program.parameters.values() if each.has_default},
            "trigger": {"name": trigger.name, "inputs": None, "outputs": outputs, "status": "Succeeded", "code": "OK"},
        }
    )
    try:
        with metered_by(Meter()):
            if not all(condition(env) for condition in trigger.conditions):
                return []
            found = trigger.split_on(env) if trigger.split_on is not None else [outputs.get("body")]
    except ExpressionError as error:
        # What goes wrong with a secret may repeat it.
        why = "" if any(each.is_secure for each in program.parameters.values()) else f": {error}"
        raise FiringRefused(f"The trigger '{trigger.name}' cannot fire{why or '.'}") from error
    if not isinstance(found, list):
        raise FiringRefused(f"splitOn of the trigger '{trigger.name}' gives {kind_of(found)}, not an array.")
    return found
