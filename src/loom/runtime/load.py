"""Loading flows from files, text and data. May import loom.flows and the rest of loom.runtime."""

from __future__ import annotations

from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom.flows.diagnostics import DefinitionError, Problem
from loom.flows.document import read_document, stored_document
from loom.flows.document_text import MAX_BYTES
from loom.flows.limits import Limits
from loom.flows.lower import compile_flow
from loom.flows.suggest import did_you_mean
from loom.runtime.flow import Flow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.steps.ports import RuntimePort

FLOW_SUFFIXES = frozenset({".json", ".yaml", ".yml"})
"""The endings of files that are taken for flows."""

_NAMELESS = "flow"


def load(
    source: str | PathLike[str] | dict[str, Any],
    *,
    name: str | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    runtime: RuntimePort | None = None,
) -> Flow:
    """A flow from a path, from JSON or YAML text, or from a dict, in Logic Apps' dialect or in Loom's.

    Raises `DefinitionError`, which lists every problem with its JSON path. `limits` raises what the document may ask
    for: `{"max_iterations": 100_000, "max_duration_s": 7 * 86_400}`. A flow is named after its
    file, or as its document says.
    """
    allowed = limits if isinstance(limits, Limits) else _limits(limits or {})
    data, stem = _read(source)
    document = read_document(data, name=name or stem)
    if not document.name:
        document = replace(document, name=_NAMELESS)
    program, problems = compile_flow(document, limits=allowed)
    if program is None:
        raise DefinitionError(problem for problem in problems if problem.severity == "error")
    warnings = [problem for problem in problems if problem.severity != "error"]
    return Flow(program, document, allowed, warnings, runtime=runtime)


def _limits(given: Mapping[str, Any]) -> Limits:
    known = [field.name for field in fields(Limits)]
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"There is no limit {name!r}: {', '.join(known)}.{did_you_mean(name, known)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise ValueError(f"The limit {name} must be a number above 0, not {value!r}.")
    return Limits(**given)


def flow_of(text: str) -> Flow:
    """A flow from the text that it was stored as."""
    document, limits = stored_document(text)
    program, problems = compile_flow(document, limits=limits, stored=True)
    if program is None:
        raise DefinitionError(problem for problem in problems if problem.severity == "error")
    return Flow(program, document, limits, [])


def _read(source: str | PathLike[str] | dict[str, Any]) -> tuple[dict[str, Any] | str, str]:
    """The document's data or text, and the name of its file."""
    if isinstance(source, dict):
        return source, ""
    if isinstance(source, str) and (not source.strip() or "\n" in source or source.lstrip("\ufeff \t\r")[:1] in "{["):
        return source, ""
    if not isinstance(source, str | PathLike):
        raise TypeError(f"loom.load() takes a path, a text in JSON or YAML, or a dict, not {type(source).__name__}.")
    path = Path(source)
    stem = path.parent.name if path.name.lower() == "workflow.json" and path.parent.name else path.stem
    return read_text(path), stem


def read_text(path: Path) -> str:
    """The text of a file; a `DefinitionError` that names the file if there is none to read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DefinitionError([Problem("", f"{path} is larger than {MAX_BYTES >> 20} MiB.")])
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DefinitionError([Problem("", f"{path} is no text in UTF-8: {error}")]) from error
    except OSError as error:
        raise DefinitionError([Problem("", f"{path} cannot be read: {error.strerror or error}")]) from error
