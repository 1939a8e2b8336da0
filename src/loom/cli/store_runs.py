"""Reach the runs of a store for commands: beside a running engine, never as one."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from loom.api.definitions import Schedule
from loom.api.runs import Delivery, StreamEvent
from loom.cli.problems import Problem, WrongUse
from loom.cli.session import client, starter
from loom.cli.store_rows import found_rows
from loom.flows.calls import MASK
from loom.runtime.render import listed_run, masking_for, next_timers, rendered_run, rendered_state, rendered_tick
from loom.runtime.streams import entry, is_ending, is_internal, one_line, plainly_shown, shown
from loom.store import codec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from loom.api.bulk import Bulk, BulkAction
    from loom.api.changes import RunChange
    from loom.api.counts import Counts
    from loom.api.definitions import Definition, FlowAddress, FlowStatus, TriggerFired, TriggerHistory
    from loom.api.requests import ForkRequest, RunFilters
    from loom.api.runs import HistoryItem, Replay, Run
    from loom.api.state import State
    from loom.api.views import Timeline
    from loom.api.why import Why
    from loom.api.workers import Worker
    from loom.cli.sources import Given, Runs
    from loom.core.records import Published
    from loom.flows.limits import Limits
    from loom.runtime.durable.run_client import RunClient
    from loom.runtime.durable.schedules import ScheduleInfo
    from loom.runtime.durable.worker import WorkerRuntime
    from loom.store.records import RunRow

_CHUNKS = 64
_POLL_S = 0.2


@asynccontextmanager
async def store_runs(
    url: str, targets: Sequence[str], limits: Limits | None, *, starts: bool = False
) -> AsyncIterator[Runs]:
    """The runs of a store, with the types that targets bring, and if asked for with all that starts runs."""
    if targets or starts:
        async with starter(url, targets, limits) as runtime:
            yield StoreRuns(runtime, runtime)
    else:
        async with client(url) as looking:
            yield StoreRuns(looking)


class StoreRuns:
    """See `Runs`. Each call returns once what was asked is in the store."""

    def __init__(self, runtime: RunClient, starter: WorkerRuntime | None = None) -> None:
        self._runtime = runtime
        self._whole = starter

    @property
    def _starter(self) -> WorkerRuntime:
        """What starts runs, of which schedules are some. A command that does so has asked for it."""
        assert self._whole is not None
        return self._whole

    # -- looking ------------------------------------------------------------------------------------------------------

    async def list(self, filters: RunFilters, limit: int) -> Sequence[Run]:
        """See `Runs`."""
        rows = await found_rows(self._runtime.store, filters, limit, self._runtime.now())
        with_result = filters.get("include") == "result"
        timers = await next_timers(self._runtime, rows)
        return [await listed_run(self._runtime, row, with_result=with_result, timers=timers) for row in rows]

    async def counts(self, workflows: Sequence[str]) -> Counts:
        """See `Runs`."""
        return await self._runtime.counts(workflow=workflows or None)

    def changes(self, filters: RunFilters, after: str | None) -> AsyncIterator[RunChange]:
        """See `Runs`."""
        return self._runtime.changes(after=after, **filters)

    async def workers(self) -> Sequence[Worker]:
        """See `Runs`."""
        return await self._runtime.workers()

    async def get(self, run_id: str) -> Run:
        """See `Runs`."""
        return await rendered_run(self._runtime, await self._runtime.row(run_id))

    async def why(self, run_id: str) -> Why:
        """See `Runs`."""
        return await self._runtime.why(run_id)

    async def timeline(self, run_id: str, lane: str | None, offset: int, limit: int) -> Timeline:
        """See `Runs`."""
        return await self._runtime.timeline(run_id, lane=lane, offset=offset, limit=limit)

    async def state(self, run_id: str, tick: int | None) -> State:
        """See `Runs`."""
        try:
            return await rendered_state(self._runtime, await self._runtime.row(run_id), tick)
        except ValueError as error:
            raise Problem(str(error)) from error

    async def events(self, run_id: str, after: int, *, internal: bool, follow: bool) -> AsyncIterator[StreamEvent]:
        """See `Runs`."""
        row = await self._runtime.row(run_id)
        async for cursor, at, published in self._stream(run_id, after + 1, follow):
            if internal or not is_internal(published):
                # As a reader over HTTP gets it, for JSON has no form for some numbers.
                line = json.loads(self._line(published, row, cursor, at), parse_constant=lambda _name: None)
                yield msgspec.convert(line, StreamEvent)

    def _line(self, published: Published, row: RunRow, cursor: int, at: float) -> str | bytes:
        """An event as JSON. Its class takes a while to load, so what can do without does."""
        plain = plainly_shown(published) if row.document is None and not self._runtime.codes else None
        if plain is not None:
            return json.dumps(entry(plain, cursor, at))

        return one_line(entry(shown(published, self._runtime.codec_of(row)), cursor, at))

    async def _stream(self, run_id: str, position: int, follow: bool) -> AsyncIterator[tuple[int, float, Published]]:
        """Cursors, times and what stands there."""
        while True:
            # The row first: whatever comes after it is found by the next look.
            row = await self._runtime.row(run_id)
            chunks = await self._runtime.store.stream(run_id, position, _CHUNKS)
            for chunk in chunks:
                # Of an ended run some stores keep only the last event.
                ticked_at, entries = codec.decode_stream(run_id, chunk)
                at = ticked_at if ticked_at is not None else row.head.updated_at
                position = max(position, chunk.first_cursor)  # what lies before it may have been pruned
                for published in islice(entries, position - chunk.first_cursor, None):
                    yield position, at, published
                    position += 1
                    if follow and is_ending(published):
                        return
            if not chunks:
                if not follow or row.head.status != "running":
                    return
                await asyncio.sleep(_POLL_S)

    async def history(self, run_id: str, start: int) -> AsyncIterator[HistoryItem]:
        """See `Runs`."""
        masking = await masking_for(self._runtime, await self._runtime.row(run_id))
        async for found in self._runtime.history(run_id, start=start):
            yield rendered_tick(found, masking)

    async def replay(self, run_id: str) -> Replay:
        """See `Runs`."""
        from loom.runtime.verification import replayed_run

        return await replayed_run(self._runtime, run_id)

    # -- acting -------------------------------------------------------------------------------------------------------

    async def start(self, workflow: str, given: Given, run_id: str | None, tags: Mapping[str, str]) -> str:
        """See `Runs`."""
        from loom.cli.event_inputs import begun_by

        inputs = begun_by(self._starter, workflow, given)
        handler = await self._starter.start(workflow, inputs, run_id=run_id, tags=dict(tags))
        return handler.run_id

    async def send(self, run_id: str, event: str, value: Any, aim: Mapping[str, str | None]) -> Delivery:
        """See `Runs`. The event is in the run's inbox: only the owner of the run knows who takes it."""
        from loom.cli.event_inputs import event_for

        made = await event_for(self._runtime, run_id, event, value)
        is_new = await self._runtime.send_event(run_id, made, **aim)
        return Delivery(delivered="inbox" if is_new else None, duplicate=not is_new)

    async def ask(self, run_id: str, what: str, **how: Any) -> None:
        """See `Runs`."""
        await getattr(self._runtime, what)(run_id, **how)

    async def bulk(self, action: BulkAction, filters: RunFilters, *, dry_run: bool) -> AsyncIterator[Bulk]:
        """See `Runs`."""
        try:
            async for told in self._runtime.bulk(action, filters, dry_run=dry_run):
                yield told
        except ValueError as error:
            raise WrongUse(str(error)) from error

    async def deepen(self, run_id: str, max_depth: int) -> None:
        """See `Runs`."""
        await self._runtime.resume(run_id, max_depth=max_depth)

    async def heal(self, run_id: str, event: str, value: Any) -> None:
        """See `Runs`."""
        from loom.cli.event_inputs import better_event
        from loom.runtime.durable.healing import CannotHeal

        try:
            made = await better_event(self._runtime, run_id, event, value)
            await self._runtime.retry(run_id, event=made)
        except CannotHeal as error:
            raise Problem(str(error)) from error

    async def fork(self, run_id: str, request: ForkRequest) -> str:
        """See `Runs`."""
        from loom.cli.event_inputs import event_for

        event = None
        if (given := request.event) is not None:
            event = await event_for(self._runtime, run_id, given.type, given.value)
        try:
            return await self._runtime.store_fork(
                run_id,
                tick=request.tick,
                run_id=request.run_id,
                input=request.input,
                event=event,
                store=request.store,
            )
        except ValueError as error:
            raise Problem(str(error)) from error

    async def export_run(self, run_id: str) -> bytes:
        """See `Runs`."""
        return await self._runtime.export_run(run_id)

    async def import_run(self, data: bytes) -> str:
        """See `Runs`."""
        return await self._runtime.import_run(data)

    async def skip(self, run_id: str, timer: int | None) -> None:
        """See `Runs`."""
        await self._runtime.skip(run_id, timer)

    async def set_tags(self, run_id: str, tags: Mapping[str, str]) -> None:
        """See `Runs`."""
        try:
            await self._runtime.set_tags(run_id, dict(tags))
        except ValueError as error:
            raise Problem(str(error)) from error

    async def purge(self, run_id: str | None, ended_before: float | None) -> int:
        """See `Runs`."""
        return await self._runtime.purge(run_id, ended_before=ended_before)

    # -- schedules ----------------------------------------------------------------------------------------------------

    async def schedule(self, name: str, workflow: str, given: Given) -> Schedule:
        """See `Runs`."""
        try:
            return _schedule(await self._starter.schedule(name, workflow, **given))
        except ValueError as error:
            raise WrongUse(str(error)) from error

    async def schedules(self) -> Sequence[Schedule]:
        """See `Runs`."""
        return [_schedule(found) for found in await self._starter.schedules()]

    async def get_schedule(self, name: str) -> Schedule:
        """See `Runs`."""
        return _schedule(await self._starter.get_schedule(name))

    async def unschedule(self, name: str) -> None:
        """See `Runs`."""
        await self._starter.unschedule(name)

    async def ask_schedule(self, name: str, what: str) -> str:
        """See `Runs`."""
        run_id = (await self._starter.get_schedule(name)).run_id
        await getattr(self._runtime, what)(run_id)
        return run_id

    # -- flows --------------------------------------------------------------------------------------------------------

    async def flows(self) -> Sequence[Definition]:
        """See `Runs`."""
        return await self._starter.flows()

    async def flow_status(self, name: str) -> FlowStatus:
        """See `Runs`."""
        with _of_flows():
            return await self._starter.flow_status(name)

    async def turn_flow(self, name: str, *, enabled: bool) -> FlowStatus:
        """See `Runs`."""
        with _of_flows():
            found = await (self._starter.enable_flow if enabled else self._starter.disable_flow)(name)
        await self._note("definition.enable" if enabled else "definition.disable", name)
        return found

    async def trigger_history(self, name: str, trigger: str) -> TriggerHistory:
        """See `Runs`."""
        with _of_flows():
            return await self._starter.trigger_history(name, trigger)

    async def fire_trigger(self, name: str, trigger: str) -> TriggerFired:
        """See `Runs`."""
        with _of_flows():
            found = await self._starter.fire_trigger(name, trigger)
        await self._note("definition.fire", name)
        return found

    async def flow_address(self, name: str, url: str | None, *, expires_in: float | None, rotate: bool) -> FlowAddress:
        """See `Runs`."""
        with _of_flows():
            found = await self._starter.flow_address(name, url=url, expires_in=expires_in, rotate=rotate)
        await self._note("definition.address", name)
        return found

    async def _note(self, action: str, target: str) -> None:
        """Add what the operator did to the record of the store."""
        from loom.runtime.durable.acts import OPERATOR, RETENTION_S, Act, record

        act = Act(at=self._runtime.now(), actor=OPERATOR, action=action, target=target)
        await record(self._runtime.store, act, RETENTION_S)


@contextmanager
def _of_flows() -> Iterator[None]:
    """Tell in one line what is wrong with a flow, or with what was asked of it."""
    from loom.runtime.durable.listeners import TriggerNotFound
    from loom.runtime.durable.stored_definitions import DefinitionNotFound, DefinitionUnreadable

    try:
        yield
    except (DefinitionNotFound, DefinitionUnreadable, TriggerNotFound, ValueError) as error:
        raise Problem(str(error)) from error


def _schedule(found: ScheduleInfo) -> Schedule:
    """Render a schedule. Which parameters are secret only the flow knows: none is shown."""
    hidden = dict.fromkeys(found.parameters, MASK) if found.parameters else found.parameters
    return Schedule(**{**msgspec.structs.asdict(found), "parameters": hidden})
