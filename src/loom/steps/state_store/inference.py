"""Which state a workflow has: read from the `Context[State]` annotations of its steps.

May import pydantic and `DictState`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from loom.steps.state_store.dict_state import DictState


def infer_state_type(workflow: Any) -> type[BaseModel]:
    """Return the most derived state class that the steps name, or `DictState` if they name none.

    Takes a workflow, or a mapping of step names to step functions or to their configs. All classes must lie on one
    chain of inheritance, else this is a `ValueError`.
    """
    steps = workflow if isinstance(workflow, Mapping) else workflow._get_steps()
    found: dict[type[BaseModel], None] = {}
    for step in steps.values():
        config: Any = getattr(step, "_step_config", step)
        state_type = config.context_state_type
        if isinstance(state_type, type) and issubclass(state_type, BaseModel) and state_type is not DictState:
            found[state_type] = None
    if not found:
        return DictState
    for candidate in found:
        if all(issubclass(candidate, other) for other in found):
            return candidate
    raise ValueError(
        "Multiple state types are not in a compatible inheritance hierarchy. "
        "All state types must share a common inheritance chain. Found: " + ", ".join(cls.__name__ for cls in found)
    )
