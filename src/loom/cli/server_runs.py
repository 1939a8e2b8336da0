"""Reach the runs of a server for commands. It loads nothing that runs workflows, because commands must start fast.

What the server refuses is told in the words and with the exit codes that a store has for it.
"""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec

from loom.api.answers import Page
from loom.api.definitions import Schedule
from loom.api.requests import query_of
from loom.api.runs import Delivery, HistoryItem, Replay, Run
from loom.api.state import State
from loom.api.views import Timeline
from loom.api.why import Why
from loom.cli.options import given_to_flow
from loom.cli.problems import NoServer, NotAllowed, Problem, WrongUse
from loom.client.connection import Client
from loom.client.errors import ClientError
from loom.client.exchange import Retries

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from loom.api.bulk import Bulk, BulkAction
    from loom.api.changes import RunChange
    from loom.api.counts import Counts
    from loom.api.definitions import Definition, FlowAddress, FlowStatus, TriggerFired, TriggerHistory
    from loom.api.requests import ForkRequest, RunFilters
    from loom.api.runs import StreamEvent
    from loom.api.workers import Worker
    from loom.cli.sources import Given, Runs

T = TypeVar("T")


@contextmanager
def told_by_server() -> Iterator[None]:
    """Turn the refusals of a server into problems, in the way of a store's refusals."""
    try:
        yield
    except ClientError as error:
        raise _KINDS.get(error.code, Problem)(_words(error)) from error
    except UnicodeEncodeError as error:
        raise WrongUse(f"{error.object!r} has no form in UTF-8: it cannot be sent.") from error


@contextmanager
def told_as_problem(path: str = "") -> Iterator[None]:
    """A request that is not valid here asks for something that is not there; the command as such is right."""
    try:
        yield
    except ClientError as error:
        if error.code == "invalid-request" and any(place.path == path for place in error.problem.errors):
            raise Problem(_words(error)) from error
        raise


def _words(error: ClientError) -> str:
    problem = error.problem
    words = problem.detail or problem.title or problem.code
    places = [f"{place.path.lstrip('/')}: {place.message}" for place in problem.errors if place.message != words]
    if places:
        words += f" {'; '.join(places).rstrip('.')}."
    if problem.code == "internal" and problem.request_id:
        words += f" The server's log has it as request {problem.request_id}."
    return words + _ADVICE.get(problem.code, "")


_ADVICE = {
    "unauthenticated": " Give a key of the server in the variable LOOM_API_KEY.",
}
_KINDS: dict[str, type[Problem]] = {
    "invalid-request": WrongUse,
    "unreachable": NoServer,
    "unexpected-answer": NoServer,
    "store-unavailable": NoServer,
    "draining": NoServer,
    "memory-exceeded": NoServer,
    "unauthenticated": NotAllowed,
    "forbidden": NotAllowed,
}


_RETRIES = Retries(attempts=3, patience=5.0)
"""A person waits: a command gives up sooner than a program, but a stream that it follows goes on."""
_PAGE = 100
"""How much a server gives at once, if it is not told otherwise."""
_INTERNAL = "InternalDispatchEvent"
_ENDED = ("completed", "failed", "cancelled")


@asynccontextmanager
async def server_runs(url: str, api_key: str | None) -> AsyncIterator[Runs]:
    """The runs of a server, as far as the key goes."""
    try:
        client = Client(url, api_key, retries=_RETRIES)
    except ValueError as error:
        raise WrongUse(str(error)) from error
    async with client:
        yield ServerRuns(client)


class ServerRuns:
    """See `Runs`. Each call returns once the server has stored what was asked."""

    def __init__(self, client: Client) -> None:
        self._client = client

    # -- looking ------------------------------------------------------------------------------------------------------

    async def list(self, filters: RunFilters, limit: int) -> Sequence[Run]:
        """See `Runs`."""
        params = {**query_of(filters), "limit": limit if limit < _PAGE else None}
        found: list[Run] = []
        async for run in self._pages("/v1/runs", params, Run):
            found.append(run)
            if len(found) == limit:
                break
        return found

    async def counts(self, workflows: Sequence[str]) -> Counts:
        """See `Runs`."""
        return await self._client.counts(workflow=workflows or None)

    def changes(self, filters: RunFilters, after: str | None) -> AsyncIterator[RunChange]:
        """See `Runs`."""
        return self._client.changes(after=after, **filters)

    async def workers(self) -> Sequence[Worker]:
        """See `Runs`."""
        return await self._client.workers()

    async def get(self, run_id: str) -> Run:
        """See `Runs`."""
        return await self._read(_run(run_id), Run, "run_id")

    async def why(self, run_id: str) -> Why:
        """See `Runs`."""
        return await self._read(f"{_run(run_id)}/why", Why, "run_id")

    async def timeline(self, run_id: str, lane: str | None, offset: int, limit: int) -> Timeline:
        """See `Runs`."""
        page = {"lane": lane, "offset": offset, "limit": limit} if lane is not None else {}
        return await self._read(f"{_run(run_id)}/timeline", Timeline, "lanes", **page)

    async def state(self, run_id: str, tick: int | None) -> State:
        """See `Runs`."""
        with told_as_problem():
            return await self._read(f"{_run(run_id)}/state", State, "run_id", tick=tick)

    async def events(self, run_id: str, after: int, *, internal: bool, follow: bool) -> AsyncIterator[StreamEvent]:
        """See `Runs`. To know when the last event of now has come, internal ones are read too, and left out here."""
        run = await self.get(run_id)
        last = None if follow else run.cursor
        if last is not None and last <= after:
            return
        async with aclosing(self._client.stream(run_id, after=after, internal=True)) as stream:
            async for event in stream:
                if internal or _INTERNAL not in (event.types or ()):
                    yield event
                if last is not None and event.seq >= last:
                    return

    async def history(self, run_id: str, start: int) -> AsyncIterator[HistoryItem]:
        """See `Runs`."""
        async for found in self._pages(f"{_run(run_id)}/history", {"after": start - 1}, HistoryItem):
            yield found

    async def replay(self, run_id: str) -> Replay:
        """See `Runs`."""
        return await self._read(f"{_run(run_id)}/replay", Replay, "replay")

    # -- acting -------------------------------------------------------------------------------------------------------

    async def start(self, workflow: str, given: Given, run_id: str | None, tags: Mapping[str, str]) -> str:
        """See `Runs`."""
        flow = given_to_flow(given)
        if "headers" in flow:
            raise WrongUse("A run on a server begins without headers: use `POST /v1/definitions/{name}/invoke`.")
        run = await self._client.start(
            workflow,
            flow.get("body"),
            run_id=run_id,
            parameters=flow.get("parameters"),
            variables=flow.get("variables"),
            tags=tags or None,
        )
        return run.run_id

    async def send(self, run_id: str, event: str, value: Any, aim: Mapping[str, str | None]) -> Delivery:
        """See `Runs`."""
        body = {"type": event, "value": value, **{name: given for name, given in aim.items() if given is not None}}
        with told_as_problem("/type"):
            return await self._post(f"{_run(run_id)}/events", Delivery, "delivered", body)

    async def ask(self, run_id: str, what: str, **how: Any) -> None:
        """See `Runs`."""
        await self._client.request("POST", f"{_run(run_id)}/{what}", how or None)

    async def bulk(self, action: BulkAction, filters: RunFilters, *, dry_run: bool) -> AsyncIterator[Bulk]:
        """See `Runs`."""
        async for told in self._client.bulk(action, filters, dry_run=dry_run):
            yield told

    async def deepen(self, run_id: str, max_depth: int) -> None:
        """See `Runs`."""
        await self._client.resume(run_id, max_depth=max_depth)

    async def heal(self, run_id: str, event: str, value: Any) -> None:
        """See `Runs`."""
        with told_as_problem("/event"):
            await self._post(f"{_run(run_id)}/retry", Run, "run_id", {"event": {"type": event, "value": value}})

    async def fork(self, run_id: str, request: ForkRequest) -> str:
        """See `Runs`."""
        with told_as_problem("/tick"), told_as_problem("/store"), told_as_problem("/input"), told_as_problem("/event"):
            return (await self._post(f"{_run(run_id)}/fork", Run, "run_id", request)).run_id

    async def export_run(self, run_id: str) -> bytes:
        """See `Runs`."""
        with told_as_problem("run_id"):
            return await self._client.export_run(run_id)

    async def import_run(self, data: bytes) -> str:
        """See `Runs`."""
        try:
            return (await self._client.import_run(data)).run_id
        except ValueError as error:
            raise Problem(str(error)) from error

    async def skip(self, run_id: str, timer: int | None) -> None:
        """See `Runs`."""
        await self._client.skip(run_id, timer)

    async def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """See `Runs`."""
        with told_as_problem("/tags"):
            await self._client.set_tags(run_id, tags)

    async def purge(self, run_id: str | None, ended_before: float | None) -> int:
        """See `Runs`. The server deletes child runs with their parents, so some may be gone when their turn comes."""
        if run_id is not None:
            path, gone = _run(run_id), 1 + await self._below(run_id)
            await self._client.request("DELETE", path)
            return gone
        old = [
            run.run_id
            async for run in self._pages("/v1/runs", {"status": _ENDED}, Run)
            if run.completed_at is not None and run.completed_at.timestamp() < (ended_before or 0.0)
        ]
        gone = 0
        for each in old:
            try:
                await self._client.request("DELETE", _run(each))
            except ClientError as error:
                if error.code == "run-active":
                    continue  # a run that it has started goes on, and is not left without its parent
                if error.code != "run-not-found":
                    raise
            gone += 1
        return gone

    async def _below(self, run_id: str) -> int:
        """How many runs a run has started, and those in turn."""
        found = 0
        async for child in self._pages("/v1/runs", {"parent_id": run_id}, Run):
            found += 1 + await self._below(child.run_id)
        return found

    # -- schedules ----------------------------------------------------------------------------------------------------

    async def schedule(self, name: str, workflow: str, given: Given) -> Schedule:
        """See `Runs`."""
        body = {"name": name, "workflow": workflow, **{key: value for key, value in given.items() if value is not None}}
        return await self._post("/v1/schedules", Schedule, "name", body)

    async def schedules(self) -> Sequence[Schedule]:
        """See `Runs`."""
        return [found async for found in self._pages("/v1/schedules", {}, Schedule)]

    async def get_schedule(self, name: str) -> Schedule:
        """See `Runs`."""
        return await self._read(_schedule(name), Schedule, "name")

    async def unschedule(self, name: str) -> None:
        """See `Runs`."""
        await self._client.request("DELETE", _schedule(name))

    async def ask_schedule(self, name: str, what: str) -> str:
        """See `Runs`."""
        return (await self._post(f"{_schedule(name)}/{what}", Schedule, "run_id")).run_id or ""

    # -- flows --------------------------------------------------------------------------------------------------------

    async def flows(self) -> Sequence[Definition]:
        """See `Runs`."""
        return [found for found in await self._client.definitions() if found.kind == "flow"]

    async def flow_status(self, name: str) -> FlowStatus:
        """See `Runs`."""
        return await self._client.flow_status(_named(name))

    async def turn_flow(self, name: str, *, enabled: bool) -> FlowStatus:
        """See `Runs`."""
        return await (self._client.enable_flow if enabled else self._client.disable_flow)(_named(name))

    async def trigger_history(self, name: str, trigger: str) -> TriggerHistory:
        """See `Runs`."""
        return await self._client.trigger_history(_named(name), _named(trigger))

    async def fire_trigger(self, name: str, trigger: str) -> TriggerFired:
        """See `Runs`."""
        with told_as_problem():
            return await self._client.fire_trigger(_named(name), _named(trigger))

    async def flow_address(self, name: str, url: str | None, *, expires_in: float | None, rotate: bool) -> FlowAddress:
        """See `Runs`. The server knows where it is."""
        del url
        with told_as_problem():
            return await self._client.flow_address(_named(name), expires_in=expires_in, rotate=rotate)

    # -- shared -------------------------------------------------------------------------------------------------------

    async def _read(self, path: str, kind: type[T], field: str, **params: Any) -> T:
        return _of_loom(await self._client.request("GET", path, params=params), kind, f"GET {path}", field)

    async def _post(self, path: str, kind: type[T], field: str, body: Any = None) -> T:
        return _of_loom(await self._client.request("POST", path, body), kind, f"POST {path}", field)

    async def _pages(self, path: str, params: Given, kind: type[T]) -> AsyncIterator[T]:
        cursor: str | None = None
        while True:
            page = await self._read(path, Page[Any], "items", **params, cursor=cursor)
            for item in page.items:
                yield _of_loom(item, kind, f"GET {path}")
            if (cursor := page.next_cursor) is None:
                return


def _of_loom(answer: Any, kind: type[T], request: str, field: str | None = None) -> T:
    """Read an answer, if it has a field that such an answer always has: some other server may have given it."""
    if field is not None and (not isinstance(answer, dict) or field not in answer):
        raise NoServer(f"{request} gave an unexpected answer, without {field!r}. Is it a server of Loom?")
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise NoServer(f"{request} gave an unexpected answer: {error}. Is it a server of Loom?") from error


def _run(run_id: str) -> str:
    return f"/v1/runs/{_segment(run_id)}"


def _schedule(name: str) -> str:
    return f"/v1/schedules/{_segment(name)}"


def _segment(name: str) -> str:
    """A name as one part of a path, so that no name can lead elsewhere."""
    return quote(_named(name), safe="")


def _named(name: str) -> str:
    if name in ("", ".", ".."):
        raise WrongUse(f"{name!r} is no name.")
    return name
