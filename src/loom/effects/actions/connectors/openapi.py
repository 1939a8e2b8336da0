"""OpenAPI documents of version 2.0, 3.0 and 3.1: their operations, found by id or by method and path.

A document is indexed once, by method and path; parameters are read when an operation is first used. A reference must
stay in the document: nothing is fetched, no other file is opened. What connectors of Logic Apps add (`x-ms-pageable`,
`x-ms-url-encoding`, `x-ms-notification-url`) is understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from loom.expressions import ExpressionError
from loom.expressions.parser import FunctionCall, Interpolation, Text, parse_template
from loom.expressions.value_text import count_values
from loom.flows.diagnostics import DefinitionError, suggestion
from loom.flows.document import MAX_BYTES, MAX_DEPTH, MAX_VALUES, check_plain, parse_text

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_MAX_HOPS = 32
"""References that may follow each other before one leads to a value."""
_MAX_SCHEMA_DEPTH = 12
"""Levels of a body's schema that are searched. Schemas may contain themselves."""
_MAX_SEARCHED = 2_000
"""Schemas of one body that are looked at."""
_OPAQUE = frozenset({"example", "examples", "default", "enum", "const"})
"""Keys whose values are data: what looks like a reference in them is none."""


class ApiError(Exception):
    """Raised for a document that cannot be used. The message names the place in it."""


class ApiParameter(Struct, frozen=True):
    """A parameter of an operation, in any version's form."""

    name: str
    place: str
    """path, query, header, cookie, body or formData."""
    required: bool = False
    default: Any = None
    has_default: bool = False
    joined_by: str | None = ","
    """What is between the elements of an array; None: each is a parameter of its own."""
    is_double: bool = False
    """True if Logic Apps encodes its value twice in the path."""
    is_callback: bool = False
    """True if its value is the address to be called back at."""

    @property
    def is_missed(self) -> bool:
        """True if a request cannot do without a value for it."""
        return self.required and not self.has_default


class Pages(Struct, frozen=True):
    """The pages of a list."""

    next_link: str
    """Key of the address of the next page."""
    items: str = "value"
    """Key of the items of a page."""


class ApiOperation(Struct, frozen=True):
    """One operation, with its parameters read."""

    id: str
    """Its `operationId`; empty if it has none."""
    method: str
    """In lower case."""
    path: str
    """Its path with `{parameters}`, as it is sent."""
    parameters: tuple[ApiParameter, ...] = ()
    """All but the body's."""
    body: ApiParameter | None = None
    content_types: tuple[str, ...] = ()
    """What the body may be, the best first."""
    pages: Pages | None = None
    callback_path: tuple[str, ...] = ()
    """Keys down to the property of the body that holds the address to be called back at; empty: none does."""

    @property
    def label(self) -> str:
        """The operation in words."""
        return self.id or f"{self.method.upper()} {self.path}"

    def parameter(self, name: str) -> ApiParameter | None:
        """Find a parameter by its name, else without case."""
        near = None
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
            if near is None and parameter.name.lower() == name.lower():
                near = parameter
        return near


# --- paths ------------------------------------------------------------------------------------------------------------

_ENCODES = frozenset({"encodeuricomponent", "uricomponent"})
_WILD = "\0"
"""In place of an expression, whose value is not known before a run."""


class PathShape(Struct, frozen=True):
    """The path of an action as the document has it, cut into segments."""

    segments: tuple[str, ...]
    """Each with a mark in the place of an expression."""
    depths: tuple[int | None, ...]
    """How often the expression of a segment encodes its value; None for a segment that is no single expression."""
    is_certain: bool
    """True if no expression can make more segments of one: each encodes its value."""


@lru_cache(2_000)
def path_shape(text: str) -> PathShape | None:
    """Cut the path of an action into segments; None if only a run can tell what it is."""
    try:
        parsed = parse_template(text)
    except ExpressionError:
        return None
    if isinstance(parsed, Text):
        if parsed.value.startswith("["):
            return None
        parts: tuple[Any, ...] = (parsed.value,)
    elif isinstance(parsed, Interpolation):
        parts = parsed.parts
    else:
        return None
    marked = "".join(part if isinstance(part, str) else _WILD for part in parts)
    depths = [_encodings(part) for part in parts if not isinstance(part, str)]
    segments = _segments(marked)
    each = iter(depths)
    found: list[int | None] = []
    for segment in segments:
        inside = [next(each) for _ in range(segment.count(_WILD))]
        found.append(inside[0] if segment == _WILD else None)
    return PathShape(segments, tuple(found), is_certain=all(depths))


def _encodings(expression: Any) -> int:
    count = 0
    while (
        isinstance(expression, FunctionCall)
        and expression.name.lower() in _ENCODES
        and len(expression.arguments) == 1
        and not expression.accesses
    ):
        expression = expression.arguments[0]
        count += 1
    return count


def _segments(path: str) -> tuple[str, ...]:
    """Cut a path at its slashes. One at its end makes no difference."""
    return tuple(path.partition("?")[0].strip("/").split("/"))


class _Segment:
    """A segment of an operation's path: a text, a parameter, or text with parameters in it."""

    __slots__ = ("names", "pattern", "text")

    def __init__(self, segment: str) -> None:
        parts = re.split(r"\{([^{}]*)\}", segment)
        self.names: tuple[str, ...] = tuple(parts[1::2])
        self.text = unquote(segment) if not self.names else ""
        self.pattern: re.Pattern[str] | None = None
        if self.names and parts[::2] != ["", ""]:
            self.pattern = re.compile("(.+?)".join(re.escape(part) for part in parts[::2]))

    def values(self, segment: str) -> tuple[str, ...] | None:
        """Take the values of its parameters out of a segment, still encoded; None if it does not fit."""
        if not self.names:
            return () if unquote(segment) == self.text else None
        if self.pattern is None:
            return (segment,) if segment else None
        found = self.pattern.fullmatch(segment)
        return found.groups() if found is not None else None

    def may_become(self, segment: str, pattern: re.Pattern[str] | None) -> bool:
        """Say whether a segment, with expressions in it if it has a pattern, could be this one."""
        if pattern is None:
            return self.values(segment) is not None
        return bool(self.names) or pattern.fullmatch(self.text) is not None


def _pattern(segment: str) -> re.Pattern[str] | None:
    """Match what a segment with expressions may become; None for one without."""
    if _WILD not in segment:
        return None
    return re.compile(".*".join(re.escape(unquote(part)) for part in segment.split(_WILD)), re.DOTALL)


class _Route(NamedTuple):
    segments: tuple[_Segment, ...]
    method: str
    path: str
    item: dict[str, Any]
    raw: dict[str, Any]

    @property
    def rank(self) -> tuple[bool, ...]:
        """Routes with text where others have parameters come first."""
        return tuple(bool(segment.names) for segment in self.segments)


class _Routes:
    """Routes of one number of segments, by the text of each segment."""

    def __init__(self) -> None:
        self._by_text: list[dict[str, list[_Route]]] = []
        self._with_parameter: list[list[_Route]] = []
        self._all: list[_Route] = []

    def add(self, routes: list[_Route]) -> None:
        """Take the routes in, in the order in which they are tried."""
        self._all = sorted(routes, key=lambda route: route.rank)
        for place in range(len(routes[0].segments)):
            texts: dict[str, list[_Route]] = {}
            with_parameter: list[_Route] = []
            for route in self._all:
                segment = route.segments[place]
                (with_parameter if segment.names else texts.setdefault(segment.text, [])).append(route)
            self._by_text.append(texts)
            self._with_parameter.append(with_parameter)

    def for_segments(self, segments: tuple[str, ...]) -> list[_Route]:
        """List the routes that segments may belong to, by the segment that leaves the fewest."""
        best = self._all
        for place, segment in enumerate(segments):
            if _WILD in segment:
                continue
            same, others = self._by_text[place].get(unquote(segment), []), self._with_parameter[place]
            if len(same) + len(others) < len(best):
                best = sorted((*same, *others), key=lambda route: route.rank) if same and others else same or others
        return best


# --- documents --------------------------------------------------------------------------------------------------------


class ApiDocument:
    """An indexed document."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        if not isinstance(data, dict):
            raise ApiError("the document must be an object")
        self._data: dict[str, Any] = data
        self.version = _version_of(data)
        """2 or 3."""
        _check_references(data)
        paths = data.get("paths")
        if not isinstance(paths, dict):
            raise ApiError("paths: the document has no paths")
        by_size: dict[int, list[_Route]] = {}
        self._by_id: dict[str, _Route] = {}
        self._made: dict[tuple[str, str], ApiOperation] = {}
        for path, item in paths.items():
            for route in self._routes_of(str(path), item):
                by_size.setdefault(len(route.segments), []).append(route)
        self._by_size: dict[int, _Routes] = {}
        for size, routes in by_size.items():
            self._by_size[size] = _Routes()
            self._by_size[size].add(routes)
        self._paths = {route.path for routes in by_size.values() for route in routes}
        self.size = sum(map(len, by_size.values()))
        """The number of operations."""
        self._ids = {name.lower(): name for name in reversed(self._by_id)}

    def _routes_of(self, path: str, given: Any) -> Iterator[_Route]:
        if not path.startswith("/"):
            return  # an extension
        item = self.resolved(given, f"paths.{path}")
        if not isinstance(item, dict):
            raise ApiError(f"paths.{path}: this must be an object")
        # The path at a gateway begins with the connection; what stands for the gateway here has that in its address.
        sent = path.removeprefix("/{connectionId}") or "/"
        segments = tuple(map(_Segment, _segments(sent)))
        for method in METHODS:
            raw = item.get(method)
            if not isinstance(raw, dict):
                continue
            route = _Route(segments, method, sent, item, raw)
            yield route
            name = raw.get("operationId")
            if isinstance(name, str) and self._by_id.setdefault(name, route) is not route:
                raise ApiError(f"paths.{path}.{method}.operationId: there are two operations of the id '{name}'")

    # -- finding -------------------------------------------------------------------------------------------------------

    def by_id(self, name: str) -> ApiOperation | None:
        """Find an operation by its id, else without case."""
        route = self._by_id.get(name) or self._by_id.get(self._ids.get(name.lower(), ""))
        return self._operation(route) if route is not None else None

    def find(self, method: str, path: str) -> tuple[ApiOperation, dict[str, str], dict[str, int]] | None:
        """Find the operation of a path, the values of its parameters, still encoded, and the segment of each."""
        segments = _segments(path)
        routes = self._by_size.get(len(segments))
        for route in routes.for_segments(segments) if routes is not None else ():
            if route.method != method:
                continue
            fitting = [own.values(segment) for own, segment in zip(route.segments, segments, strict=True)]
            if None in fitting:
                continue
            values: dict[str, str] = {}
            places: dict[str, int] = {}
            for index, (own, found) in enumerate(zip(route.segments, fitting, strict=True)):
                for name, value in zip(own.names, found or (), strict=True):
                    values[name], places[name] = value, index
            return self._operation(route), values, places
        return None

    def possible(self, method: str | None, shape: PathShape) -> list[ApiOperation]:
        """List the operations that a path with expressions may mean, the likely ones alone if there are any."""
        known = self._by_size.get(len(shape.segments))
        if known is None:
            return []
        patterns = [_pattern(segment) for segment in shape.segments]
        routes = [
            route
            for route in known.for_segments(shape.segments)
            if method in (None, route.method)
            and all(map(_Segment.may_become, route.segments, shape.segments, patterns))
        ]
        likely = [
            route
            for route in routes
            if all(
                own.names or _WILD not in segment for own, segment in zip(route.segments, shape.segments, strict=True)
            )
        ]
        found = likely[:1] if likely else routes
        return [self._operation(route) for route in found]

    def near_id(self, name: str) -> str:
        """Suggest the id that was meant."""
        return suggestion(name, self._by_id)

    def near_path(self, shape: PathShape) -> str:
        """Suggest the path that was meant, by its text beside the parameters."""
        known = {re.sub(r"\{[^{}]*\}", "{}", path): path for path in self._paths}
        found = suggestion("/" + "/".join(shape.segments).replace(_WILD, "{}"), known)
        return re.sub(r"'(.*)'", lambda near: f"'{known.get(near[1], near[1])}'", found)

    # -- reading -------------------------------------------------------------------------------------------------------

    def resolved(self, value: Any, place: str) -> Any:
        """Follow references within the document. Raises `ApiError`."""
        seen: set[str] = set()
        while isinstance(value, dict) and isinstance(value.get("$ref"), str):
            reference = value["$ref"]
            if reference in seen or len(seen) >= _MAX_HOPS:
                raise ApiError(f"{place}: the reference '{reference:.200}' leads back to itself")
            seen.add(reference)
            value = self._target(reference, place)
        return value

    def _target(self, reference: str, place: str) -> Any:
        value: Any = self._data
        for part in reference.removeprefix("#").split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(value, list) and key.isascii() and key.isdigit() and int(key[:6]) < len(value):
                value = value[int(key[:6])]
            elif isinstance(value, dict) and key in value:
                value = value[key]
            else:
                raise ApiError(f"{place}: the reference '{reference:.200}' leads nowhere")
        return value

    def address(self) -> str:
        """Read where the service is; empty if the document does not say."""
        if self.version == 2:  # noqa: PLR2004 - OpenAPI's version
            host = self._data.get("host")
            schemes = self._data.get("schemes")
            if not isinstance(host, str) or not host:
                return ""
            scheme = schemes[0] if isinstance(schemes, list) and schemes and "https" not in schemes else "https"
            base = self._data.get("basePath")
            return f"{scheme}://{host}{base if isinstance(base, str) else ''}".rstrip("/")
        servers = self._data.get("servers")
        server = servers[0] if isinstance(servers, list) and servers else None
        url = server.get("url") if isinstance(server, dict) else None
        if not isinstance(server, dict) or not isinstance(url, str):
            return ""
        variables = server.get("variables")
        for name, variable in variables.items() if isinstance(variables, dict) else ():
            if isinstance(variable, dict):
                url = url.replace("{" + str(name) + "}", str(variable.get("default", "")))
        return url.rstrip("/") if "://" in url else ""

    def _operation(self, route: _Route) -> ApiOperation:
        key = (route.method, route.path)
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = self._read(route)
        return made

    def _read(self, route: _Route) -> ApiOperation:
        place = f"paths.{route.path}.{route.method}"
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for given in (*_list(route.item.get("parameters")), *_list(route.raw.get("parameters"))):
            raw = self.resolved(given, f"{place}.parameters")
            if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not isinstance(raw.get("in"), str):
                raise ApiError(f"{place}.parameters: a parameter needs 'name' and 'in'")
            found[raw["name"], raw["in"]] = raw
        ignored = {("path", "connectionId")} if "{connectionId}" not in route.path else set()
        parameters = [
            self._parameter(raw, place)
            for (name, where), raw in found.items()
            if (where, name) not in ignored and where != "body"
        ]
        body, schema, types = self._body(route, [raw for (_, where), raw in found.items() if where == "body"], place)
        forms = [parameter for parameter in parameters if parameter.place == "formData"]
        if forms and not types:
            types = ("application/x-www-form-urlencoded",)
        return ApiOperation(
            id=str(route.raw.get("operationId") or ""),
            method=route.method,
            path=route.path,
            parameters=tuple(parameters),
            body=body,
            content_types=types,
            pages=_pages(route.raw.get("x-ms-pageable")),
            callback_path=self._callback_path(schema, place) if schema is not None else (),
        )

    def _parameter(self, raw: dict[str, Any], place: str) -> ApiParameter:
        schema = self.resolved(raw.get("schema"), f"{place}.parameters.{raw['name']}")
        facts = raw if self.version == 2 or not isinstance(schema, dict) else schema  # noqa: PLR2004
        where = raw["in"]
        return ApiParameter(
            name=raw["name"],
            place=where,
            required=raw.get("required") is True or where == "path",
            default=facts.get("default"),
            has_default="default" in facts,
            joined_by=_joined_by(raw, where, self.version),
            is_double=raw.get("x-ms-url-encoding") == "double",
            is_callback=raw.get("x-ms-notification-url") is True,
        )

    def _body(
        self, route: _Route, bodies: list[dict[str, Any]], place: str
    ) -> tuple[ApiParameter | None, Any, tuple[str, ...]]:
        """Read the body: its parameter, its schema, and its content types."""
        if self.version == 2:  # noqa: PLR2004
            types = route.raw.get("consumes", self._data.get("consumes"))
            kinds = tuple(str(kind) for kind in _list(types))
            if not bodies:
                return None, None, kinds
            raw = bodies[0]
            return ApiParameter(raw["name"], "body", raw.get("required") is True), raw.get("schema"), kinds
        given = self.resolved(route.raw.get("requestBody"), f"{place}.requestBody")
        if not isinstance(given, dict):
            return None, None, ()
        content = given.get("content")
        content = content if isinstance(content, dict) else {}
        kinds = tuple(sorted(content, key=lambda kind: "json" not in kind.lower()))
        media = content.get(kinds[0]) if kinds else None
        schema = media.get("schema") if isinstance(media, dict) else None
        name = given.get("x-bodyName") or given.get("x-ms-requestBody-name") or "body"
        return ApiParameter(str(name), "body", given.get("required") is True), schema, kinds

    def _callback_path(self, schema: Any, place: str) -> tuple[str, ...]:
        """Search a schema for the property that takes the address of a callback. It may contain itself."""
        level: list[tuple[Any, tuple[str, ...]]] = [(schema, ())]
        looked = 0
        for _ in range(_MAX_SCHEMA_DEPTH):
            following: list[tuple[Any, tuple[str, ...]]] = []
            for given, trail in level:
                looked += 1
                if looked > _MAX_SEARCHED:
                    return ()
                own = self.resolved(given, f"{place}.body")
                if not isinstance(own, dict):
                    continue
                if trail and True in (own.get("x-ms-notification-url"), _flag(given)):
                    return trail
                properties = own.get("properties")
                if isinstance(properties, dict):
                    following += [(inner, (*trail, str(name))) for name, inner in properties.items()]
                following += [(inner, trail) for inner in _list(own.get("allOf"))]
            level = following
        return ()


def _flag(given: Any) -> Any:
    return given.get("x-ms-notification-url") if isinstance(given, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _pages(given: Any) -> Pages | None:
    link = given.get("nextLinkName") if isinstance(given, dict) else None
    if not isinstance(link, str) or not link:
        return None
    items = given.get("itemName")
    return Pages(link, items if isinstance(items, str) and items else "value")


_SEPARATORS = {"csv": ",", "ssv": " ", "tsv": "\t", "pipes": "|", "multi": None}
_STYLES = {"spaceDelimited": " ", "pipeDelimited": "|"}


def _joined_by(raw: dict[str, Any], where: str, version: int) -> str | None:
    """Say how an array is written: version 2 has `collectionFormat`, version 3 `style` and `explode`."""
    if version == 2:  # noqa: PLR2004
        return _SEPARATORS.get(str(raw.get("collectionFormat")), ",")
    style = str(raw.get("style", ""))
    explodes = raw.get("explode", where == "query" and style in ("", "form"))
    return None if explodes and where == "query" else _STYLES.get(style, ",")


def _version_of(data: dict[str, Any]) -> int:
    if str(data.get("swagger")) in ("2.0", "2"):
        return 2
    if str(data.get("openapi", "")).startswith("3."):
        return 3
    raise ApiError("the document is of no known version: it needs 'swagger': '2.0' or 'openapi': '3.x'")


def _check_references(data: dict[str, Any]) -> None:
    """Refuse references that leave the document."""
    pending: list[tuple[Any, str]] = [(data, "")]
    while pending:
        value, trail = pending.pop()
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
                where = trail.removeprefix(".") or "(document)"
                raise ApiError(
                    f"{where}: the reference '{reference:.200}' leaves the document: nothing is fetched, so put what "
                    "it means into the document"
                )
            pending += [
                (item, f"{trail}.{key}")
                for key, item in value.items()
                if isinstance(item, dict | list) and key not in _OPAQUE
            ]
        elif isinstance(value, list):
            pending += [
                (item, f"{trail}[{index}]") for index, item in enumerate(value) if isinstance(item, dict | list)
            ]


def read_api(source: str | Path | Mapping[str, Any]) -> ApiDocument:
    """Read and index a document: a file, a text in JSON or YAML, or plain data. Raises `ApiError`."""
    try:
        data = _plain_data(source)
        if not isinstance(data, dict):
            raise ApiError("the document must be an object")
        check_plain(data)
    except DefinitionError as error:
        raise ApiError(str(error).removeprefix("(document): ")) from None
    return ApiDocument(data)


def _plain_data(source: str | Path | Mapping[str, Any]) -> Any:
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, Path):
        try:
            with source.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise ApiError(f"{source} cannot be read: {error.strerror or type(error).__name__}") from None
    else:
        data = source.encode()
    if len(data) > MAX_BYTES:
        raise ApiError(f"the document is larger than {MAX_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ApiError(f"the document is no text in UTF-8: {error.reason} at byte {error.start}") from None
    if count_values(text, MAX_VALUES) > MAX_VALUES:  # before they take memory
        raise ApiError(f"the document has more than {MAX_VALUES:,} values")
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise ApiError(f"the document nests deeper than {MAX_DEPTH} levels") from None
    except msgspec.DecodeError:
        return parse_text(text)  # it may be YAML; if it is neither, the slower reader says where
