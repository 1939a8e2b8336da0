"""`GET /openapi.json`: what the API is, as an OpenAPI 3.1 document generated from the routes and their types."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, get_args

import msgspec
from msgspec import UNSET, Meta

import loom
from loom.api.answers import Answer, Id, is_optional, promised
from loom.api.compatible import Detail
from loom.api.refusals import Problem
from loom.api.runs import StreamEvent
from loom.server.answers import JsonAnswer
from loom.server.problems import PROBLEMS, speaks_problems
from loom.server.routes import (
    HEADERS,
    IDEMPOTENCY_KEY,
    JSON,
    NDJSON,
    REQUEST_ID,
    SSE,
    TAGS,
    TEXT,
    Body,
    Param,
    Reply,
    Route,
    RouteList,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.responses import Response

    from loom.server.call import Call
    from loom.server.routes import Body, Param

route = RouteList("server")

_ALWAYS = ("invalid-request", "forbidden", "too-slow", "too-large", "limited", "internal", "store-unavailable")
_PLACES: dict[str, tuple[Any, str, str | None]] = {
    "run_id": (Id, "The id of a run.", "run-not-found"),
    "handler_id": (str, "The id of a handler, or of a run.", "run-not-found"),
    "name": (str, "The name of a workflow.", "definition-not-found"),
    "schedule_id": (str, "The name of a schedule.", "schedule-not-found"),
    "token": (str, "Stands for one action of one run, or for one trigger.", None),
    "trigger": (str, "The name of a trigger of the flow.", "not-found"),
    "path": (str, "The rest of the address, which the trigger's relative path matches.", None),
}
"""What paths have in them, and the problem of a path that leads nowhere."""
_PLACE = re.compile(r"\{(\w+)(?::\w+)?\}")
_PROBLEM_HEADERS = {401: ("WWW-Authenticate",), 429: ("Retry-After",), 503: ("Retry-After",)}
_SCOPES = (
    "A key has some of the scopes `read`, `start`, `event` and `admin`, which includes the others; an operation names "
    "the one that it needs. Until the first key was made, the server's own machine needs none."
)
_KEYS: dict[str, Any] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": _SCOPES},
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": _SCOPES},
}
_ADDRESS = {
    "type": "apiKey",
    "in": "query",
    "name": "sig",
    "description": "The signature of an address that was given out, beside its other parameters. It needs no key.",
}
_ABOUT = (
    "Runs of workflows. Every success of a POST, PUT or DELETE is answered after the commit. "
    "Operations below `/v1` are Loom's own; those tagged `compatible` speak the protocol of llama-agents-server."
)


@route(
    "GET",
    "/openapi.json",
    "getOpenApi",
    scope=None,
    summary="This document",
    replies={200: Reply("OpenAPI 3.1.", dict[str, Any], (JSON,))},
)
async def openapi(call: Call) -> Response:
    """`GET /openapi.json`."""
    # Relative, so that it holds wherever the server is reached, or the application mounted.
    servers = [{"url": call.request.scope.get("root_path", "") or "/"}]
    return JsonAnswer({**document(call.server.routes), "servers": servers})


@lru_cache(maxsize=4)
def document(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Describe these routes, without the address of a server. The result is cached: callers must not change it."""
    schemas = _Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        described = _described(route, schemas)
        paths.setdefault(_PLACE.sub(r"{\1}", route.path), {})[route.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "Loom", "version": loom.__version__, "description": _ABOUT},
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "headers": {name: _header(text) for name, text in HEADERS.items()},
            "securitySchemes": {**_KEYS, "address": _ADDRESS},
        },
    }


_REFERENCE = "#/components/schemas/{name}"
_NAMES = {StreamEvent.__name__: "StreamEntry"}
"""What types are called in the document, where that differs from their classes."""
_Moment = Annotated[datetime, Meta(tz=True)]
_MOMENTS: dict[Any, Any] = {datetime: _Moment, datetime | None: _Moment | None}
"""The server writes times in UTC; a client reads times without a zone too."""


def _subclasses(kind: type[Answer]) -> Iterator[type[Answer]]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


class _Schemas:
    """JSON Schemas of types; a type with a name is a component."""

    def __init__(self) -> None:
        self.components: dict[str, Any] = {}
        self._answers = {kind.__name__: kind for kind in _subclasses(Answer)}

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type, or a reference to it."""
        (found,), components = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
        for name, schema in components.items():
            self._add(_NAMES.get(name, name), schema)
        renamed = _NAMES.get(getattr(kind, "__name__", ""))
        return found if renamed is None else {"$ref": _REFERENCE.format(name=renamed)}

    def _add(self, name: str, schema: dict[str, Any]) -> None:
        """Add a component; one that is an answer has all keys, and the types that the server promises."""
        if name in self.components:
            return
        self.components[name] = schema
        kind = self._answers.get(schema.get("title", "").partition("[")[0])
        if kind is None:
            return
        schema["title"] = _NAMES.get(schema["title"], schema["title"])
        promises, fields = promised(kind), msgspec.structs.fields(kind)
        for field in fields:
            written = promises.get(field.name, field.type)
            written = get_args(written)[0] if is_optional(written) else written
            if field.name in promises or written in _MOMENTS:
                schema["properties"][field.encode_name] = self.of(_MOMENTS.get(written, written))
            schema["properties"][field.encode_name].pop("default", None)
        left_out = {field.name for field in fields if field.default is UNSET or is_optional(promises.get(field.name))}
        schema["required"] = sorted(field.encode_name for field in fields if field.name not in left_out)


def _described(route: Route, schemas: _Schemas) -> dict[str, Any]:
    places = _PLACE.findall(route.path)
    found: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": route.summary,
        "parameters": [_place(name, schemas) for name in places],
    }
    if route.description:
        found["description"] = route.description
    if route.deprecated:
        found["deprecated"] = True
    params = [*route.params, REQUEST_ID]
    problems = [*_ALWAYS, *route.problems, *(code for name in places if (code := _PLACES[name][2]))]
    if route.is_repeatable:
        params.append(IDEMPOTENCY_KEY)
        problems += ["request-in-progress", "idempotency-mismatch"]
    if route.body is not None:
        found["requestBody"] = _body(route.body, schemas)
        problems.append("unsupported-media-type")
    if route.scope is not None:
        problems.append("unauthenticated")
    found["parameters"] += [_parameter(param, schemas) for param in params]
    found["responses"] = _responses(route, problems, schemas)
    found["security"] = [{name: [route.scope]} for name in _KEYS] if route.scope is not None else []
    if route.signed is not None:
        found["security"].append({"address": []})
    return found


def _place(name: str, schemas: _Schemas) -> dict[str, Any]:
    kind, text, _ = _PLACES[name]
    return {"name": name, "in": "path", "required": True, "description": text, "schema": schemas.of(kind)}


def _parameter(param: Param, schemas: _Schemas) -> dict[str, Any]:
    return {
        "name": param.name,
        "in": param.place,
        "required": param.required,
        "description": param.description,
        "schema": schemas.of(param.type),
    }


def _body(body: Body, schemas: _Schemas) -> dict[str, Any]:
    return {
        "description": "At most 1 MiB, and JSON nested 64 deep, unless the server was told otherwise.",
        "required": body.required,
        "content": {media: {"schema": schemas.of(body.type)} for media in body.media},
    }


def _responses(route: Route, problems: list[str], schemas: _Schemas) -> dict[str, Any]:
    replayed = ("Idempotent-Replay",) if route.is_repeatable else ()
    found: dict[str, Any] = {str(code): _answer(each, replayed, schemas) for code, each in route.replies.items()}
    own = speaks_problems({"path": route.path})
    media, refusal = ("application/problem+json", schemas.of(Problem)) if own else (JSON, schemas.of(Detail))
    by_status: dict[int, list[str]] = {}
    for code in dict.fromkeys(problems):
        by_status.setdefault(PROBLEMS[code][0], []).append(code)
    for status, codes in by_status.items():
        text = "; ".join(f"`{code}`: {PROBLEMS[code][1]}" for code in codes)
        response = found.setdefault(
            str(status), {"description": "", "headers": _headers(_PROBLEM_HEADERS.get(status, ()))}
        )
        response["description"] = " ".join(filter(None, (response["description"], f"{text}.")))
        content = response.setdefault("content", {})
        # Where an answer has the same media type, it is the one or the other.
        content[media] = {"schema": {"anyOf": [content[media]["schema"], refusal]} if media in content else refusal}
    return dict(sorted(found.items()))


def _answer(answer: Reply, replayed: tuple[str, ...], schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.description, "headers": _headers((*answer.headers, *replayed))}
    if answer.is_stream:
        entry = schemas.of(answer.type)
        data = {"anyOf": [schemas.of(kind) for kind in answer.event_data]} if answer.event_data else entry
        found["content"] = {SSE: {"schema": _event(data)}, NDJSON: {"schema": entry}}
    elif answer.type is not None:
        types = {media: str if media == TEXT else answer.type for media in answer.media}
        found["content"] = {media: {"schema": schemas.of(kind)} for media, kind in types.items()}
    return found


def _event(content: dict[str, Any]) -> dict[str, Any]:
    """Describe a server-sent event whose data is JSON of a schema."""
    data = {"type": "string", "contentMediaType": JSON, "contentSchema": content}
    return {"type": "object", "properties": {"id": {"type": "string"}, "data": data}}


def _headers(names: tuple[str, ...]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in (*names, "X-Request-ID")}


def _header(text: str) -> dict[str, Any]:
    return {"description": text, "schema": {"type": "string"}}
