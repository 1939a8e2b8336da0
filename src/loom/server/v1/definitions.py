"""Definitions: list, put, get, delete, versions, validate, graph and schema."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import quote

from msgspec import Meta
from msgspec.structs import asdict
from starlette.responses import PlainTextResponse, Response

from loom.api.answers import Page
from loom.api.definitions import Definition, DefinitionSchemas, DefinitionVersion, Graph, PutDefinition, Validation
from loom.api.refusals import Place
from loom.effects.off_loop import aside, aside_if_large
from loom.runtime.durable.names import OWN
from loom.runtime.durable.registration import FlowRegistration
from loom.runtime.durable.stored_definitions import (
    DEFINITIONS,
    DefinitionNotFound,
    DefinitionUnreadable,
    can_be_defined,
    read_definition,
)
from loom.runtime.flow import Flow
from loom.runtime.planners import flow_planner
from loom.runtime.render_definitions import etag_of, flow_view, steps_view, version_view
from loom.server.answers import JsonAnswer, json_answer
from loom.server.pages import not_given, read_cursor, write_cursor
from loom.server.problems import ApiProblem, invalid
from loom.server.routes import CURSOR, IF_NONE_MATCH, JSON, LIMIT, TEXT, YAML, Body, Param, Reply, RouteList
from loom.server.v1.definition_documents import (
    document_view,
    graph_view,
    judged_body,
    mermaid_view,
    schemas_view,
    steps_document,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.runtime.durable import stored_definitions as stored
    from loom.runtime.durable.catalog import CatalogEntry
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.stored_definitions import Version
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.call import Call
    from loom.store.records import Entry

route = RouteList("definitions")

_Version = Annotated[int, Meta(ge=1, le=2**53)]
_VERSION = Param("version", _Version, "The number of a version; without one, the current version.")
_DOCUMENT = Body(dict[str, Any], media=(JSON, YAML))
_CONDITIONS = (
    Param("If-Match", str, "An ETag: only if the stored definition has it; `*`: only if there is one.", "header"),
    Param("If-None-Match", str, "`*`: only if there is none yet.", "header"),
)


_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f/\\\ud800-\udfff]{1,200}")
_LARGEST = 2**53
_MANY_NODES = 200
"""A flow with more of them is drawn in a thread."""

T = TypeVar("T")


class Found(NamedTuple):
    """A definition that a path names."""

    name: str
    code: Registration | None
    """The code of this process: the current version, or a class in Python."""
    definition: stored.StoredDefinition | None
    """What is stored; of a flow whose name the store cannot keep, nothing."""
    version: Version | None
    """The version that was asked for, or the current one."""
    steps: CatalogEntry | None = None
    """Of a workflow in Python: what its code tells, or what another process has written of it."""


# -- reading ----------------------------------------------------------------------------------------------------------


@route(
    "GET",
    "/v1/definitions",
    "listDefinitions",
    scope="read",
    summary="List workflows by name",
    params=(LIMIT, CURSOR),
    replies={200: Reply("A page of workflows that are known here or to another process.", Page[Definition])},
)
async def list_definitions(call: Call) -> Response:
    """`GET /v1/definitions`."""
    call.check_query()
    await call.runtime.ready()
    return JsonAnswer(await definitions_page(call, call.page_size(), call.query("cursor")))


@route(
    "GET",
    "/v1/definitions/{name}",
    "getDefinition",
    scope="read",
    summary="Get the document of a flow, or the events of a workflow in Python",
    params=(_VERSION, IF_NONE_MATCH),
    replies={
        200: Reply("The document as it was put.", dict[str, Any], headers=("ETag",)),
        304: Reply("Nothing has changed.", headers=("ETag",)),
    },
    problems=("definition-invalid",),
)
async def get(call: Call) -> Response:
    """`GET /v1/definitions/{name}`."""
    call.check_query()
    found, whole = await _found(call), call.principal.has("admin")
    if found.steps is not None:
        return JsonAnswer(steps_document(found.name, found.steps))
    if found.version is None:
        assert isinstance(found.code, FlowRegistration)
        text = found.code.document[1].decode()
        return await json_answer(await aside_if_large(partial(document_view, whole=whole), text))
    etag = etag_of(found.version)
    if _matches(call.request.headers.get("if-none-match"), etag):
        return Response(status_code=304, headers={"ETag": etag})
    text = await call.runtime.definitions.text_of(found.name, found.version)
    document = await aside_if_large(partial(document_view, whole=whole), text)
    return await json_answer(document, headers={"ETag": etag})


@route(
    "GET",
    "/v1/definitions/{name}/versions",
    "listVersions",
    scope="read",
    summary="List the versions of a flow, newest first",
    params=(LIMIT, CURSOR),
    replies={200: Reply("A page of versions; a workflow in Python has none.", Page[DefinitionVersion])},
)
async def versions(call: Call) -> Response:
    """`GET /v1/definitions/{name}/versions`."""
    call.check_query()
    definition = (await _found(call)).definition
    return JsonAnswer(versions_page(definition, call.page_size(), call.query("cursor")))


@route(
    "GET",
    "/v1/definitions/{name}/graph",
    "getGraph",
    scope="read",
    summary="Get a workflow as a graph",
    params=(_VERSION, Param("format", Literal["json", "mermaid"], "JSON if nothing is said.")),
    replies={200: Reply("Nodes and edges, or text that Mermaid draws.", Graph, (JSON, TEXT))},
    problems=("definition-invalid",),
)
async def graph(call: Call) -> Response:
    """`GET /v1/definitions/{name}/graph`."""
    call.check_query()
    form = call.query("format") or "json"
    if form not in ("json", "mermaid"):
        raise invalid("The parameter 'format' is json or mermaid.")
    workflow = await _workflow(call, await _found(call))
    if form == "mermaid":
        return PlainTextResponse(await _seen(mermaid_view, workflow))
    return await json_answer(await _seen(graph_view, workflow))


async def _seen(view: Callable[[Flow | CatalogEntry], T], workflow: Flow | CatalogEntry) -> T:
    """Make a view of a workflow: in a thread if it is a large flow."""
    if isinstance(workflow, Flow) and len(workflow.program.nodes) > _MANY_NODES:
        return await aside("replay", view, workflow)
    return view(workflow)


@route(
    "GET",
    "/v1/definitions/{name}/schema",
    "getSchema",
    scope="read",
    summary="Get the JSON Schemas of what a workflow takes and gives",
    params=(_VERSION,),
    replies={200: Reply("JSON Schemas.", DefinitionSchemas)},
    problems=("definition-invalid",),
)
async def schema(call: Call) -> Response:
    """`GET /v1/definitions/{name}/schema`."""
    call.check_query()
    return JsonAnswer(schemas_view(await _workflow(call, await _found(call))))


async def _found(call: Call) -> Found:
    """Find what the path and the query name. What a key may not see is not there for it."""
    name, number = call.request.path_params["name"], call.number("version", least=1, most=_LARGEST)
    runtime = call.runtime
    await runtime.ready()
    code = runtime.codes.get(name)
    if not call.principal.sees(name) or name.startswith(OWN):
        raise DefinitionNotFound(name[:200])
    if code is not None and not isinstance(code, FlowRegistration):
        if number is not None:
            raise DefinitionNotFound(name, "is written in Python, and has no versions by number")
        return Found(name, code, None, None, await runtime.catalog.entry(name))
    definition = await runtime.definitions.stored.get(name)
    if definition is not None and definition.deleted_at is not None:
        raise DefinitionNotFound(name[:200])
    if definition is None:
        entry = await runtime.catalog.entry(name) if code is None else None
        if code is None and (entry is None or number is not None):
            raise DefinitionNotFound(name[:200])
        return Found(name, code, None, None, entry)
    version = definition.latest if number is None else definition.numbered(number)
    if version is None:
        raise DefinitionNotFound(name, f"has no version {number}")
    return Found(name, code, definition, version)


async def _workflow(call: Call, found: Found) -> Flow | CatalogEntry:
    """Return the flow itself, or what is known of a workflow in Python. A version not loaded here is as stored."""
    if found.steps is not None:
        return found.steps
    code, version = found.code, found.version
    if isinstance(code, FlowRegistration) and (version is None or code.document[0] == version.digest):
        return code.flow
    assert version is not None
    return await call.runtime.definitions.load(found.name, version)


# -- writing ----------------------------------------------------------------------------------------------------------


@route(
    "PUT",
    "/v1/definitions/{name}",
    "putDefinition",
    scope="admin",
    summary="Store a flow, in either dialect",
    params=_CONDITIONS,
    body=_DOCUMENT,
    replies={
        201: Reply("It is new.", PutDefinition, headers=("ETag", "Location")),
        200: Reply("It is the current version now, or was it before.", PutDefinition, headers=("ETag",)),
    },
    problems=("name-taken", "version-mismatch", "definition-invalid"),
)
async def put(call: Call) -> Response:
    """`PUT /v1/definitions/{name}`."""
    call.check_query()
    name = _name(call)
    call.runtime.definitions.check_free(name)
    read = await judged_body(call, name)
    if read.flow is None:
        count = sum(each.severity == "error" for each in read.diagnostics)
        detail = f"The definition {name!r} has {count} error{'s' if count != 1 else ''}."
        raise ApiProblem("definition-invalid", detail, errors=[Place(**asdict(each)) for each in read.diagnostics])
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
    answer = PutDefinition(**asdict(flow_view(name, after)), warnings=read.diagnostics)
    return JsonAnswer(answer, 201 if is_new else 200, headers)


@route(
    "DELETE",
    "/v1/definitions/{name}",
    "deleteDefinition",
    scope="admin",
    summary="Let nothing new start under a name; runs under way keep their version",
    params=_CONDITIONS,
    replies={204: Reply("It is gone.")},
    problems=("name-taken", "version-mismatch"),
)
async def delete(call: Call) -> Response:
    """`DELETE /v1/definitions/{name}`: runs under way go on."""
    call.check_query()
    await call.runtime.definitions.delete(_name(call), _condition(call))
    return Response(status_code=204)


@route(
    "POST",
    "/v1/definitions/validate",
    "validateDefinition",
    scope="read",
    summary="Judge a definition; nothing is stored, and nothing is executed",
    body=_DOCUMENT,
    replies={200: Reply("Whether it can be used, and all that is to be said about it.", Validation)},
)
async def validate(call: Call) -> Response:
    """`POST /v1/definitions/validate`: nothing is stored, and nothing is executed."""
    call.check_query()
    read = await judged_body(call)
    return JsonAnswer(Validation(valid=read.flow is not None, diagnostics=read.diagnostics))


def _name(call: Call) -> str:
    """The name in the path, as a definition may be called that is put."""
    name: str = call.request.path_params["name"]
    if _NAME.fullmatch(name) is None or name != name.strip():
        raise invalid("A definition's name has 1 to 200 characters: no slashes, no control characters.", "/name")
    call.check_workflow(name)
    return name


def _condition(call: Call) -> Callable[[stored.StoredDefinition | None], None]:
    """What `If-Match` and `If-None-Match` ask of the definition that is there."""
    wanted, unwanted = call.request.headers.get("if-match"), call.request.headers.get("if-none-match")

    def check(definition: stored.StoredDefinition | None) -> None:
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


# -- pages ------------------------------------------------------------------------------------------------------------


_BY_NAME, _BY_NUMBER = "definitions", "versions"
_BATCH = 200


async def definitions_page(call: Call, limit: int, cursor: str | None) -> Page[Definition]:
    """The workflows that are known, by their names."""
    after = _key(cursor, _BY_NAME)
    items: list[Definition] = []
    while len(items) <= limit and (found := await _next(call, after)):
        views = [await _view(call.runtime, name, entry) for name, entry in found.items()]
        items += [view for view in views if view is not None]
        after = max(found)
    more = len(items) > limit
    cursor = write_cursor(_BY_NAME, items[limit - 1].name) if more else None
    return Page[Definition](items=items[:limit], next_cursor=cursor)


async def _next(call: Call, after: str) -> dict[str, Entry | None]:
    """Return the next names that the key may see, in order: of code of this process, and of what is stored."""
    runtime, allowed = call.runtime, call.principal.workflows
    if allowed is not None:
        names = sorted(name for name in allowed if name > after)[:_BATCH]
        return {name: await runtime.store.entry(DEFINITIONS, name) for name in names if can_be_defined(name)}
    entries = {entry.key: entry for entry in await runtime.store.entries(DEFINITIONS, after, _BATCH)}
    known = {name for name in runtime.codes if name > after} | {*await runtime.catalog.names(after, _BATCH)}
    return {name: entries.get(name) for name in sorted(known | entries.keys())[:_BATCH]}


async def _view(runtime: WorkerRuntime, name: str, entry: Entry | None) -> Definition | None:
    """What is known under a name, here or in another process of the store."""
    code = runtime.codes.get(name)
    served = code is not None
    if name.startswith(OWN):
        return None
    if code is not None and not isinstance(code, FlowRegistration):
        return steps_view(name, served=True)
    if entry is None:
        if served:
            return flow_view(name, None)
        return steps_view(name, served=False) if await runtime.catalog.entry(name) is not None else None
    try:
        definition = read_definition(entry)
    except DefinitionUnreadable:
        return flow_view(name, None, served=served)  # a caller that asks for it by name is told why
    return flow_view(name, definition, served=served) if definition.deleted_at is None else None


def versions_page(
    definition: stored.StoredDefinition | None, limit: int, cursor: str | None
) -> Page[DefinitionVersion]:
    """The versions of a flow, newest first."""
    before = int(_key(cursor, _BY_NUMBER) or 0)
    newest_first = reversed(definition.versions) if definition is not None else ()
    found = [each for each in newest_first if not before or each.number < before]
    items = [version_view(each, definition.current if definition is not None else 0) for each in found[:limit]]
    more = len(found) > limit
    cursor = write_cursor(_BY_NUMBER, str(found[limit - 1].number)) if more else None
    return Page[DefinitionVersion](items=items, next_cursor=cursor)


def _key(cursor: str | None, kind: str) -> str:
    """The last key of the page before; empty for the first page."""
    if cursor is None:
        return ""
    found, key = read_cursor(cursor, tuple[str, str])
    if found != kind or not can_be_defined(key) or (kind == _BY_NUMBER and not (key.isascii() and key.isdecimal())):
        raise not_given()
    return key
