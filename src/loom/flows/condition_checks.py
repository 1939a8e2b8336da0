"""Checks of the tests of loops: one that always gives the same, or that nothing in its loop changes, ends no loop.

Such a loop goes on until its limits end it. That may be meant, so these are warnings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.expressions.functions import find
from loom.flows.action_types import is_loop_variable
from loom.flows.lowering.context import ACTION_FUNCTIONS

if TYPE_CHECKING:
    from loom.flows.lowering.context import Lowering, Reference
    from loom.flows.program import Node, Program

_FIXED = {"parameters", "workflow", "appsetting", "listcallbackurl"}
"""Functions that ask for what stays the same as long as a run, beside those of its trigger."""
_HINT = "what the loop does cannot end it; its limits can"


def check_conditions(low: Lowering, program: Program) -> None:
    """Warn of loops whose test never changes its answer."""
    told = {problem.path for problem in low.problems.found}
    for index, path in low.conditions:
        if path in told:
            continue
        reads = [each for each in low.references if each.owner == index and _is_within(each.path, path)]
        asking = [each for each in reads if _asks(each)]
        if not asking:
            low.problems.warn(path, "the condition is constant", _HINT)
        elif not any(_changes(low, program, program.nodes[index], each) for each in asking):
            names = ", ".join(sorted({_shown(each) for each in asking}))
            message = f"nothing in the loop changes what its condition reads: {names}"
            low.problems.warn(path, message, _HINT)


def _shown(reference: Reference) -> str:
    return f"{reference.function}('{reference.name}')" if reference.name else f"{reference.function}()"


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith((f"{outer}.", f"{outer}["))


def _asks(reference: Reference) -> bool:
    """Tell whether a function asks for anything but its arguments. An unknown one may."""
    known = find(reference.function)
    return known is None or known.asks


def _changes(low: Lowering, program: Program, loop: Node, reference: Reference) -> bool:
    """Tell whether what a function reads may differ after an iteration."""
    function, name = reference.function, reference.name
    if function in _FIXED or function.startswith("trigger"):
        return False
    if name is None:
        return True
    if function == "variables":
        return is_loop_variable(name) or any(
            owner in loop.descendants and ("@" in part.value or part.value.lower() == name.lower())
            for owner, part in low.assigned
        )
    if function in ACTION_FUNCTIONS:
        found = program.find(name)
        return found is None or found.index == loop.index or found.index in loop.descendants
    return True
