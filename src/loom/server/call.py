"""One request as the functions of routes see it: its caller, its query, its body, and what requests share.

The body is JSON held to strict limits, and decoded as the type that its route declares. A refusal names the place that
does not fit by a JSON Pointer, and says in plain words what belongs there.
"""

from __future__ import annotations

import asyncio
import json
import re
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import replace

from loom.api.answers import ID_PATTERN
from loom.api.requests import Request
from loom.effects.off_loop import OFF_LOOP_BYTES, aside
from loom.expressions.value_text import count_values, is_deeper
from loom.flows.diagnostics import did_you_mean
from loom.runtime.durable.names import OWN, check_run_id, check_tags
from loom.runtime.durable.stored_definitions import DefinitionNotFound
from loom.runtime.lru_cache import LruCache
from loom.server.addresses import Addresses
from loom.server.caller_limits import Rates, Refusals, Starts
from loom.server.metrics import CountedRequests, RunCounts
from loom.server.problems import ApiProblem, invalid
from loom.server.streams import OpenStreams
from loom.server.waits import KeyWatch, Waits
from loom.store.errors import RunNotFound

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

    from loom.api.runs import Run
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.stored_definitions import StoredDefinition
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.auth import Keys, Principal
    from loom.server.idempotency import Idempotency
    from loom.server.routes import Route
    from loom.server.sessions import Sessions
    from loom.server.settings import ServerSettings
    from loom.store.records import RunRow
    from loom.web import PageFile


_READS = ("GET", "HEAD")


class Server:
    """What all requests share."""

    def __init__(
        self,
        runtime: WorkerRuntime,
        settings: ServerSettings,
        keys: Keys,
        sessions: Sessions,
        idempotency: Idempotency,
    ) -> None:
        self.runtime = runtime
        self.settings = settings
        self.keys = keys
        self.sessions = sessions
        self.idempotency = idempotency
        self.responses_from: LruCache[str, int] = LruCache(10_000)
        """Where the streams of runs go on whose callers have asked for a Response that was not there yet."""
        self.rates = Rates(keys, sessions, settings.rate)
        self.reading = asyncio.Lock()
        """Held while a document that is put is read."""
        self.validating = asyncio.Lock()
        """Held while a document is read only to be judged: that must not keep others from putting theirs."""
        self.draining = False
        """No new runs: the server is about to stop."""
        self.routes: tuple[Route, ...] = ()
        """All that it answers, for its description."""
        self.page: dict[str, PageFile] = {}
        """The files of the web page by their names."""
        self.open_streams = OpenStreams(settings.max_streams, settings.retry_after)
        """Counted by the id of the principal. A server that stops calls `break_all` before it waits for anything."""
        self.starts = Starts(runtime, settings.max_starts, settings.retry_after)
        self.waits = Waits()
        """What requests wait for, by the id of the principal. A server that stops calls `end_all`."""
        self.addresses = Addresses(runtime)
        """Who holds a signed address."""
        self.key_watch = KeyWatch(keys, sessions, self.addresses, self.open_streams, self.waits)
        self.refusals = Refusals()
        self.requests = CountedRequests()
        self.run_counts = RunCounts(runtime.store)
        self.workflow_counts = runtime.change_feed.counted


class Call:
    """One request, by a caller who may make it."""

    def __init__(self, request: HttpRequest, server: Server, principal: Principal, route: Route) -> None:
        self.request = request
        self.route = route
        self.server = server
        self.runtime = server.runtime
        self.settings = server.settings
        self.principal = principal
        self.nonce: str | None = None
        """A name that a repetition of this request has too, if it brought an idempotency key."""
        self.is_outcome = False
        """Whether the answer tells how a run ended: that is final, whatever its status."""
        self.is_repeated = False
        """Another process worked on this very request before, and what it makes may be there."""
        self.made: str | None = None
        """The run that it has made: once there is one, a failure is none where nothing has happened."""
        self.forced: str | None = None
        """The type of an event that only an administrator may send: to send it, or to try, is recorded."""
        self.begun: list[str] = []
        """All runs that it has begun."""
        self.reserved = 0
        """How many it may begin, see `Starts`."""

    def has_begun(self, run_id: str) -> None:
        """Note that a run is stored which this request has asked for."""
        self.made = self.made or run_id
        self.begun.append(run_id)

    # -- the body -----------------------------------------------------------------------------------------------------

    async def json(self) -> Any:
        """Read the body as JSON, `None` if there is none."""
        body = await self.request.body()
        if not body.strip():
            return None
        kind = self.request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise ApiProblem("unsupported-media-type", f"The body must be application/json, not {kind}.")
        return await json_off_loop(body, self.settings)

    async def check_event_size(self) -> None:
        """Refuse an event that is larger than allowed, as far as its request tells."""
        if len(await self.request.body()) > self.settings.max_event:
            raise ApiProblem("too-large", f"The event is larger than {self.settings.max_event} bytes.")

    async def body(self, kind: type[RequestT]) -> RequestT:
        """Decode the body as the type that the route declares. A refusal names the place that does not fit."""
        return decoded(await self.json(), kind)

    # -- the query ----------------------------------------------------------------------------------------------------

    def check_query(self) -> None:
        """Refuse parameters that the route does not declare."""
        known = [param.name for param in self.route.params if param.place == "query"]
        for name in self.request.query_params:
            if name not in known:
                raise invalid(f"The parameter {name[:100]!r} is not known: use {', '.join(known) or 'none'}.")

    def query(self, name: str) -> str | None:
        """Read a parameter that is given once at most."""
        values = self.request.query_params.getlist(name)
        if len(values) > 1:
            raise invalid(f"The parameter {name!r} may be given once.")
        return values[0] if values else None

    def flag(self, name: str) -> bool | None:
        """Read a parameter that is true or false."""
        value = self.query(name)
        if value is None:
            return None
        if value.lower() not in ("true", "false"):
            raise invalid(f"The parameter {name!r} is true or false.")
        return value.lower() == "true"

    def number(self, name: str, *, least: int = 0, most: int = 2**53) -> int | None:
        """Read a parameter that is a whole number."""
        value = self.query(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,16}", value, re.ASCII) or not least <= int(value) <= most:
            raise invalid(f"The parameter {name!r} must be a number from {least} to {most}.")
        return int(value)

    def seconds(self, name: str, most: float | None = None) -> float | None:
        """Read a parameter that is a number of seconds; one that is larger than `most` is `most`."""
        value = self.query(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,9})?", value, re.ASCII):
            raise invalid(f"The parameter {name!r} must be a number of seconds.")
        return float(value) if most is None else min(float(value), most)

    def time(self, name: str) -> float | None:
        """Read a parameter that is a moment, in seconds since 1970."""
        value = self.query(name)
        if value is None:
            return None
        # A plus sign that nobody has escaped arrives as a space.
        text = value.replace(" ", "+")
        try:
            return datetime.fromisoformat(text if _TIME.fullmatch(text) else "").timestamp()
        except (ValueError, OverflowError) as error:
            raise invalid(f"The parameter {name!r} must be a time such as 2026-01-01T00:00:00Z.") from error

    def page_size(self) -> int:
        """Return how many items the caller wants."""
        return self.number("limit", least=1, most=self.settings.max_page) or self.settings.page

    # -- runs ---------------------------------------------------------------------------------------------------------

    def run_id(self) -> str:
        """Return the id of the run that the path names."""
        return check_id("run_id", self.request.path_params["run_id"])

    async def row(self, run_id: str | None = None) -> RunRow:
        """Read the row of a run, by default of the one in the path. What a key may not see is not there for it."""
        wanted = run_id if run_id is not None else self.run_id()
        row = await self.runtime.row(wanted)
        if not self.principal.sees(row.workflow):
            raise RunNotFound(wanted)
        if row.workflow.startswith(OWN) and self.request.method not in _READS and not self.principal.has("admin"):
            raise ApiProblem("forbidden", f"Run {wanted!r} belongs to the engine: the key lacks the scope 'admin'.")
        return row

    async def seen(self, run: Run) -> Run:
        """Hide what the key may not see of a run: a parent that is of another workflow."""
        parent = run.parent_id
        if parent is None or self.principal.workflows is None:
            return run
        try:
            await self.row(parent)
        except RunNotFound:
            return replace(run, parent_id=None)
        return run

    def address_of(self, run_id: str) -> str:
        """Return the address of a run."""
        return f"{self.request.scope.get('root_path', '')}/v1/runs/{run_id}"

    def check_workflow(self, name: str) -> None:
        """Refuse what concerns a workflow that the key is not good for."""
        if not self.principal.sees(name):
            raise ApiProblem("forbidden", "The key is not good for this workflow.")


def new_id(what: str, value: object) -> str:
    """Check the id that a caller chooses for a new run: it is no id of Loom's own runs."""
    chosen = check_id(what, value)
    try:
        check_run_id(chosen)
    except ValueError as error:
        raise invalid(str(error), pointer(what)) from error
    return chosen


RequestT = TypeVar("RequestT", bound=Request)

_ID = re.compile(ID_PATTERN[1:-1])
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_PLACE = re.compile(r" - at `\$((?:\.\w+)?)")
_WORDS: dict[Any, str] = {str: "a string", dict: "an object", bool: "true or false", float: "a number of seconds"}


# -- bodies as types --------------------------------------------------------------------------------------------------


def decoded(body: Any, kind: type[RequestT]) -> RequestT:
    """Convert JSON to a request; no body at all is an empty object, and null counts as left out."""
    if body is None:
        body = {}
    if not isinstance(body, dict):
        raise invalid("The body must be an object.")
    known, fields = kind.__struct_fields__, msgspec.structs.fields(kind)
    for name in body:
        if name not in known:
            raise invalid(f"The field {name[:100]!r} is not known: use {', '.join(known)}.", pointer(name))
    for field in fields:
        if field.required and body.get(field.name) is None:
            raise invalid(f"The field {field.name!r} is missing.", pointer(field.name))
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        found = _PLACE.search(str(error))
        name = found[1][1:] if found is not None else ""
        field_type = next((field.type for field in fields if field.name == name), Any)
        raise invalid(_refusal(name, field_type, body.get(name)), pointer(name)) from error


def _refusal(name: str, kind: Any, value: Any) -> str:
    """Say what belongs into a field."""
    if get_origin(kind) is Literal:
        return f"The field {name!r} must be one of {', '.join(map(str, get_args(kind)))}."
    kind, limits = _bare(kind)
    if limits is not None and limits.pattern is not None:
        return _no_id(name)
    if isinstance(kind, type) and issubclass(kind, Request):
        return kind.__refusal__
    if kind is dict and isinstance(value, dict):
        return _bad_tags(value)
    words = f"a number from {limits.ge} on" if limits is not None and limits.ge is not None else _WORDS[kind]
    return f"The field {name!r} must be {words}."


def _bad_tags(tags: dict[str, Any]) -> str:
    """Say what is wrong with tags: their values are strings."""
    try:
        check_tags(tags)
    except (TypeError, ValueError) as error:
        return str(error)
    return "The field 'tags' must be an object."


def _bare(kind: Any) -> tuple[Any, msgspec.Meta | None]:
    """Take a type apart: without `| None` and what is inside of it, and its limits."""
    given = [each for each in get_args(kind) if each is not type(None)]
    if len(given) < len(get_args(kind)):
        return _bare(given[0])
    if get_origin(kind) is Annotated:
        return given[0], next((each for each in given[1:] if isinstance(each, msgspec.Meta)), None)
    return get_origin(kind) or kind, None


def check_id(what: str, value: object) -> str:
    """Return an id of a run or an event if it is one."""
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise invalid(_no_id(what), pointer(what))
    return value


def _no_id(what: str) -> str:
    return f"{what} must be 1 to 200 characters of A-Z a-z 0-9 . _ : ~ -"


def pointer(*parts: str) -> str:
    """Write a JSON Pointer."""
    return "".join(f"/{part[:100].replace('~', '~0').replace('/', '~1')}" for part in parts if part)


# -- bodies as JSON ---------------------------------------------------------------------------------------------------


async def json_off_loop(body: bytes, settings: ServerSettings) -> Any:
    """Read JSON from outside, in a thread if there is much of it. See `read_json`."""
    if len(body) <= OFF_LOOP_BYTES:
        return read_json(body, settings)
    return await aside("convert", read_json, body, settings)


def read_json(body: bytes, settings: ServerSettings) -> Any:
    """JSON from outside: no deeper and no more than allowed, nothing that only Python knows, no key twice, no broken
    text.
    """
    try:
        text = body.decode()
        check_shape(text, settings)
        found = json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique)
        if "\\u" in text:
            json.dumps(found, ensure_ascii=False).encode()  # half a character has no form in UTF-8
    except (ValueError, RecursionError) as error:
        raise invalid(f"The body is not JSON in UTF-8: {str(error)[:200]}") from error
    return found


def check_shape(text: str, settings: ServerSettings) -> None:
    """Refuse a text that nests too deep or makes too many values, before anything reads it."""
    if is_deeper(text, settings.max_depth):
        raise invalid(f"The body is nested more than {settings.max_depth} deep.")
    if count_values(text, settings.max_values) > settings.max_values:
        raise ApiProblem("too-large", f"The body has more than {settings.max_values} values.")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError(f"{digits[:40]} is larger than any number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found


# -- workflows --------------------------------------------------------------------------------------------------------


_SHOWN = 200
"""How many characters of an unknown name a refusal repeats."""


async def served_code(call: Call, workflow: str) -> Registration:
    """Return the code of a workflow that the key is good for; 404 for what is not served here, or not any more."""
    call.check_workflow(workflow)
    try:
        code = await call.runtime.definitions.code_for(workflow) if not workflow.startswith(OWN) else None
    except DefinitionNotFound as error:
        raise ApiProblem("definition-not-found", str(error)) from error
    if code is None:
        raise _not_served(call, workflow)
    return code


async def served_flow(call: Call, workflow: str) -> tuple[Registration, StoredDefinition | None]:
    """Return the code of a workflow, see `served_code`, and what is stored of it if it is a flow."""
    call.check_workflow(workflow)
    code, definition = None, None
    try:
        if not workflow.startswith(OWN):
            code, definition = await call.runtime.definitions.code_and_definition(workflow)
    except DefinitionNotFound as error:
        raise ApiProblem("definition-not-found", str(error)) from error
    if code is None:
        raise _not_served(call, workflow)
    return code, definition


def _not_served(call: Call, workflow: str) -> ApiProblem:
    name = workflow[:_SHOWN]
    seen = [known for known in call.runtime.codes if call.principal.sees(known) and not known.startswith(OWN)]
    return ApiProblem("definition-not-found", f"No workflow {name!r} is served here.{did_you_mean(name, seen)}")


def offered(runtime: WorkerRuntime) -> list[str]:
    """Return the names of the workflows and flows that can be started."""
    return sorted(name for name in runtime.codes if is_offered(name) and name not in runtime.definitions.deleted)


def is_offered(name: str) -> bool:
    """Tell whether runs of a workflow are for clients; the engine keeps some for itself."""
    return not name.startswith(OWN)
