"""The client of a Loom server: runs, definitions, schedules and flows as endpoints, each by one method."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, get_args

import msgspec
from typing_extensions import override

from loom.api.answers import Page
from loom.api.attempts import Attempts
from loom.api.bulk import Bulk, BulkAction, BulkRequest
from loom.api.counts import Counts
from loom.api.definitions import (
    Definition,
    DefinitionVersion,
    FlowAddress,
    FlowStatus,
    PutDefinition,
    Schedule,
    TriggerFired,
    TriggerHistory,
    Validation,
)
from loom.api.requests import (
    AddressRequest,
    BetterEvent,
    CancelRequest,
    EventRequest,
    ForkRequest,
    ResumeRequest,
    RetryRequest,
    ScheduleRequest,
    SkipRequest,
    StartRequest,
    TagsRequest,
    query_of,
)
from loom.api.runs import Delivery, HistoryItem, Replay, Run, StreamEvent
from loom.api.service import Health, Session
from loom.api.state import Action, Loop
from loom.api.views import Iteration, RunGraph, Timeline
from loom.api.why import Why
from loom.api.workers import Role, Worker
from loom.client.bodies import described_event, document_body, plain_dict, written_filters
from loom.client.exchange import ApiCall, Exchange, Retries, act, decoded, exported_id, read, segment
from loom.client.invoked import ANSWERED_BY, Invoked, invocation, invoked_from
from loom.client.paths import SCHEDULES_PATH, definition_path, schedule_path, trigger_path
from loom.client.streams import SILENCE, Reader, follow_changes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
    from datetime import datetime
    from types import TracebackType

    import httpx2

    from loom.api.changes import RunChange
    from loom.api.requests import RunFilters
    from loom.steps.events import Event

T = TypeVar("T")

TIMEOUT = 30.0
"""How many seconds a request may take, beside the time that it waits on purpose."""
LONGEST_WAIT = 60.0
"""How many seconds a server lets one request wait at most."""
"""The header by which an answer of a flow names its run."""
_UNAVAILABLE = 503


class Client:
    """A Loom server, from afar.

    ::

        async with loom.Client("http://127.0.0.1:8080", api_key=key) as client:
            run = await client.start("my", {"topic": "x"}, run_id="order-17")
            run = await client.wait(run.run_id)

    What the server refuses is raised as `loom.RunNotFound` and its like, each of which is a `loom.ClientError` too.
    `transport` replaces the network, for tests and proxies.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        retries: Retries | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._exchange = Exchange(url, api_key, timeout=timeout, retries=retries or Retries(), transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._exchange.close()

    async def request(
        self, method: str, path: str, body: Any = None, *, params: Mapping[str, Any] | None = None
    ) -> Any:
        """Ask any route of the API, for what has no method here. The answer is plain data; None if it has no body.

        Names in the path must be escaped already. A POST happens once, however often a broken connection repeats it.
        """
        call = (
            act(path, body, params=params or {})
            if method == "POST"
            else ApiCall(method=method, path=path, body=body, params=params or {})
        )
        response = await self._exchange.send(call)
        return decoded(response, object) if response.content else None

    # -- starting and waiting -----------------------------------------------------------------------------------------

    async def start(  # noqa: PLR0913 - all by name
        self,
        workflow: str,
        input: Any = None,  # noqa: A002 - what it is called elsewhere
        *,
        run_id: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        version: str | int | None = None,
        tags: Mapping[str, str] | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
    ) -> Run:
        """Start a run. Returns once the start is durable, or, with `wait`, at the end of the run or after so long.

        `input` holds the fields of the start event, or is one; for a flow it is the trigger's body. A connection that
        breaks starts nothing twice: every start has an idempotency key. The same `run_id`, workflow and input give
        the run that is there; another input raises `RunExists`.
        """
        body = StartRequest(
            workflow=workflow,
            input=input,
            run_id=run_id,
            parameters=plain_dict(parameters),
            variables=plain_dict(variables),
            version=version,  # type: ignore[arg-type]  # the server refuses a text
            tags=plain_dict(tags),
        )
        wait = None if wait is None else min(wait, LONGEST_WAIT)
        call = act("/v1/runs", body, key=idempotency_key, params={"wait": wait}, run_id=run_id, wait=wait or 0.0)
        return await self._exchange.ask(call, Run)

    async def get(self, run_id: str, *, wait: float | None = None) -> Run:
        """Get the run as it is now; with `wait` at its end, or after at most this many seconds (60)."""
        wait = None if wait is None else min(wait, LONGEST_WAIT)
        return await self._exchange.ask(self._read(run_id, params={"wait": wait}, wait=wait or 0.0), Run)

    async def wait(self, run_id: str, *, timeout: float | None = None) -> Run:  # noqa: ASYNC109 - it ends the polling
        """Wait for the end of a run, however it ends. `TimeoutError` if that takes longer than `timeout` seconds."""
        now = asyncio.get_running_loop().time
        due = None if timeout is None else now() + timeout
        while True:
            left = LONGEST_WAIT if due is None else min(LONGEST_WAIT, max(0.0, due - now()))
            run = await self.get(run_id, wait=left)
            if run.finished:
                return run
            if due is not None and now() >= due:
                raise TimeoutError(f"Run {run_id!r} is still running after {timeout:g} seconds.")

    # -- looking ------------------------------------------------------------------------------------------------------

    async def list(self, *, limit: int | None = None, **filters: Unpack[RunFilters]) -> AsyncIterator[Run]:
        """List all runs that pass the filters, page by page; `limit` is the size of a page."""
        async for run in self._pages(read("/v1/runs", params={**query_of(filters), "limit": limit}), Run):
            yield run

    async def workers(self) -> Sequence[Worker]:
        """List the processes that work on runs."""
        return [found async for found in self._pages(read("/v1/workers"), Worker)]

    async def counts(self, *, workflow: str | Sequence[str] | None = None) -> Counts:
        """Count the runs by status and by what holds them, of all workflows or of these."""
        return await self._exchange.ask(read("/v1/counts", params={"workflow": workflow}), Counts)

    def changes(
        self, *, after: str | None = None, silence: float = SILENCE, **filters: Unpack[RunFilters]
    ) -> AsyncGenerator[RunChange]:
        """Follow the runs that pass the filters as they change, from now on or after the `id` of a change.

        It does not end. First come the counts. Of several changes of a run the newest is what matters, so those before
        may be left out. A connection that breaks, or is silent for `silence` seconds, is opened again: no change is
        missed, but one may be repeated. `order`, `include` and `idle_longer_than` are for lists.
        """
        return follow_changes(self._exchange, query_of(filters), after, silence)

    async def history(
        self,
        run_id: str,
        *,
        after: int | None = None,
        type: str | Sequence[str] | None = None,  # noqa: A002 - as the API says
        commands: bool = False,
    ) -> AsyncIterator[HistoryItem]:
        """Read the ticks of a run that come after `after`; `commands` adds what each one led to."""
        params = {"after": after, "type": type, "commands": commands or None}
        async for item in self._pages(self._read(run_id, "/history", params=params), HistoryItem):
            yield item

    async def state(self, run_id: str, *, tick: int | None = None) -> dict[str, Any]:
        """Get the state of a run, now or as it was after a tick."""
        return await self._exchange.ask(self._read(run_id, "/state", params={"tick": tick}), dict[str, Any])

    async def attempts(self, run_id: str) -> Attempts:
        """Tell what a run is at work on: the attempts under way, and the failed ones that will be repeated."""
        return await self._exchange.ask(self._read(run_id, "/state"), Attempts)

    async def why(self, run_id: str) -> Why:
        """Tell what holds a run now: one sentence, and its causes as data."""
        return await self._exchange.ask(self._read(run_id, "/why"), Why)

    async def loops(self, run_id: str, *, all: bool = False) -> Sequence[Loop]:  # noqa: A002 - as the API says
        """Tell how far the loops of a run are; `all`: also the ended ones."""
        page = await self._exchange.ask(self._read(run_id, "/loops", params={"all": all or None}), Page[Loop])
        return page.items

    async def actions(self, run_id: str, *, path: str | None = None) -> Sequence[Action]:
        """Tell what became of the actions of a flow; `path` means one repetition."""
        page = await self._exchange.ask(self._read(run_id, "/actions", params={"path": path}), Page[Action])
        return page.items

    async def run_graph(self, run_id: str, *, tick: int | None = None) -> RunGraph:
        """Get the graph of a run with counts per step or action, now or as they were after a tick."""
        return await self._exchange.ask(self._read(run_id, "/graph", params={"tick": tick}), RunGraph)

    async def timeline(
        self,
        run_id: str,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
        lane: str | None = None,
        offset: int | None = None,
        limit: int | None = None,
    ) -> Timeline:
        """Tell what a run did over time; `lane` gives a page of the bars of one step or action."""
        params = {"begin": begin, "end": end, "lane": lane, "offset": offset, "limit": limit}
        return await self._exchange.ask(self._read(run_id, "/timeline", params=params), Timeline)

    async def iterations(self, run_id: str, path: str, *, oldest_first: bool = False) -> AsyncIterator[Iteration]:
        """List the iterations of a loop of a flow, such as `loop` or `outer[2]/inner`, newest first."""
        params = {"path": path, "order": "iteration" if oldest_first else None}
        async for item in self._pages(self._read(run_id, "/iterations", params=params), Iteration):
            yield item

    async def replay(self, run_id: str) -> Replay:
        """Tell whether the ticks of a run, reduced again, give what is stored."""
        return await self._exchange.ask(self._read(run_id, "/replay"), Replay)

    def stream(
        self,
        run_id: str,
        *,
        after: int = -1,
        internal: bool = False,
        types: Sequence[str] = (),
        silence: float = SILENCE,
    ) -> AsyncGenerator[StreamEvent]:
        """Read the events of a run after the cursor `after`, as they come, until its end.

        A connection that breaks, or is silent for `silence` seconds, is opened again after the last event: nothing
        is missing, nothing comes twice. To go on later, keep the `seq` of the last event.
        """
        reader = Reader(self._exchange, run_id, after=after, internal=internal, types=types, silence=silence)
        return reader.events()

    # -- acting -------------------------------------------------------------------------------------------------------

    async def send_event(
        self,
        run_id: str,
        event: Event | str,
        value: Any = None,
        *,
        step: str | None = None,
        waiter_id: str | None = None,
        event_id: str | None = None,
    ) -> Delivery:
        """Send a run an event: the event itself, or the name of its type and its fields. Returns once it is durable."""
        name, fields = described_event(event, value)
        body = EventRequest(type=name, value=fields, step=step, waiter_id=waiter_id, event_id=event_id)
        return await self._exchange.ask(self._act(run_id, "events", body), Delivery)

    async def cancel(self, run_id: str, *, reason: str | None = None, force: bool = False) -> Run:
        """Cancel a run, with `force` without its clean-up. One that has ended otherwise raises `RunFinished`."""
        return await self._exchange.ask(self._act(run_id, "cancel", CancelRequest(reason=reason, force=force)), Run)

    async def pause(self, run_id: str) -> Run:
        """Let a run start nothing new; it keeps what comes."""
        return await self._exchange.ask(self._act(run_id, "pause"), Run)

    async def resume(self, run_id: str, *, max_depth: int | None = None) -> Run:
        """Let a paused run go on, or try a parked one again, with a higher limit of its depth if one is given."""
        body = ResumeRequest(max_depth=max_depth) if max_depth is not None else None
        return await self._exchange.ask(self._act(run_id, "resume", body), Run)

    async def skip(self, run_id: str, timer: int | None = None) -> Run:
        """End the delays and back-offs of a run now, or the one with the number of a timer in its state.

        A run without such a delay is refused: a `ClientError` with the code `nothing-to-skip`.
        """
        return await self._exchange.ask(self._act(run_id, "skip", SkipRequest(timer=timer)), Run)

    async def set_tags(self, run_id: str, tags: Mapping[str, str]) -> Run:
        """Replace the tags of a run, whatever its status."""
        call = ApiCall(
            method="PUT", path=f"/v1/runs/{segment(run_id)}/tags", body=TagsRequest(tags=dict(tags)), run_id=run_id
        )
        return await self._exchange.ask(call, Run)

    async def retry(self, run_id: str, event: Event | str | None = None, value: Any = None) -> Run:
        """Let a failed run go on from its failed step; with an event in place of the one that failed it.

        The event is given itself, or by the name of its type and its fields.
        """
        better = None
        if event is not None:
            name, fields = described_event(event, value)
            better = BetterEvent(type=name, value=fields)
        return await self._exchange.ask(self._act(run_id, "retry", RetryRequest(event=better)), Run)

    async def fork(
        self,
        run_id: str,
        tick: int,
        *,
        new_run_id: str | None = None,
        input: Any = None,  # noqa: A002 - what it is called elsewhere
        event: tuple[str, Any] | Event | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> Run:
        """Start another run from the state that this one had after a tick; with changes, which need an `admin` key.

        `input` replaces what the run began with, which needs tick 0. `store` has new values by dotted path: of the
        store of steps, of the variables of a flow. `event` is what the new run gets first, or its type and fields.
        """
        first = None
        if event is not None:
            name, fields = event if isinstance(event, tuple) else described_event(event, None)
            first = BetterEvent(type=name, value=fields)
        body = ForkRequest(tick=tick, run_id=new_run_id, input=input, event=first, store=plain_dict(store))
        return await self._exchange.ask(self._act(run_id, "fork", body), Run)

    async def export_run(self, run_id: str) -> bytes:
        """Get everything that is stored of a run, as JSON, for `import_run` of another server. Needs `admin`."""
        return (await self._exchange.send(self._read(run_id, "/export"))).content

    async def import_run(self, data: bytes) -> Run:
        """Store a run that was exported. If it is not over, it goes on. Needs `admin`."""
        run_id = exported_id(data)
        path = f"/v1/runs/{segment(run_id)}/export"
        return await self._exchange.ask(ApiCall(method="PUT", path=path, body=data, run_id=run_id), Run)

    async def bulk(
        self,
        action: BulkAction,
        filter: Mapping[str, Any],  # noqa: A002 - as the API says
        *,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> AsyncIterator[Bulk]:
        """Do something with all runs that pass a filter, and tell how far it is; the last report is `finished`.

        The filter has names and values as `list` takes them. If the connection breaks, what is done stays done.
        """
        body = BulkRequest(action=action, filter=written_filters(filter), dry_run=dry_run, reason=reason)
        call = ApiCall(method="POST", path="/v1/bulk", body=body, headers={"Accept": "application/x-ndjson"})
        async with self._exchange.stream(call, SILENCE) as response:
            async for line in response.aiter_lines():
                if line:
                    yield msgspec.json.decode(line, type=Bulk)

    async def delete(self, run_id: str) -> None:
        """Delete a run that has ended, with its history, state and events."""
        await self._exchange.send(ApiCall(method="DELETE", path=f"/v1/runs/{segment(run_id)}", run_id=run_id))

    # -- definitions --------------------------------------------------------------------------------------------------

    async def definitions(self) -> Sequence[Definition]:
        """List the workflows that the server knows."""
        return [found async for found in self._pages(read("/v1/definitions"), Definition)]

    async def versions(self, name: str) -> Sequence[DefinitionVersion]:
        """List the versions of a flow, newest first; Python steps have none."""
        return [found async for found in self._pages(read(f"{definition_path(name)}/versions"), DefinitionVersion)]

    async def definition(self, name: str, *, version: str | int | None = None) -> dict[str, Any]:
        """Get the document of a flow; of Python steps their events and schemas."""
        return await self._exchange.ask(read(definition_path(name), params={"version": version}), dict[str, Any])

    async def put_definition(
        self, name: str, document: Mapping[str, Any] | str, *, if_match: str | None = None
    ) -> PutDefinition:
        """Store a flow: a document, or the text of one in JSON or YAML. Raises `DefinitionError` with all problems.

        With `if_match` only if the stored one still has that etag.
        """
        headers = {"If-Match": if_match} if if_match is not None else {}
        call = ApiCall(method="PUT", path=definition_path(name), **document_body(document, headers))
        return await self._exchange.ask(call, PutDefinition)

    async def delete_definition(self, name: str) -> None:
        """Let nothing new start under a name. Runs under way keep their version."""
        await self._exchange.send(ApiCall(method="DELETE", path=definition_path(name)))

    async def flow_status(self, name: str) -> FlowStatus:
        """Tell whether a flow is enabled, and what starts its runs."""
        return await self._exchange.ask(read(f"{definition_path(name)}/status"), FlowStatus)

    async def enable_flow(self, name: str) -> FlowStatus:
        """Let the triggers of a flow fire again. What they have missed is not made up for."""
        return await self._exchange.ask(act(f"{definition_path(name)}/enable"), FlowStatus)

    async def disable_flow(self, name: str) -> FlowStatus:
        """Let the triggers of a flow fire no more. Runs under way go on, and `start` still works."""
        return await self._exchange.ask(act(f"{definition_path(name)}/disable"), FlowStatus)

    async def trigger_history(self, name: str, trigger: str) -> TriggerHistory:
        """Tell what has become of a trigger of a flow that fires by itself, latest first."""
        return await self._exchange.ask(read(f"{trigger_path(name, trigger)}/history"), TriggerHistory)

    async def fire_trigger(self, name: str, trigger: str) -> TriggerFired:
        """Fire a trigger of a flow by hand: poll its service now, or start the run that time would start."""
        return await self._exchange.ask(act(f"{trigger_path(name, trigger)}/fire"), TriggerFired)

    async def flow_address(self, name: str, *, expires_in: float | None = None, rotate: bool = False) -> FlowAddress:
        """Get a signed address of a flow's trigger. It expires, or is ended by getting another one with `rotate`."""
        call = act(f"{definition_path(name)}/address", AddressRequest(expires_in=expires_in, rotate=rotate))
        return await self._exchange.ask(call, FlowAddress)

    async def validate(self, document: Mapping[str, Any] | str) -> Validation:
        """Tell whether a document could be stored, and what is to be said about it. Nothing is stored."""
        call = act("/v1/definitions/validate")
        sent = document_body(document, dict(call.headers))
        return await self._exchange.ask(msgspec.structs.replace(call, **sent), Validation)

    async def graph(self, name: str) -> dict[str, Any]:
        """Get the nodes and edges of a workflow."""
        return await self._exchange.ask(read(f"{definition_path(name)}/graph"), dict[str, Any])

    async def mermaid(self, name: str) -> str:
        """Get the graph of a workflow as text for Mermaid."""
        return (await self._exchange.send(read(f"{definition_path(name)}/graph", params={"format": "mermaid"}))).text

    async def schema(self, name: str) -> dict[str, Any]:
        """Get JSON Schemas of what a workflow takes and gives."""
        return await self._exchange.ask(read(f"{definition_path(name)}/schema"), dict[str, Any])

    # -- health -------------------------------------------------------------------------------------------------------

    async def health(self) -> Health:
        """Tell whether the server takes work. A server that does not is an answer too, and nothing is tried again."""
        response = await self._exchange.send(read("/v1/health/ready", accepts=frozenset({_UNAVAILABLE})))
        said = decoded(response, dict[str, Any])
        reasons = said.get("reasons") or []
        texts = [f"{name}: {why}" for name, why in reasons.items()] if isinstance(reasons, dict) else reasons
        role = said.get("role") if said.get("role") in get_args(Role) else None
        return Health(ready=response.is_success, reasons=[str(text) for text in texts], role=role)

    async def session(self) -> Session:
        """Tell what the key may do. Sessions with a cookie are for browsers: a program sends its key."""
        return await self._exchange.ask(read("/v1/session"), Session)

    # -- schedules ----------------------------------------------------------------------------------------------------

    async def schedules(self) -> Sequence[Schedule]:
        """List the recurring starts by name."""
        return [found async for found in self._pages(read(SCHEDULES_PATH), Schedule)]

    async def get_schedule(self, name: str) -> Schedule:
        """Get a recurring start by its name."""
        return await self._exchange.ask(read(schedule_path(name)), Schedule)

    async def schedule(  # noqa: PLR0913 - all by name
        self,
        name: str,
        workflow: str,
        *,
        cron: str | None = None,
        every: float | None = None,
        recurrence: Mapping[str, Any] | None = None,
        time_zone: str | None = None,
        input: Any = None,  # noqa: A002 - what it is called elsewhere
        parameters: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        catch_up: bool | None = None,
        paused: bool | None = None,
    ) -> Schedule:
        """Start runs again and again: by `cron`, `every` few seconds, or by a `recurrence`.

        The same again changes nothing; something else under the same name replaces what was there. Of occurrences
        that were missed, only the last one starts a run, unless it shall `catch_up`.
        """
        body = ScheduleRequest(
            name=name,
            workflow=workflow,
            cron=cron,
            every=every,
            recurrence=plain_dict(recurrence),
            time_zone=time_zone,
            input=input,
            parameters=plain_dict(parameters),
            variables=plain_dict(variables),
            tags=plain_dict(tags),
            catch_up=catch_up,
            paused=paused,
        )
        return await self._exchange.ask(act(SCHEDULES_PATH, body), Schedule)

    async def pause_schedule(self, name: str) -> Schedule:
        """Let a schedule start nothing for a while."""
        return await self._exchange.ask(act(f"{schedule_path(name)}/pause"), Schedule)

    async def resume_schedule(self, name: str) -> Schedule:
        """Let a paused schedule go on."""
        return await self._exchange.ask(act(f"{schedule_path(name)}/resume"), Schedule)

    async def delete_schedule(self, name: str) -> None:
        """End a schedule. What it has started goes on."""
        await self._exchange.send(ApiCall(method="DELETE", path=schedule_path(name)))

    # -- flows as endpoints -------------------------------------------------------------------------------------------

    async def invoke(  # noqa: PLR0913 - all by name
        self,
        workflow: str,
        body: Any = None,
        *,
        method: str = "POST",
        path: str = "",
        queries: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
    ) -> Invoked:
        """Fire the trigger of a flow, and get what its Response action answers, whatever its status is.

        `body` is any JSON, or bytes whose type is in `headers`; `parameters` are those of the flow. A flow without a
        Response, or with an asynchronous one, gives its run at once. With `wait`, so does one that has not answered
        after that many seconds; without, the server waits for its own limit. `ClientError` with the code `no-response`
        if the run ends without an answer, `response-late` if the server's limit has passed.
        """
        call = invocation(
            f"{definition_path(workflow)}/invoke",
            body,
            method=method,
            path=path,
            queries=queries,
            headers=headers,
            parameters=parameters,
            wait=wait,
            key=idempotency_key,
        )
        return invoked_from(await self._exchange.send(call))

    async def response(self, run_id: str, *, wait: float | None = None) -> Invoked:
        """Get what the run of a flow has answered its caller; the status is 202 as long as that is to come."""
        call = self._read(run_id, "/response", params={"wait": wait}, wait=wait or 0.0, marked_by=ANSWERED_BY)
        return invoked_from(await self._exchange.send(call))

    # -- shared -------------------------------------------------------------------------------------------------------

    def _read(self, run_id: str, rest: str = "", **more: Any) -> ApiCall:
        return read(f"/v1/runs/{segment(run_id)}{rest}", run_id=run_id, **more)

    def _act(self, run_id: str, what: str, body: Any = None) -> ApiCall:
        return act(f"/v1/runs/{segment(run_id)}/{what}", body, run_id=run_id)

    async def _pages(self, call: ApiCall, kind: type[T]) -> AsyncIterator[T]:
        params = dict(call.params)
        while True:
            page = await self._exchange.ask(read(call.path, params=params, run_id=call.run_id), Page[kind])  # type: ignore[valid-type]
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            params["cursor"] = page.next_cursor

    @override
    def __repr__(self) -> str:
        # Never the key.
        return f"{type(self).__name__}({self._exchange.url!r})"
