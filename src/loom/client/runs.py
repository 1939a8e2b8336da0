"""Runs on a server: start them, look at them, send them events, steer them. May import the rest of loom.client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from loom.api.attempts import Attempts
from loom.api.why import Why
from loom.client.exchange import Call, act, given, read, segment
from loom.client.models import Action, Delivery, HistoryItem, Loop, Page, Replay, Run, StreamEvent
from loom.client.streams import SILENCE, Reader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

    from loom.client.exchange import Exchange
    from loom.client.models import RunFilters
    from loom.steps.events import Event

T = TypeVar("T")

LONGEST_WAIT = 60.0
"""How many seconds a server lets one request wait at most."""


class RunCalls:
    """What can be asked of a server about runs."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

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
        body = given(
            workflow=workflow,
            input=input,
            run_id=run_id,
            parameters=parameters,
            variables=variables,
            version=version,
            tags=tags,
        )
        wait = None if wait is None else min(wait, LONGEST_WAIT)
        call = act("/v1/runs", body, key=idempotency_key, params={"wait": wait}, run_id=run_id, wait=wait or 0.0)
        return await self._exchange.ask(call, Run)

    async def get(self, run_id: str, *, wait: float | None = None) -> Run:
        """The run as it is now; with `wait` at its end, or after at most so many seconds (60)."""
        wait = None if wait is None else min(wait, LONGEST_WAIT)
        return await self._exchange.ask(self._read(run_id, params={"wait": wait}, wait=wait or 0.0), Run)

    async def wait(self, run_id: str, *, timeout: float | None = None) -> Run:  # noqa: ASYNC109 - it ends the polling
        """The run at its end, however it ends. Raises `TimeoutError` if that takes longer than `timeout` seconds."""
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
        """All runs that pass the filters, page by page; `limit` is the size of a page."""
        tags = filters.pop("tags", None) or {}
        params = {**filters, "tag": [f"{name}={value}" for name, value in tags.items()] or None, "limit": limit}
        async for run in self._pages(read("/v1/runs", params=params), Run):
            yield run

    async def history(
        self,
        run_id: str,
        *,
        after: int | None = None,
        type: str | Sequence[str] | None = None,  # noqa: A002 - as the API says
        commands: bool = False,
    ) -> AsyncIterator[HistoryItem]:
        """The ticks of a run, behind `after`; `commands` adds what each one led to."""
        params = {"after": after, "type": type, "commands": commands or None}
        async for item in self._pages(self._read(run_id, "/history", params=params), HistoryItem):
            yield item

    async def state(self, run_id: str, *, tick: int | None = None) -> dict[str, Any]:
        """The state of a run, now or as it was after a tick."""
        return await self._exchange.ask(self._read(run_id, "/state", params={"tick": tick}), dict[str, Any])

    async def attempts(self, run_id: str) -> Attempts:
        """Tell what a run is at work on: the attempts under way, and those that failed and will be repeated."""
        return await self._exchange.ask(self._read(run_id, "/state"), Attempts)

    async def why(self, run_id: str) -> Why:
        """Tell what holds a run now: one sentence, and its causes as data."""
        return await self._exchange.ask(self._read(run_id, "/why"), Why)

    async def loops(self, run_id: str, *, all: bool = False) -> Sequence[Loop]:  # noqa: A002 - as the API says
        """How far the loops of a run are; `all`: also those that ended."""
        page = await self._exchange.ask(self._read(run_id, "/loops", params={"all": all or None}), Page[Loop])
        return page.items

    async def actions(self, run_id: str, *, path: str | None = None) -> Sequence[Action]:
        """What became of the actions of a flow; `path` means one repetition."""
        page = await self._exchange.ask(self._read(run_id, "/actions", params={"path": path}), Page[Action])
        return page.items

    async def replay(self, run_id: str) -> Replay:
        """Whether the ticks of a run, reduced again, give what is stored."""
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
        """The events of a run behind the cursor `after`, as they come, until its end.

        A connection that breaks, or is silent for `silence` seconds, is opened again behind the last event: nothing
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
        body = _described(event, value) | given(step=step, waiter_id=waiter_id, event_id=event_id)
        return await self._exchange.ask(self._act(run_id, "events", body), Delivery)

    async def cancel(self, run_id: str, *, reason: str | None = None) -> Run:
        """Cancel a run. One that is cancelled already stays so; one that ended otherwise raises `RunFinished`."""
        return await self._exchange.ask(self._act(run_id, "cancel", given(reason=reason)), Run)

    async def pause(self, run_id: str) -> Run:
        """Let a run start nothing new; it keeps what comes."""
        return await self._exchange.ask(self._act(run_id, "pause"), Run)

    async def resume(self, run_id: str) -> Run:
        """Let a paused run go on."""
        return await self._exchange.ask(self._act(run_id, "resume"), Run)

    async def retry(self, run_id: str, event: Event | str | None = None, value: Any = None) -> Run:
        """Let a failed run go on from its failed step; with an event in place of the one that failed it.

        The event is given itself, or by the name of its type and its fields.
        """
        body = {"event": _described(event, value)} if event is not None else None
        return await self._exchange.ask(self._act(run_id, "retry", body), Run)

    async def fork(self, run_id: str, tick: int, *, new_run_id: str | None = None) -> Run:
        """Start another run from the state that this one had after a tick."""
        return await self._exchange.ask(self._act(run_id, "fork", given(tick=tick, run_id=new_run_id)), Run)

    async def delete(self, run_id: str) -> None:
        """Delete a run that has ended, with its history, state and events."""
        await self._exchange.send(Call(method="DELETE", path=f"/v1/runs/{segment(run_id)}", run_id=run_id))

    # -- shared -------------------------------------------------------------------------------------------------------

    def _read(self, run_id: str, rest: str = "", **more: Any) -> Call:
        return read(f"/v1/runs/{segment(run_id)}{rest}", run_id=run_id, **more)

    def _act(self, run_id: str, what: str, body: Any = None) -> Call:
        return act(f"/v1/runs/{segment(run_id)}/{what}", body, run_id=run_id)

    async def _pages(self, call: Call, kind: type[T]) -> AsyncIterator[T]:
        params = dict(call.params)
        while True:
            page = await self._exchange.ask(read(call.path, params=params, run_id=call.run_id), Page[kind])  # type: ignore[valid-type]
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            params["cursor"] = page.next_cursor


def _described(event: Event | str, value: Any) -> dict[str, Any]:
    """An event for a request: its type and its fields."""
    if isinstance(event, str):
        return {"type": event, "value": {} if value is None else value}
    if value is not None:
        raise TypeError("The fields of an event belong to the name of its type, not to an event that has its own.")
    return {"type": type(event).__name__, "value": event}
