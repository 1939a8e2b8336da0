"""The reference of the HTTP API, from the declarations of the routes and the OpenAPI document made of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loom.server import page
from loom.server.app import ROUTES
from loom.server.openapi import document
from loom.server.routes import TAGS, Route
from loomsite.markdown import code, heading, slug, table

_JSON_TYPES = {"integer": "integer", "number": "number", "string": "text", "boolean": "true or false", "null": "null"}
_DOCUMENT: dict[str, Any] = document(ROUTES)


def all_routes() -> list[Route]:
    """List the routes of a server, the ones of its page among them."""
    return [*ROUTES, *page.route]


def title(route: Route) -> str:
    """Return what a route is called: method and path, as the document has it."""
    return f"{route.method} {route.path.replace(':path}', '}')}"


def routes() -> str:
    """Describe every route by the groups of the document, and then the types of requests and answers."""
    parts: list[str] = []
    for tag, about in TAGS.items():
        parts += [heading(2, tag.capitalize(), tag), f"{about}\n"]
        parts += [part for route in ROUTES if route.tag == tag for part in _described(route)]
    parts += [heading(2, "The page", "the-page"), _page_routes()]
    parts += [heading(2, "Types", "types"), *_types()]
    return "\n".join(parts)


def _page_routes() -> str:
    rows = ((code(title(route)), route.summary) for route in page.route)
    return table(("route", "answers with"), rows)


def _described(route: Route) -> Iterator[str]:
    operation = _DOCUMENT["paths"][title(route).split(" ")[1]][route.method.lower()]
    yield heading(3, code(title(route)), slug(route.name))
    yield f"{operation['summary']}. {operation.get('description', '')}\n"
    yield f"Scope: {code(route.scope) if route.scope else 'none, it is open'}. Operation: {code(route.name)}.\n"
    given = [each for each in operation.get("parameters", ()) if each["name"] not in _EVERYWHERE]
    if given:
        rows = ((code(each["name"]), each["in"], _kind(each["schema"]), each.get("description", "")) for each in given)
        yield table(("parameter", "in", "type", "meaning"), rows)
    if "requestBody" in operation:
        yield f"Body: {_content(operation['requestBody'])}.\n"
    own = ((str(status), _content(reply), reply["description"]) for status, reply in _own(operation).items())
    yield table(("status", "answer", "meaning"), own)


_JSON = ("application/json", "application/problem+json")
_EVERYWHERE = ("X-Request-ID", "Idempotency-Key")
"""Parameters that the page describes once."""
_ALWAYS = frozenset({"400", "401", "403", "408", "413", "429", "500", "503"})
"""Statuses that every route may answer with, which the page describes once."""


def _own(operation: dict[str, Any]) -> dict[str, Any]:
    return {status: reply for status, reply in operation["responses"].items() if status not in _ALWAYS}


def _content(holder: dict[str, Any]) -> str:
    """Say what a body holds: the types, each with its media unless it is JSON alone."""
    kinds: dict[str, list[str]] = {}
    for medium, content in holder.get("content", {}).items():
        kinds.setdefault(_kind(content.get("schema", {})), []).append(medium)
    return "; ".join(_as(kind, media) for kind, media in kinds.items())


def _as(kind: str, media: list[str]) -> str:
    return kind if all(medium in _JSON for medium in media) else f"{kind} as {', '.join(map(code, media))}"


def _types() -> Iterator[str]:
    for name, schema in _DOCUMENT["components"]["schemas"].items():
        yield heading(3, code(name), f"type-{slug(name)}")
        if schema.get("description"):
            yield f"{schema['description']}\n"
        needed = schema.get("required", ())
        rows = [
            (code(field), _kind(kind), "yes" if field in needed else "", kind.get("description", ""))
            for field, kind in schema.get("properties", {}).items()
        ]
        yield table(("field", "type", "always", "meaning"), rows) if rows else f"{_kind(schema)}\n"


def _kind(schema: dict[str, Any]) -> str:
    """Say in words what a schema takes."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{code(name)}](#type-{slug(name)})"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_kind(each) for each in schema[word]))
    if "enum" in schema:
        return ", ".join(code(str(value)) for value in schema["enum"])
    if "const" in schema:
        return code(str(schema["const"]))
    return _plain_kind(schema)


def _plain_kind(schema: dict[str, Any]) -> str:
    match schema.get("type"):
        case "array":
            return f"list of {_kind(schema['items'])}" if schema.get("items") else "list"
        case "object":
            values = schema.get("additionalProperties")
            return f"object of {_kind(values)}" if isinstance(values, dict) and values else "object"
        case "string" if schema.get("format") == "date-time":
            return "time"
        case str() as name:
            return _JSON_TYPES.get(name, name)
        case _:
            return "any JSON"
