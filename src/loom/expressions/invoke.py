"""Calling a function of the language by its name, outside of any expression. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions.calls import call_problem
from loom.expressions.errors import FunctionError
from loom.expressions.functions import find

if TYPE_CHECKING:
    from loom.expressions.environment import Environment


def call_function(name: str, *values: Any, env: Environment | None = None) -> Any:
    """What a function gives for these values; raises `FunctionError` if it refuses them."""
    problem = call_problem(name, len(values))
    found = find(name)
    if found is None or problem is not None:
        raise FunctionError(problem or name)
    return found.call(env, *values) if found.asks else found.call(*values)
