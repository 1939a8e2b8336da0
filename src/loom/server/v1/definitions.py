"""Definitions: list, put, get, delete, versions, validate, graph and schema. May import the server's frame and
loom.runtime.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import quote

from starlette.responses import PlainTextResponse, Response

from loom.effects.threads import aside, aside_if_large
from loom.runtime.durable.definitions_stored import DefinitionNotFound
from loom.runtime.durable.names import OWN
from loom.runtime.durable.registered import RegisteredFlow
from loom.runtime.flow import Flow
from loom.runtime.planners import flow_planner
from loom.server.answers import JsonAnswer, json_answer
from loom.server.problems import ApiProblem, invalid
from loom.server.routing import Route
from loom.server.v1.definition_documents import judged_body
from loom.server.v1.definition_pages import definitions_page, versions_page
from loom.server.v1.definition_views import (
    document_view,
    etag_of,
    flow_view,
    graph_view,
    mermaid_view,
    schemas_view,
    steps_document,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.runtime.durable.definitions_stored import Definition, Version
    from loom.runtime.durable.registered import Registered
    from loom.server.routing import Call
    from loom.server.shapes_definitions import PutDefinition, Validation
    from loom.steps.workflow import Workflow

_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f/\\\ud800-\udfff]{1,200}")
_LARGEST = 2**53
_MANY_NODES = 200
"""A flow with more of them is drawn in a thread."""

T = TypeVar("T")


class Found(NamedTuple):
    """A definition that a path names."""

    name: str
    code: Registered | None
    """What is at hand here: the current version, or a class in Python."""
    definition: Definition | None
    """What is stored; of a flow whose name the store cannot keep, nothing."""
    version: Version | None
    """The version that was asked for, or the current one."""


# -- reading ----------------------------------------------------------------------------------------------------------


async def list_definitions(call: Call) -> Response:
    """`GET /v1/definitions`."""
    call.check_query("limit", "cursor")
    await call.runtime.ready()
    return JsonAnswer(await definitions_page(call, call.page_size(), call.query("cursor")))


async def get(call: Call) -> Response:
    """`GET /v1/definitions/{name}`."""
    call.check_query("version")
    found, whole = await _found(call), call.principal.has("admin")
    if found.version is None:
        workflow = await _workflow(call, found)
        code = found.code
        if not isinstance(code, RegisteredFlow):
            return JsonAnswer(steps_document(found.name, workflow))
        text = code.document[1].decode()
        return await json_answer(await aside_if_large(partial(document_view, whole=whole), text))
    etag = etag_of(found.version)
    if _matches(call.request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers={"ETag": etag})
    text = await call.runtime.definitions.text_of(found.name, found.version)
    document = await aside_if_large(partial(document_view, whole=whole), text)
    return await json_answer(document, headers={"ETag": etag})


async def versions(call: Call) -> Response:
    """`GET /v1/definitions/{name}/versions`."""
    call.check_query("limit", "cursor")
    definition = (await _found(call)).definition
    return JsonAnswer(versions_page(definition, call.page_size(), call.query("cursor")))


async def graph(call: Call) -> Response:
    """`GET /v1/definitions/{name}/graph`."""
    call.check_query("version", "format")
    form = call.query("format") or "json"
    if form not in ("json", "mermaid"):
        raise invalid("The parameter 'format' is json or mermaid.")
    workflow = await _workflow(call, await _found(call))
    if form == "mermaid":
        return PlainTextResponse(await _seen(mermaid_view, workflow))
    return await json_answer(await _seen(graph_view, workflow))


async def _seen(view: Callable[[Workflow], T], workflow: Workflow) -> T:
    """Make a view of a workflow: in a thread if it is a large flow."""
    if isinstance(workflow, Flow) and len(workflow.program.nodes) > _MANY_NODES:
        return await aside("replay", view, workflow)
    return view(workflow)


async def schema(call: Call) -> Response:
    """`GET /v1/definitions/{name}/schema`."""
    call.check_query("version")
    return JsonAnswer(schemas_view(await _workflow(call, await _found(call))))


async def _found(call: Call) -> Found:
    """What the path and the query name. What a key may not see is not there for it."""
    name, number = call.request.path_params["name"], call.number("version", least=1, most=_LARGEST)
    runtime = call.runtime
    await runtime.ready()
    code = runtime.codes.get(name)
    if not call.principal.sees(name) or name.startswith(OWN):
        raise DefinitionNotFound(name[:200])
    if code is not None and not isinstance(code, RegisteredFlow):
        if number is not None:
            raise DefinitionNotFound(name, "is written in Python, and has no versions by number")
        return Found(name, code, None, None)
    definition = await runtime.definitions.stored.get(name)
    is_here = code is not None or (definition is not None and runtime.definitions.follow)
    if not is_here or (definition is not None and definition.deleted_at is not None):
        raise DefinitionNotFound(name[:200])
    if definition is None:
        return Found(name, code, None, None)
    version = definition.latest if number is None else definition.numbered(number)
    if version is None:
        raise DefinitionNotFound(name, f"has no version {number}")
    return Found(name, code, definition, version)


async def _workflow(call: Call, found: Found) -> Workflow:
    """The workflow itself; of a version that is not at hand, as it is stored."""
    code, version = found.code, found.version
    if code is not None and (version is None or (code.document is not None and code.document[0] == version.digest)):
        return code.workflow
    assert version is not None
    return await call.runtime.definitions.load(found.name, version)


# -- writing ----------------------------------------------------------------------------------------------------------


async def put(call: Call) -> Response:
    """`PUT /v1/definitions/{name}`."""
    call.check_query()
    name = _name(call)
    call.runtime.definitions.check_free(name)
    read = await judged_body(call, name)
    if read.flow is None:
        count = sum(each["severity"] == "error" for each in read.diagnostics)
        detail = f"The definition {name!r} has {count} error{'s' if count != 1 else ''}."
        raise ApiProblem("definition-invalid", detail, errors=[{**each} for each in read.diagnostics])
    if call.principal.workflows is not None and any(node.type == "workflow" for node in read.flow.program.nodes):
        # Whose name an action gives at last is known when it runs: too late to ask who had put it there.
        raise ApiProblem("forbidden", "A key that is limited to workflows may not put actions that start workflows.")
    # In a thread, for it takes a while: whoever works for the flow finds its planner made.
    await aside("judge", flow_planner, read.flow.document.encode())
    before, after = await call.runtime.definitions.put(name, read.flow, _condition(call))
    is_new = before is None or before.deleted_at is not None
    headers = {"ETag": etag_of(after.latest)}
    if is_new:
        headers["Location"] = f"{call.request.scope.get('root_path', '')}/v1/definitions/{quote(name, safe='')}"
    answer: PutDefinition = {**flow_view(name, after), "warnings": read.diagnostics}
    return JsonAnswer(answer, 201 if is_new else 200, headers)


async def delete(call: Call) -> Response:
    """`DELETE /v1/definitions/{name}`: runs under way go on."""
    call.check_query()
    await call.runtime.definitions.delete(_name(call), _condition(call))
    return Response(status_code=204)


async def validate(call: Call) -> Response:
    """`POST /v1/definitions/validate`: nothing is stored, and nothing is executed."""
    call.check_query()
    read = await judged_body(call)
    answer: Validation = {"valid": read.flow is not None, "diagnostics": read.diagnostics}
    return JsonAnswer(answer)


def _name(call: Call) -> str:
    """The name in the path, as a definition may be called that is put."""
    name: str = call.request.path_params["name"]
    if _NAME.fullmatch(name) is None or name != name.strip():
        raise invalid("A definition's name has 1 to 200 characters: no slashes, no control characters.", "/name")
    call.check_workflow(name)
    return name


def _condition(call: Call) -> Callable[[Definition | None], None]:
    """What `If-Match` and `If-None-Match` ask of the definition that is there."""
    wanted, unwanted = call.request.headers.get("if-match"), call.request.headers.get("if-none-match")

    def check(definition: Definition | None) -> None:
        etag = etag_of(definition.latest) if definition is not None and definition.deleted_at is None else None
        if wanted is not None and not _matches(wanted, etag):
            there = (
                f"version {definition.current} with {etag}" if definition is not None and etag is not None else "none"
            )
            raise ApiProblem("version-mismatch", f"If-Match asks for another definition than is stored: {there}.")
        if unwanted is not None and _matches(unwanted, etag):
            raise ApiProblem("version-mismatch", "If-None-Match refuses the definition that is stored.")

    return check


def _matches(header: str | None, etag: str | None) -> bool:
    """Whether a list of entity tags has this one; `*` is any that there is."""
    if header is None or etag is None:
        return False
    return header.strip() == "*" or etag in [each.strip() for each in header.split(",")]


ROUTES = (
    Route("GET", "/v1/definitions", list_definitions, "read"),
    Route("POST", "/v1/definitions/validate", validate, "read"),
    Route("PUT", "/v1/definitions/{name}", put, "admin"),
    Route("GET", "/v1/definitions/{name}", get, "read"),
    Route("DELETE", "/v1/definitions/{name}", delete, "admin"),
    Route("GET", "/v1/definitions/{name}/versions", versions, "read"),
    Route("GET", "/v1/definitions/{name}/graph", graph, "read"),
    Route("GET", "/v1/definitions/{name}/schema", schema, "read"),
)
