"""Checks of what expressions refer to: actions, variables, parameters, functions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom.expressions.functions import all_names, find
from loom.flows.lowering.variables import LOOP_VARIABLES
from loom.flows.program import Parameter

if TYPE_CHECKING:
    from loom.flows.lowering.context import Lowering, Reference
    from loom.flows.program import Program

ACTION_FUNCTIONS = frozenset(
    {
        "actions",
        "outputs",
        "body",
        "actionoutputs",
        "actionbody",
        "result",
        "items",
        "iterationindexes",
        "formdatavalue",
        "formdatamultivalues",
        "multipartbody",
    }
)
"""Functions whose first argument names an action."""

MAX_VARIABLES, MAX_ACTIONS = 250, 500
"""Limits of the platform: exceeding them is warned of."""

_LOOPS = frozenset({"foreach", "until", "while", "dountil"})
_LOOP_VARIABLES = {name.lower() for name in LOOP_VARIABLES}


def check_references(low: Lowering, program: Program) -> None:
    """Warn of names that mean nothing in this document; they may still mean something in a run."""
    for reference in low.references:
        if reference.problem is not None:
            known = find(reference.function) is not None
            hint = "" if known else low.problems.near(reference.function, all_names())
            low.problems.warn(reference.path, reference.problem, hint)
        elif reference.name is not None:
            _check_name(low, program, reference, reference.name)
    for _, part in low.assigned:
        if "@" not in part.value:
            _check_variable(low, part.path, part.value)
    _check_sizes(low, program)


def _check_name(low: Lowering, program: Program, reference: Reference, name: str) -> None:
    if reference.function in ACTION_FUNCTIONS:
        if program.find(name) is None and name.lower() not in low.names:
            hint = low.problems.near(name, (node.name for node in program.nodes))
            low.problems.warn(reference.path, f"there is no action '{name}'", hint)
    elif reference.function == "parameters":
        _check_parameter(low, program, reference.path, name)
    elif reference.function == "variables":
        in_loop = reference.owner >= 0 and _has_loop_variable(program, reference.owner, name.lower())
        if not in_loop:
            _check_variable(low, reference.path, name)


def _check_parameter(low: Lowering, program: Program, path: str, name: str) -> None:
    """One that is not declared may be given all the same: Standard declares them beside its workflows."""
    known = program.parameters.setdefault(name.lower(), Parameter(name, type="", declared=False))
    if not known.declared:
        declared = (parameter.name for parameter in program.parameters.values() if parameter.declared)
        hint = low.problems.near(name, declared) or "it may be given when the flow is started"
        low.problems.warn(path, f"there is no parameter '{name}'", hint)


def _check_variable(low: Lowering, path: str, name: str) -> None:
    if name.lower() not in low.variables:
        hint = low.problems.near(name, low.variables.values()) or "it may be set when the flow is started"
        low.problems.warn(path, f"no action initialises a variable '{name}'", hint)


def _has_loop_variable(program: Program, owner: int, name: str) -> bool:
    """Whether a loop around the action, or the action itself, sets a variable of this name."""
    loops = [program.nodes[index] for index in (*program.nodes[owner].loops, owner)]
    loops = [node for node in loops if node.type in _LOOPS]
    if name == "item":
        return any(node.type == "foreach" for node in loops)
    prefix, _, last = name.rpartition("_")
    if last not in _LOOP_VARIABLES:
        return False
    return bool(loops) if not prefix else any(node.name.lower() == prefix for node in loops)


def _check_sizes(low: Lowering, program: Program) -> None:
    path = low.document.actions_path
    if len(program.nodes) > MAX_ACTIONS:
        low.problems.warn(path, f"there are more than {MAX_ACTIONS} actions")
    if len(low.variables) > MAX_VARIABLES:
        low.problems.warn(path, f"there are more than {MAX_VARIABLES} variables")


def mark_kept_iterations(low: Lowering, program: Program) -> None:
    """Loops whose `result()` somebody asks for keep the records of all iterations."""
    asked = [reference.name for reference in low.references if reference.function == "result"]
    found = [program.find(name) if name is not None else None for name in asked]
    for node in program.nodes if None in found else found:
        assert node is not None
        node.keeps_iterations = node.keeps_iterations or node.type in _LOOPS
