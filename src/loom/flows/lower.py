"""Compiling: from a document to problems and a program. Pure.

The same document and limits give the same program everywhere, node by node and block by block: a run's state is made
of their numbers.
"""

from __future__ import annotations

from typing import Any

from loom.flows.diagnostics import DefinitionError, Problem
from loom.flows.dialect import top_level_is_loom
from loom.flows.document import Document, digest_of, document_text, read_document, stored_document
from loom.flows.document_text import check_paths
from loom.flows.limits import Limits
from loom.flows.lowering import heads
from loom.flows.lowering.blocks import lower_block
from loom.flows.lowering.context import Lowering, Place
from loom.flows.lowering.sources import Located
from loom.flows.program import Program
from loom.flows.references import check_references, mark_kept_iterations
from loom.flows.security import mark_secure


def compile_flow(
    source: dict[str, Any] | str | Document, *, name: str = "", limits: Limits | None = None, stored: bool = False
) -> tuple[Program | None, list[Problem]]:
    """The program of a document and everything that is to be said about it; no program if there are errors.

    A document that was `stored` loads though it asks for more than a new one may; the walk keeps to the limits.
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
    """The program of a document. Raises `DefinitionError`, with all problems, if it cannot be loaded."""
    program, problems = compile_flow(source, name=name, limits=limits, stored=stored)
    if program is None:
        raise DefinitionError(problem for problem in problems if problem.severity == "error")
    return program


def program_of(text: str) -> Program:
    """The program of a document as it was stored: the very same one."""
    document, limits = stored_document(text)
    return load_program(document, limits=limits, stored=True)


def _program(low: Lowering) -> Program:
    document = low.document
    loom = top_level_is_loom(document.definition)
    program = Program(document.name, digest_of(document_text(document, low.limits)))
    program.parameters = heads.parameters(low)
    program.triggers = heads.triggers(low, loom=loom)
    _top_level(low, loom)
    low.reading(-1, "")
    program.outputs = heads.outputs(low, loom=loom)
    program.nodes = [node for node in low.nodes if node is not None]
    program.blocks = low.blocks
    for node in program.nodes:
        program.by_name[node.name] = node.index
    for node in program.nodes:
        program.by_name.setdefault(node.name.lower(), node.index)
    for reference in low.references:
        if reference.owner >= 0:
            program.nodes[reference.owner].calls += 1
    check_references(low, program)
    mark_kept_iterations(low, program)
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
    lower_block(low, actions, Place(loom=loom), only=only)
