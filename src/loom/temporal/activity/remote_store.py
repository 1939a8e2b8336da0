"""The store of a run as its bodies have it in activities: read by queries, written in turn.

The values are with the run. A reader asks for them each time. A writer asks the run for its turn, gets the values with
it, and gives its turn back with its edits. The run grants one writer at a time, and takes the turn from a writer that
is silent for 30 seconds: nobody tells a run that a worker is dead. So a writer renews its request while it writes.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakValueDictionary

from typing_extensions import override

from loom.core.ticks import TickEditStore
from loom.steps.errors import ContextStateError
from loom.steps.state_store import InMemoryStateStore
from loom.steps.state_store.store import WriterLock
from loom.temporal.names import QUERY_EXECUTION, QUERY_STORE, SIGNAL_LOCK
from loom.temporal.payloads import ExecutionQuery, ExecutionView, LockRequest, StoreQuery, StoreView
from loom.temporal.rpc import RunUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pydantic import BaseModel

    from loom.steps.serializers import BaseSerializer
    from loom.steps.state_store import StoreEdit
    from loom.temporal.activity.activity_run import ActivityRun
    from loom.temporal.rpc import RunLink

_STORE = "store"
"""How the run notes an edit of its store among the effects of a body."""


class WriterTurn(WriterLock):
    """Lets one task of this process at a time ask the run for its turn."""

    __slots__ = ("__weakref__",)


class WriterTurns:
    """The turns of all runs that have bodies in this process, so that most writers need not poll the run."""

    def __init__(self) -> None:
        self._of_runs: WeakValueDictionary[str, WriterTurn] = WeakValueDictionary()

    def of_run(self, run_id: str) -> WriterTurn:
        """Return the turn of a run's writers."""
        return self._of_runs.setdefault(run_id, WriterTurn())


class StoreAccess:
    """Reads, locks and edits the run's store for one activity."""

    def __init__(self, run: ActivityRun, link: RunLink, attempt: int) -> None:
        self._run = run
        self._link = link
        self._settings = run.settings
        self._request = LockRequest(run.task.command.seq, attempt)
        self._renewing: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._heard_at = 0.0
        """When the run was told last that the store is wanted."""
        self._is_holder = False
        self._edits: list[int] = []
        """The numbers of the edits in this turn."""

    async def read(self) -> InMemoryStateStore[Any]:
        """Return the store as it is now."""
        return self._converted(await self._run.at_home(self._link.query(QUERY_STORE, StoreQuery(), StoreView)))

    async def lock(self) -> InMemoryStateStore[Any]:
        """Return the store as it is, once the execution is its only writer."""
        if self._run.execution.abandoned:  # it would ask for its turn for ever
            raise ContextStateError(
                f"Step '{self._run.task.command.step}' was stopped: nothing that it does counts any more."
            )
        view = await self._run.at_home(self._lock())
        if view.too_large:
            await self.unlock()
        return self._converted(view)

    async def unlock(self) -> None:
        """Give the turn back, with all edits."""
        await self._run.at_home(self._unlock())

    def edited(self, edit: StoreEdit) -> bool:
        """Tell the run about an edit. False if an interrupted run of the same execution had made it already."""
        run = self._run
        source = run.execution.next_source()
        if source is not None and run.task.command.item.effects.get(source.ordinal) == _STORE:
            return False
        changed, removed, state_type = run.codec.store_edit(edit)
        if source is not None:
            self._edits.append(source.ordinal)
        run.report(
            TickEditStore(
                at=run.now(),
                base_version=edit.base_version,
                changed=changed,
                removed=removed,
                source=source,
                state_type=state_type,
                writes=run.execution.writes,
            )
        )
        return True

    def repeats_edit(self) -> bool:
        """Say whether an interrupted run of the same execution had made the edit that comes now; then it is done.

        If that run had done something else here, the author's code has changed, and the run is told so.
        """
        run = self._run
        if not run.execution.repeats:
            return False
        source = run.execution.next_source()
        if source is not None and run.task.command.item.effects[source.ordinal] != _STORE:
            run.report(
                TickEditStore(at=run.now(), base_version=0, changed={}, source=source, writes=run.execution.writes)
            )
        return True

    def stop_renewing(self) -> None:
        """Renew the request no more: the store is not wanted now."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    def _converted(self, view: StoreView) -> InMemoryStateStore[Any]:
        if view.too_large:
            raise ValueError(
                f"The store of run {self._run.run_id} has {view.too_large} bytes, and Temporal's limit is 2 MiB: keep "
                "large values elsewhere, and references to them in the store."
            )
        return self._run.codec.store_from(view.values, view.store_type, view.version)

    async def _lock(self) -> StoreView:
        seq, delay = self._request.seq, self._settings.lock_poll_s
        self._heard_at, self._is_holder, self._edits = self._run.loop.time(), False, []
        await self._link.signal(SIGNAL_LOCK, self._request)
        self._renew_later()
        try:
            while True:
                view = await self._link.query(QUERY_STORE, StoreQuery(seq), StoreView)
                if view.granted:
                    self._is_holder = True
                    return view
                await asyncio.sleep(delay)
                delay = min(delay * 2, self._settings.lock_poll_max_s)
        except asyncio.CancelledError:
            self.stop_renewing()
            self._run.outbox.send_later(unlocks=seq)  # the body may go on, and others must not wait for it
            raise

    def _renew_later(self) -> None:
        self._renewing = self._run.loop.call_later(self._settings.lock_renew_s, self._renew)

    def _renew(self) -> None:
        """Tell the run that the store is still wanted."""
        if self._is_holder and self._was_silent():
            return  # if another writer has had its turn by now, a new turn would not make up for it
        self._heard_at = self._run.loop.time()
        asking = self._run.guarded(self._link.signal(SIGNAL_LOCK, self._request))
        self._asking = self._run.loop.create_task(asking)
        self._asking.add_done_callback(_retrieve)
        self._renew_later()

    def _was_silent(self) -> bool:
        """Say whether the event loop was blocked for so long that the run may have given the turn to another writer."""
        return self._run.loop.time() > self._heard_at + 2 * self._settings.lock_renew_s

    async def _unlock(self) -> None:
        self.stop_renewing()
        was_silent = self._was_silent()
        await self._run.outbox.flush(unlocks=self._request.seq)
        if was_silent and self._edits:
            await self._check_edits()

    async def _check_edits(self) -> None:
        """Ask whether the run has taken the edits. If it has not, the body begins again with the values of now."""
        command = self._run.task.command
        asked = ExecutionQuery(command.step, command.item.id, command.seq)
        execution = (await self._link.query(QUERY_EXECUTION, asked, ExecutionView)).execution
        if execution is not None and any(edit not in execution.effects for edit in self._edits):
            raise RunUnreachable(
                f"Step '{command.step}' of run {self._run.run_id} has held the store and was silent for too long: "
                "another one has written, and it begins again."
            )


class RemoteStore(InMemoryStateStore[Any]):
    """The run's store within one activity. What it holds is what was read last."""

    __slots__ = ("_access", "_is_writer", "_turn")

    def __init__(self, access: StoreAccess, state_type: type[BaseModel], turn: WriterTurn) -> None:
        super().__init__(state_type=state_type, on_edit=access.edited)
        self._access = access
        self._turn = turn
        self._is_writer = False

    @override
    async def get(self, path: str, default: Any = ...) -> Any:
        """Return the committed value at a dotted path, else `default`, else raise `ValueError`."""
        await self._refresh()
        return await super().get(path, default)

    @override
    async def get_state(self) -> Any:
        """Return a copy of the committed state."""
        await self._refresh()
        return await super().get_state()

    @override
    async def set(self, path: str, value: Any) -> None:
        """Write a value at a dotted path; dicts are made on the way."""
        if not self._access.repeats_edit():
            async with self._writing():
                await super().set(path, value)

    @override
    async def set_state(self, state: Any) -> None:
        """Replace the state by one of its class or of a subclass; one of a parent class is merged into it."""
        if not self._access.repeats_edit():
            async with self._writing():
                await super().set_state(state)

    @override
    async def clear(self) -> None:
        """Reset the state to the defaults of the class it has now."""
        if not self._access.repeats_edit():
            async with self._writing():
                await super().clear()

    @override
    @asynccontextmanager
    async def edit_state(self) -> AsyncIterator[Any]:
        """Edit a copy of the state, which is committed when the block ends without an error."""
        async with self._writing(), super().edit_state() as draft:
            yield draft

    @override
    def values(self) -> dict[str, Any]:
        _refuse("values")

    @override
    def checkpoint(self) -> NoReturn:
        _refuse("checkpoint")

    @override
    def to_dict(self, serializer: BaseSerializer) -> dict[str, Any]:
        _refuse("to_dict")

    async def _refresh(self) -> None:
        """Read the values. A writer has them already, and nobody else changes them while it writes."""
        if not self._is_writer:
            self._adopt(await self._access.read())

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        """Be the only writer: in this process first, then among all bodies of the run."""
        await self._turn.acquire()
        try:
            self._adopt(await self._access.lock())
            self._is_writer = True
            try:
                yield
            finally:
                self._is_writer = False
                await self._access.unlock()
        finally:
            self._turn.release()

    def _adopt(self, read: InMemoryStateStore[Any]) -> None:
        self._state, self._version, self.state_type = read._state, read._version, read.state_type


def _refuse(what: str) -> NoReturn:
    raise ContextStateError(
        f"store.{what}() is not available within a step on Temporal, where reading the store takes a while: "
        "use `await ctx.store.get_state()`."
    )


def _retrieve(task: asyncio.Task[None]) -> None:
    """Read the error of a task that nobody awaits; `guarded` has acted on it."""
    if not task.cancelled():
        task.exception()
