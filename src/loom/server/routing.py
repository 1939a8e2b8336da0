"""Routes, and one request as their functions see it. Every route names its scope: without one it cannot be made.

May import starlette, loom.runtime and the rest of the server's frame.
"""

from __future__ import annotations

import asyncio
import json
import re
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.effects.threads import OFF_LOOP_BYTES, aside
from loom.expressions.jsonshape import count_values, is_deeper
from loom.runtime.durable.names import OWN, check_run_id
from loom.server.counting import CountedRequests, RunCounts
from loom.server.key_watch import KeyWatch
from loom.server.problems import ApiProblem, invalid
from loom.server.rate import Rates
from loom.server.refusals import Refusals
from loom.server.starts import Starts
from loom.server.stream_sending import OpenStreams
from loom.server.waiting import Waits
from loom.store.errors import RunNotFound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from loom.runtime.durable.working import WorkingRuntime
    from loom.runtime.shapes import Run
    from loom.server.auth import Keys, Principal, Scope
    from loom.server.idempotency import Idempotency
    from loom.server.settings import ServerSettings
    from loom.store.records import RunRow

_READS = ("GET", "HEAD")
_ID = re.compile(r"[A-Za-z0-9._:~-]{1,200}")


class Route(NamedTuple):
    """One operation of the API."""

    method: str
    path: str
    answer: Callable[[Call], Awaitable[Response]]
    scope: Scope | None
    """What a key needs; None: open to everybody."""


class Server:
    """What all requests share."""

    def __init__(self, runtime: WorkingRuntime, settings: ServerSettings, keys: Keys, idempotency: Idempotency) -> None:
        self.runtime = runtime
        self.settings = settings
        self.keys = keys
        self.idempotency = idempotency
        self.rates = Rates(keys, settings.rate)
        self.reading = asyncio.Lock()
        """Held while a document that is put is read."""
        self.validating = asyncio.Lock()
        """Held while a document is read only to be judged: that must not keep others from putting theirs."""
        self.draining = False
        """No new runs: the server is about to stop."""
        self.routes: tuple[Route, ...] = ()
        """All that it answers, for its description."""
        self.open_streams = OpenStreams(settings.max_streams, settings.retry_after)
        """Counted by the id of the principal. A server that stops calls `break_all` before it waits for anything."""
        self.starts = Starts(runtime, settings.max_starts, settings.retry_after)
        self.waits = Waits()
        """What requests wait for, by the id of the principal. A server that stops calls `end_all`."""
        self.key_watch = KeyWatch(keys, self.open_streams, self.waits)
        self.refusals = Refusals()
        self.requests = CountedRequests()
        self.run_counts = RunCounts(runtime.store)


class Call:
    """One request, by somebody who may make it."""

    def __init__(self, request: Request, server: Server, principal: Principal) -> None:
        self.request = request
        self.server = server
        self.runtime = server.runtime
        self.settings = server.settings
        self.principal = principal
        self.nonce: str | None = None
        """A name that a repetition of this request has too, if it brought an idempotency key."""
        self.is_outcome = False
        """Whether the answer tells how a run ended: that is final, whatever its status."""
        self.is_repeated = False
        """Somebody was at work on this very request before, and what it makes may be there."""
        self.made: str | None = None
        """The run that it has made: once there is one, a failure is none where nothing has happened."""
        self.forced: str | None = None
        """The type of an event that only an administrator may send: to send it, or to try, is recorded."""
        self.begun: list[str] = []
        """All runs that it has begun."""
        self.reserved = 0
        """How many it may begin, see `Starts`."""

    def has_begun(self, run_id: str) -> None:
        """A run is stored that this request has asked for."""
        self.made = self.made or run_id
        self.begun.append(run_id)

    # -- the body -----------------------------------------------------------------------------------------------------

    async def json(self) -> Any:
        """The body as JSON, `None` if there is none."""
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

    async def fields(self, *known: str, required: tuple[str, ...] = ()) -> dict[str, Any]:
        """The body as an object that has no other fields than these."""
        body = await self.json()
        if body is None:
            body = {}
        if not isinstance(body, dict):
            raise invalid("The body must be an object.")
        for name in body:
            if name not in known:
                raise invalid(f"The field {name[:100]!r} is not known: use {', '.join(known)}.", pointer(name))
        for name in required:
            if body.get(name) is None:
                raise invalid(f"The field {name!r} is missing.", pointer(name))
        return body

    # -- the query ----------------------------------------------------------------------------------------------------

    def check_query(self, *known: str) -> None:
        """Refuse parameters that nobody would look at."""
        for name in self.request.query_params:
            if name not in known:
                raise invalid(f"The parameter {name[:100]!r} is not known: use {', '.join(known) or 'none'}.")

    def query(self, name: str) -> str | None:
        """A parameter that is given once at most."""
        values = self.request.query_params.getlist(name)
        if len(values) > 1:
            raise invalid(f"The parameter {name!r} may be given once.")
        return values[0] if values else None

    def flag(self, name: str) -> bool | None:
        """A parameter that is true or false."""
        value = self.query(name)
        if value is None:
            return None
        if value.lower() not in ("true", "false"):
            raise invalid(f"The parameter {name!r} is true or false.")
        return value.lower() == "true"

    def number(self, name: str, *, least: int = 0, most: int = 2**53) -> int | None:
        """A parameter that is a whole number."""
        value = self.query(name)
        if value is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,16}", value, re.ASCII) or not least <= int(value) <= most:
            raise invalid(f"The parameter {name!r} must be a number from {least} to {most}.")
        return int(value)

    def seconds(self, name: str, most: float | None = None) -> float | None:
        """A parameter that is a length of time; one that is longer than `most` is `most`."""
        value = self.query(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,9})?", value, re.ASCII):
            raise invalid(f"The parameter {name!r} must be a number of seconds.")
        return float(value) if most is None else min(float(value), most)

    def page_size(self) -> int:
        """How many items the caller wants."""
        return self.number("limit", least=1, most=self.settings.max_page) or self.settings.page

    # -- runs ---------------------------------------------------------------------------------------------------------

    def run_id(self) -> str:
        """The run that the path names."""
        return check_id("run_id", self.request.path_params["run_id"])

    async def row(self, run_id: str | None = None) -> RunRow:
        """The row of a run, by default of the one in the path. What a key may not see is not there for it."""
        wanted = run_id if run_id is not None else self.run_id()
        row = await self.runtime.row(wanted)
        if not self.principal.sees(row.workflow):
            raise RunNotFound(wanted)
        if row.workflow.startswith(OWN) and self.request.method not in _READS and not self.principal.has("admin"):
            raise ApiProblem("forbidden", f"Run {wanted!r} belongs to the engine: the key lacks the scope 'admin'.")
        return row

    async def seen(self, run: Run) -> Run:
        """A run without what the key may not see: a parent that is of another workflow."""
        parent = run["parent_id"]
        if parent is None or self.principal.workflows is None:
            return run
        try:
            await self.row(parent)
        except RunNotFound:
            return {**run, "parent_id": None}
        return run

    def address_of(self, run_id: str) -> str:
        """Where a run is to be found."""
        return f"{self.request.scope.get('root_path', '')}/v1/runs/{run_id}"

    def check_workflow(self, name: str) -> None:
        """Refuse what concerns a workflow that the key is not good for."""
        if not self.principal.sees(name):
            raise ApiProblem("forbidden", "The key is not good for this workflow.")


def check_id(what: str, value: object) -> str:
    """An id of a run or an event, as it may be."""
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise invalid(f"{what} must be 1 to 200 characters of A-Z a-z 0-9 . _ : ~ -", pointer(what))
    return value


def new_id(what: str, value: object) -> str:
    """Check the id that a caller chooses for a new run: it is no id of Loom's own runs."""
    chosen = check_id(what, value)
    try:
        check_run_id(chosen)
    except ValueError as error:
        raise invalid(str(error), pointer(what)) from error
    return chosen


def pointer(*parts: str) -> str:
    """A JSON Pointer."""
    return "".join(f"/{part[:100].replace('~', '~0').replace('/', '~1')}" for part in parts)


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
