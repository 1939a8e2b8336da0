"""Documents that callers send: read, compiled and judged, never executed. May import loom.flows and loom.runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from loom.effects.threads import aside
from loom.flows.diagnostics import DefinitionError, Problem
from loom.flows.document import read_document
from loom.flows.lower import compile_flow
from loom.flows.places import Places, pointer_of
from loom.runtime.flow import Flow
from loom.server.problems import ApiProblem, invalid
from loom.server.routing import check_shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom.flows.document import Document
    from loom.flows.limits import Limits
    from loom.flows.program import Program
    from loom.server.routing import Call
    from loom.server.shapes_definitions import Diagnostic

_YAML = frozenset({"application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml"})
_NAMELESS = "flow"


class Judged(NamedTuple):
    """What became of a document: a flow if it can be used, and all that is to be said about it."""

    flow: Flow | None
    diagnostics: list[Diagnostic]


async def judged_body(call: Call, name: str | None = None) -> Judged:
    """The document in the body of a request, in JSON or YAML: to be put under a name, or only to be judged."""
    body = await call.request.body()
    kind = call.request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or kind.endswith("+json")
    if not is_json and kind not in _YAML:
        detail = f"A definition is sent as application/json or application/yaml, not as {kind[:100]}."
        raise ApiProblem("unsupported-media-type", detail)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise invalid(f"The body is no text in UTF-8: {error.reason} at byte {error.start}.") from error
    if is_json:
        await aside("judge", check_shape, text, call.settings)
    # In a thread, and one at a time: a large document takes seconds of a core, which others need too.
    async with call.server.reading if name is not None else call.server.validating:
        return await aside("judge", judged, text, name or _NAMELESS, call.settings.limits, is_json=is_json)


def judged(text: str, name: str, limits: Limits, *, is_json: bool = False) -> Judged:
    """A document by its text."""
    if is_json and text.strip()[:1] not in ("{", ""):
        return Judged(None, _diagnostics(text, [Problem("", "a definition in JSON is an object", spot=(1, 1))]))
    try:
        document = read_document(text, name=name)
    except DefinitionError as error:
        return Judged(None, _diagnostics(text, error.problems))
    program, problems = compile_flow(document, limits=limits)
    if program is None:
        return Judged(None, _diagnostics(text, problems))
    document, program = _unwrapped(document, limits) or (document, program)
    return Judged(Flow(program, document, limits, problems), _diagnostics(text, problems))


def _unwrapped(document: Document, limits: Limits) -> tuple[Document, Program] | None:
    """The same without what it was wrapped in, as it is shown to those who ask for it: put again, it is the same."""
    plain = replace(document, path="", shape="definition")
    program = compile_flow(plain, limits=limits)[0] if plain != document else None
    return (plain, program) if program is not None else None


def _diagnostics(text: str, problems: Iterable[Problem]) -> list[Diagnostic]:
    places = Places(text)
    return [_diagnostic(problem, places) for problem in problems]


def _diagnostic(problem: Problem, places: Places) -> Diagnostic:
    spot = problem.spot or places.find(problem.path)
    found: Diagnostic = {
        "path": pointer_of(problem.path),
        "message": f"{problem.message} ({problem.hint})" if problem.hint else problem.message,
        "severity": problem.severity,
        "code": "unreadable" if problem.spot is not None else "invalid" if problem.severity == "error" else "advice",
    }
    if spot is not None:
        found["line"], found["column"] = spot
    return found
