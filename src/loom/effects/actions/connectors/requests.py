"""The request of an operation, made of the inputs of an action.

`ApiConnection` names its operation by method and path, and the path has the values of its parameters in it, encoded
once or twice. `OpenApiConnection` names it by id and gives parameters by name; `body/field` is a field of the body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

from msgspec import Struct

from loom.effects.actions.connectors.openapi import path_shape
from loom.effects.actions.content import FORM, media_type, text_of
from loom.effects.actions.exchange import BadRequestError, HttpRequest
from loom.effects.actions.http import outgoing_of

if TYPE_CHECKING:
    from loom.effects.actions.connectors.openapi import ApiDocument, ApiOperation, ApiParameter
    from loom.flows.connections import ConnectionUse

GATEWAY_QUERIES = frozenset({"queryparameterssingleencoded"})
"""Queries, in lower case, that are for the gateway of Logic Apps. A service that does not declare them gets none."""
_MULTIPART = "multipart/form-data"
_KEYED = frozenset({"post", "patch"})
"""Methods whose repetition does harm."""
OPERATION_NOT_FOUND = "OperationNotFound"
"""Code of an action that names no operation of its connector."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Arguments(Struct):
    """What an action gives to an operation."""

    path: dict[str, str] = {}
    queries: dict[str, Any] = {}
    headers: dict[str, Any] = {}
    body: Any = None
    form: dict[str, Any] = {}
    raw_query: str = ""
    """Query that stands in the path."""


class Target(Struct, frozen=True):
    """Where the requests of a connector go, and what all of them have."""

    name: str
    base_url: str
    headers: Mapping[str, str] = {}
    idempotency_header: str | None = None
    supplied: frozenset[str] = frozenset()
    """Parameters, in lower case, that its credentials give."""


def is_by_id(kind: str) -> bool:
    """Say whether actions of this type name their operation by id."""
    return kind.startswith("openapiconnection")


def method_of(kind: str, inputs: Mapping[str, Any]) -> str:
    """Read the method of an action, in lower case. A webhook subscribes with POST."""
    default = "post" if kind.endswith("webhook") else "get"
    method = inputs.get("method")
    return method.lower() if isinstance(method, str) and method else default


def resolve(
    api: ApiDocument, target: Target, kind: str, inputs: Any, use: ConnectionUse | None = None
) -> tuple[ApiOperation, Arguments]:
    """Find the operation that evaluated inputs name, and what they give to it. Raises `BadRequestError`."""
    if not isinstance(inputs, dict):
        raise BadRequestError(f"The inputs for the connector '{target.name}' must be an object.")
    if is_by_id(kind):
        return _by_id(api, target, inputs)
    return _by_path(api, target, kind, inputs, use)


def _by_id(api: ApiDocument, target: Target, inputs: dict[str, Any]) -> tuple[ApiOperation, Arguments]:
    host = inputs.get("host")
    name = host.get("operationId") if isinstance(host, dict) else None
    operation = api.by_id(name) if isinstance(name, str) else None
    if operation is None:
        raise BadRequestError(f"The connector '{target.name}' has no operation {name!r:.200}.", OPERATION_NOT_FOUND)
    given = _object(inputs, "parameters")
    arguments = Arguments()
    for key, value in given.items():
        parameter, trail = place_of(operation, key)
        if parameter is None:
            raise BadRequestError(f"The operation '{operation.label}' has no parameter '{key:.200}'.")
        if parameter.place == "body":
            arguments.body = _placed(arguments.body, trail, value, key)
        elif value is not None:
            _into(arguments, parameter)[parameter.name] = value
    arguments.path = {name: _text(value) for name, value in arguments.path.items()}
    return operation, arguments


def place_of(operation: ApiOperation, key: str) -> tuple[ApiParameter | None, tuple[str, ...]]:
    """Find the parameter that a name means, and the keys down into it: `item/Status/Value` is a field of a body."""
    body = operation.body
    found = operation.parameter(key)
    if found is not None or body is None:
        return found, ()
    head, *trail = key.split("/")
    return (body, tuple(trail)) if head.lower() in (body.name.lower(), "body") else (None, ())


def _into(arguments: Arguments, parameter: ApiParameter) -> dict[str, Any]:
    return {
        "path": arguments.path,
        "query": arguments.queries,
        "header": arguments.headers,
        "formData": arguments.form,
    }.get(parameter.place, {})


def _placed(body: Any, trail: tuple[str, ...], value: Any, key: str) -> Any:
    """Put a value into a body, below the keys of its trail."""
    if not trail:
        if isinstance(body, dict) and isinstance(value, dict):
            return {**value, **body}
        return value if body is None else body
    body = {} if body is None else body
    if not isinstance(body, dict):
        raise BadRequestError(f"The parameter '{key:.200}' is a field of what is no object.")
    inner = _placed(body.get(trail[0]), trail[1:], value, key)
    return {**body, trail[0]: inner}


def _by_path(
    api: ApiDocument, target: Target, kind: str, inputs: dict[str, Any], use: ConnectionUse | None
) -> tuple[ApiOperation, Arguments]:
    path, method = inputs.get("path"), method_of(kind, inputs)
    if not isinstance(path, str) or not path:
        raise BadRequestError(f"A call of the connector '{target.name}' needs a text as inputs.path.")
    found = api.find(method, path)
    if found is None:
        raise BadRequestError(
            f"The connector '{target.name}' has no operation {method.upper()} {path:.200}.", OPERATION_NOT_FOUND
        )
    operation, raw, places = found
    depths = _depths(use, path)
    values = {}
    for name, value in raw.items():
        parameter = next((one for one in operation.parameters if one.name == name and one.place == "path"), None)
        depth = depths.get(places[name])
        is_double = depth >= 2 if depth is not None else parameter is not None and parameter.is_double  # noqa: PLR2004
        values[name] = _decoded(name, value, twice=is_double)
    return operation, Arguments(
        path=values,
        queries=dict(_object(inputs, "queries")),
        headers=dict(_object(inputs, "headers")),
        body=inputs.get("body"),
        raw_query=path.partition("?")[2],
    )


def _depths(use: ConnectionUse | None, path: str) -> dict[int, int]:
    """Say how often the document encodes the value of each segment, where it tells."""
    text = use.inputs.get("path") if use is not None and isinstance(use.inputs, dict) else None
    shape = path_shape(text) if isinstance(text, str) else None
    if shape is None or len(shape.segments) != len(path.partition("?")[0].strip("/").split("/")):
        return {}
    return {index: depth for index, depth in enumerate(shape.depths) if depth is not None}


def _decoded(name: str, text: str, *, twice: bool) -> str:
    try:
        once = unquote(text, errors="strict")
        return unquote(once, errors="strict") if twice else once
    except UnicodeDecodeError:
        raise BadRequestError(f"The value of '{name}' in the path is not encoded as UTF-8.") from None


def _object(inputs: Mapping[str, Any], name: str) -> dict[str, Any]:
    given = inputs.get(name)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise BadRequestError(f"inputs.{name} must be an object.")
    return given


# --- the request ------------------------------------------------------------------------------------------------------


def build(
    operation: ApiOperation, arguments: Arguments, target: Target, *, key: str = "", callback: str = ""
) -> HttpRequest:
    """Make the request of an operation, without credentials. Raises `BadRequestError`.

    `key` is the idempotency key of the action. `callback` is put where the operation takes the address of a callback.
    """
    _fill(operation, arguments, target)
    if callback:
        _ask_back(operation, arguments, callback)
    url = f"{target.base_url}{_path(operation, arguments.path)}"
    query = "&".join(filter(None, (arguments.raw_query, _query(operation, arguments.queries))))
    headers = {name: _text(value) for name, value in arguments.headers.items() if value is not None}
    held = {name.lower() for name in headers}
    headers |= {name: value for name, value in target.headers.items() if name.lower() not in held}
    body = _body(operation, arguments, headers)
    own_key = target.idempotency_header
    if key and own_key and operation.method in _KEYED and own_key.lower() not in {name.lower() for name in headers}:
        headers[own_key] = quote(key, safe=":/-._~")
    uri = f"{url}?{query}" if query else url
    return outgoing_of({"method": operation.method, "uri": uri, "headers": headers, "body": body})


def _fill(operation: ApiOperation, arguments: Arguments, target: Target) -> None:
    """Put in defaults. Raise for a parameter that is still missing."""
    for parameter in operation.parameters:
        holder = _into(arguments, parameter)
        known = next((name for name in holder if name.lower() == parameter.name.lower()), None)
        if known is not None and holder[known] is not None:
            continue
        if parameter.has_default and parameter.default is not None and parameter.required:
            holder[parameter.name] = parameter.default
        elif is_missed(parameter, target):
            raise BadRequestError(f"The operation '{operation.label}' needs the parameter '{parameter.name}'.")
    if needs_body(operation) and arguments.body is None:
        raise BadRequestError(f"The operation '{operation.label}' needs a body.")


_OWN_HEADERS = frozenset({"accept", "content-type"})
"""Headers that a request has by itself, whatever the document says about them."""


def is_missed(parameter: ApiParameter, target: Target) -> bool:
    """Say whether an action has to give a parameter: its connector does not, and no default does."""
    if not parameter.is_missed or parameter.is_callback or parameter.place == "cookie":
        return False
    name = parameter.name.lower()
    if parameter.place == "header" and (name in _OWN_HEADERS or name in {key.lower() for key in target.headers}):
        return False
    return name not in target.supplied


def needs_body(operation: ApiOperation) -> bool:
    """Say whether a request cannot do without a body of the author's. One that only takes a callback is made."""
    return operation.body is not None and operation.body.required and not operation.callback_path


def _ask_back(operation: ApiOperation, arguments: Arguments, callback: str) -> None:
    """Put the address of a callback where the operation takes one, unless it is there: definitions may write it."""
    for parameter in operation.parameters:
        if parameter.is_callback and not _into(arguments, parameter).get(parameter.name):
            _into(arguments, parameter)[parameter.name] = callback
    trail = operation.callback_path
    if not trail or not isinstance(arguments.body, dict | None):
        return
    value: Any = arguments.body
    for name in trail:
        value = value.get(name) if isinstance(value, dict) else None
    if not value:
        arguments.body = _with(arguments.body, trail, callback)


def _with(body: Any, trail: tuple[str, ...], value: Any) -> Any:
    if not trail:
        return value
    held = body if isinstance(body, dict) else {}
    return {**held, trail[0]: _with(held.get(trail[0]), trail[1:], value)}


def _path(operation: ApiOperation, values: Mapping[str, str]) -> str:
    parts = re.split(r"\{([^{}]*)\}", operation.path)
    parts[::2] = [quote(part, safe="/:@!$&'()*+,;=~%") for part in parts[::2]]
    parts[1::2] = [_segment(name, values.get(name, "")) for name in parts[1::2]]
    return "".join(parts)


def _segment(name: str, value: str) -> str:
    """Encode a value as one segment of a path, which it must not leave."""
    if not value:
        raise BadRequestError(f"The parameter '{name}' of the path is empty.")
    looked = value
    for _ in range(3):  # a service, or what is before it, may decode more than once
        if any(part in (".", "..") for part in re.split(r"[/\\]", looked)):
            raise BadRequestError(f"The parameter '{name}' leads out of its place in the path by '.' or '..'.")
        if _CONTROL.search(looked):
            raise BadRequestError(f"The parameter '{name}' of the path has a control character in it.")
        looked = unquote(looked, errors="replace")
    return quote(value, safe="")


def _query(operation: ApiOperation, queries: Mapping[str, Any]) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in queries.items():
        parameter = operation.parameter(name)
        if value is None or (parameter is None and name.lower() in GATEWAY_QUERIES):
            continue
        joined_by = parameter.joined_by if parameter is not None else ","
        if isinstance(value, list):
            texts = [_text(item) for item in value]
            pairs += [(name, text) for text in texts] if joined_by is None else [(name, joined_by.join(texts))]
        else:
            pairs.append((name, _text(value)))
    return urlencode(pairs, quote_via=quote)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return ",".join(map(_text, value))
    return text_of(value)


def _body(operation: ApiOperation, arguments: Arguments, headers: dict[str, str]) -> Any:
    """Choose the body, and name its content type where the document has one that fits better than the body's own."""
    body = arguments.body
    if arguments.form:
        kinds = [media_type(kind) for kind in operation.content_types]
        if _MULTIPART in kinds:
            return {"$content-type": _MULTIPART, "$multipart": _parts(arguments.form)}
        _say(headers, FORM)
        return {name: _text(value) for name, value in arguments.form.items()}
    if body is None or not operation.content_types:
        return body
    kind = operation.content_types[0]
    is_form = media_type(kind) == FORM
    is_text = isinstance(body, str) and not is_form and media_type(kind) != _MULTIPART and "*" not in kind
    if is_text or (isinstance(body, dict) and is_form):
        _say(headers, kind)
    return body


def _parts(form: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"headers": {"Content-Disposition": f'form-data; name="{quote(name)}"'}, "body": _part(value)}
        for name, value in form.items()
    ]


def _part(value: Any) -> Any:
    return value if isinstance(value, dict | list) else _text(value)


def _say(headers: dict[str, str], kind: str) -> None:
    if not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = kind
