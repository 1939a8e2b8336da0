"""Compiling: from a document to a program and its problems.

The same document and limits give the same program everywhere, node by node and block by block: a run's state is made
of their numbers. `loom.flows.lowering` makes the nodes. Then the names that expressions refer to are checked over the
whole program, and `loom.flows.security` marks what is secure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.expressions.functions import all_names, find
from loom.flows.action_types import LOOP_TYPES, LOOP_VARIABLES, top_level_is_loom
from loom.flows.condition_checks import check_conditions
from loom.flows.diagnostics import DefinitionError, Problem
from loom.flows.document import Document, check_paths, digest_of, document_text, read_document, stored_document
from loom.flows.limits import MAX_ACTIONS, MAX_VARIABLES, Limits
from loom.flows.lowering import sections
from loom.flows.lowering.actions import lower_block
from loom.flows.lowering.context import ACTION_FUNCTIONS, BlockContext, Located, Lowering
from loom.flows.program import Parameter, Program
from loom.flows.security import mark_secure

if TYPE_CHECKING:
    from loom.flows.lowering.context import Reference


def compile_flow(
    source: dict[str, Any] | str | Document, *, name: str = "", limits: Limits | None = None, stored: bool = False
) -> tuple[Program | None, list[Problem]]:
    """Compile a document; return its program and its problems. The program is None if there are errors.

    A `stored` document loads though it asks for more than a new one may; the walk keeps to the limits.
    """
    limits = limits or Limits()
    try:
        document = source if isinstance(source, Document) else read_document(source, name=name)
        if not stored:
            check_paths(document.definition)
    except DefinitionError as error:
        return None, list(error.problems)
    low = Lowering(document, limits, lower_block, stored=stored)
    program = _program(low)
    problems = low.problems.found
    return (None if low.problems.has_errors else program), problems


def load_program(
    source: dict[str, Any] | str | Document, *, name: str = "", limits: Limits | None = None, stored: bool = False
) -> Program:
    """Compile a document. Raises `DefinitionError`, with all problems, if it cannot be loaded."""
    program, problems = compile_flow(source, name=name, limits=limits, stored=stored)
    if program is None:
        raise DefinitionError(problem for problem in problems if problem.severity == "error")
    return program


def program_of(text: str) -> Program:
    """Compile the stored text of a document. The program is the one that its runs began with."""
    document, limits = stored_document(text)
    return load_program(document, limits=limits, stored=True)


def _program(low: Lowering) -> Program:
    document = low.document
    loom = top_level_is_loom(document.definition)
    program = Program(document.name, digest_of(document_text(document, low.limits)))
    program.beside = document.beside
    program.parameters = sections.parameters(low)
    program.triggers = sections.triggers(low, loom=loom)
    _top_level(low, loom)
    low.reading(-1, "")
    program.outputs = sections.outputs(low, loom=loom)
    program.nodes = [node for node in low.nodes if node is not None]
    program.blocks = low.blocks
    for node in program.nodes:
        program.by_name[node.name] = node.index
    for node in program.nodes:
        program.by_name.setdefault(node.name.lower(), node.index)
    for reference in low.references:
        if reference.owner >= 0:
            program.nodes[reference.owner].calls += 1
    _check_references(low, program)
    check_conditions(low, program)
    _mark_kept_iterations(low, program)
    mark_secure(low, program)
    return program


def _top_level(low: Lowering, loom: bool) -> None:
    document = low.document
    actions = Located(document.definition, document.path).child("actions")
    only = ""
    if actions is not None and document.shape == "actions":
        actions = Located(actions.value, document.path)
    elif actions is not None and document.shape == "action":
        ((only, data),) = actions.value.items()
        actions = Located(data, document.path)
    lower_block(low, actions, BlockContext(loom=loom), only=only)


# -- references --------------------------------------------------------------------------------------------------------

_LOOP_VARIABLES = {name.lower() for name in LOOP_VARIABLES}


def _check_references(low: Lowering, program: Program) -> None:
    """Warn of names that this document does not define. A run may still be given them."""
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
    """Warn of an undeclared parameter. It may still be given: Standard declares parameters beside its workflows."""
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
    """Tell whether a loop around the action, or the action itself, sets a variable of this name."""
    loops = [program.nodes[index] for index in (*program.nodes[owner].loops, owner)]
    loops = [node for node in loops if node.type in LOOP_TYPES]
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


def _mark_kept_iterations(low: Lowering, program: Program) -> None:
    """Let loops keep the records of all iterations if an expression asks for their `result()`."""
    asked = [reference.name for reference in low.references if reference.function == "result"]
    found = [program.find(name) if name is not None else None for name in asked]
    for node in program.nodes if None in found else found:
        assert node is not None
        node.keeps_iterations = node.keeps_iterations or node.type in LOOP_TYPES
