"""One request as the functions of routes see it, and what all requests of a server share."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from loom.runtime.durable.names import OWN, check_run_id
from loom.server.bodies import check_id, decoded, json_off_loop, pointer
from loom.server.metrics import CountedRequests, RunCounts
from loom.server.problems import ApiProblem, invalid
from loom.server.rate import Rates, Refusals
from loom.server.starts import Starts
from loom.server.streams import OpenStreams
from loom.server.waiting import KeyWatch, Waits
from loom.store.errors import RunNotFound

if TYPE_CHECKING:
    from starlette.requests import Request

    from loom.api.runs import Run
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.server.auth import Keys, Principal
    from loom.server.bodies import RequestT
    from loom.server.idempotency import Idempotency
    from loom.server.routes import Route
    from loom.server.settings import ServerSettings
    from loom.store.records import RunRow

_READS = ("GET", "HEAD")
_ID = re.compile(r"[A-Za-z0-9._:~-]{1,200}")


class Server:
    """What all requests share."""

    def __init__(self, runtime: WorkerRuntime, settings: ServerSettings, keys: Keys, idempotency: Idempotency) -> None:
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
    """One request, by a caller who may make it."""

    def __init__(self, request: Request, server: Server, principal: Principal, route: Route) -> None:
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
