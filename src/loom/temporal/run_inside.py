"""A run as its body sees it from inside an activity: its store, its children, and what there is of its context.

The run itself is elsewhere and is told and asked through a link. May import loom.steps, loom.effects and loom.runtime.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from loom.core.ticks import TickEditStore
from loom.runtime.durable.registered import child_start
from loom.steps.context import Context
from loom.steps.errors import ContextStateError, WorkflowRuntimeError
from loom.steps.events import Event
from loom.temporal.effects_out import Outbox
from loom.temporal.link import RunGone, RunUnreachable
from loom.temporal.names import QUERY_EXECUTION, QUERY_STORE, SIGNAL_LOCK
from loom.temporal.payloads import ExecutionQuery, ExecutionView, LockRequest, StoreQuery, StoreView
from loom.temporal.remote_store import RemoteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping

    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick
    from loom.effects.execution import StepExecution
    from loom.runtime.durable.figures import Figures
    from loom.runtime.durable.registered import Registered
    from loom.steps.events import StartEvent, StopEvent
    from loom.steps.state_store import InMemoryStateStore, StoreEdit
    from loom.temporal.effects_out import ActivitySettings
    from loom.temporal.link import RunLink
    from loom.temporal.payloads import StepTask
    from loom.temporal.remote_store import Turns

T = TypeVar("T")

_STORE = "store"
"""How the run notes an edit of its store among the effects of a body."""


class Around(NamedTuple):
    """What all bodies of a worker share."""

    codes: Mapping[str, Registered]
    settings: ActivitySettings
    turns: Turns
    figures: Figures | None = None
    """Where executions are counted; None in a worker that is not Loom's own."""


class Attempt(NamedTuple):
    """Which attempt at an activity it is, and when it was begun by the cluster's clock."""

    number: int
    started_at: float


class RunInside(ABC):
    """What contexts and executions ask of a run, as far as it can be had from an activity."""

    is_idle = False
    is_done = False
    status = "running"
    loop_ends = False
    """Whoever stops an activity says so to its execution first."""
    execution: StepExecution

    def __init__(
        self,
        task: StepTask,
        code: Registered,
        around: Around,
        link: RunLink,
        attempt: Attempt,
    ) -> None:
        self.task = task
        self.run_id = task.run_id
        self.workflow = code.workflow
        self.workflow_name = task.workflow
        self.convert = code.convert
        # All times of a run are the cluster's: a worker's own clock may be off, and how long retries take counts.
        ahead = monotonic() - attempt.started_at
        self.now: Callable[[], float] = lambda: monotonic() - ahead
        self.loop = asyncio.get_running_loop()
        self.settings = around.settings
        self.outbox = Outbox(link, around.settings, self.give_up, attempt.number)
        self._thread = threading.get_ident()
        self._around = around
        self._link = link
        self._request = LockRequest(task.command.seq, attempt.number)
        self._store: RemoteStore | None = None
        self._renewing: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._heard_at = 0.0
        """When the run was told last that the store is wanted."""
        self._holds_store = False
        self._edits: list[int] = []
        """The numbers of the edits in this turn."""

    @property
    def max_unsaved(self) -> int | None:
        """The outbox holds bodies to what the cluster takes."""
        return None

    def make_room(self, weight: int, *, waits: bool = True) -> None:  # noqa: B027 - a body here needs no room
        """See `Host`."""

    @abstractmethod
    def report(self, tick: WorkflowTick) -> None:
        """Tell the run what the body did; safe from any thread."""

    @abstractmethod
    def give_up(self, error: Exception) -> None:
        """The run cannot be reached, or is gone: there is nobody to work for."""

    # -- what bodies ask ----------------------------------------------------------------------------------------------

    def check_target(self, event: Event, step: str | None) -> None:
        """Refuse an event for a step that does not exist or does not take it."""
        if not isinstance(event, Event):
            raise WorkflowRuntimeError(f"Only events can be sent, not {type(event).__name__}.")
        self.workflow._check_target(event, step)

    def make_context(self, execution: StepExecution) -> Context[Any]:
        """The context that a body asks for."""
        return Context._inside(self.workflow, execution)

    def admission(self) -> Awaitable[None] | None:
        """The cluster bounds what is open in its own way."""
        return None

    def lease(self) -> Awaitable[None] | None:
        """The cluster has given the body to this worker, and knows by its heartbeats whether it lives."""
        return None

    def start_of(self, workflow: Any, inputs: dict[str, Any], start_event: StartEvent | None) -> tuple[str, Any]:
        """The name of a child's workflow, and what the child begins with; any worker may take it up."""
        name = workflow if isinstance(workflow, str) else workflow.workflow_name
        return name, child_start(name, self._around.codes.get(name), self.convert, inputs, start_event)

    def send(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run, as an effect of the body."""
        self.execution.send(event, step, waiter_id)

    async def send_durably(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """The same; it cannot be lost any more when this returns."""
        self.send(event, step, waiter_id)
        await self.at_home(self.outbox.flush())

    # -- the store ----------------------------------------------------------------------------------------------------

    @property
    def store(self) -> InMemoryStateStore[Any]:
        """The run's store."""
        if self._store is None:
            self._store = RemoteStore(self, self.workflow._get_state_type(), self._around.turns.of_run(self.run_id))
        return self._store

    async def read_store(self) -> InMemoryStateStore[Any]:
        """The store as it is now."""
        return self._read(await self.at_home(self._link.query(QUERY_STORE, StoreQuery(), StoreView)))

    async def lock_store(self) -> InMemoryStateStore[Any]:
        """The store as it is, once the execution is its only writer."""
        if self.execution.abandoned:  # it would ask for its turn for ever
            raise ContextStateError(
                f"Step '{self.task.command.step}' was stopped: nothing that it does counts any more."
            )
        view = await self.at_home(self._lock())
        if view.too_large:
            await self.unlock_store()
        return self._read(view)

    async def unlock_store(self) -> None:
        """Give the turn back, with all that was edited."""
        await self.at_home(self._unlock())

    def edited(self, edit: StoreEdit) -> bool:
        """Tell the run about an edit. False if an interrupted run of the same execution had made it already."""
        source = self.execution.next_source()
        if source is not None and self.task.command.item.effects.get(source.ordinal) == _STORE:
            return False
        changed, removed, state_type = self.convert.store_edit(edit)
        if source is not None:
            self._edits.append(source.ordinal)
        self.report(
            TickEditStore(
                at=self.now(),
                base_version=edit.base_version,
                changed=changed,
                removed=removed,
                source=source,
                state_type=state_type,
                writes=self.execution.writes,
            )
        )
        return True

    def repeats_edit(self) -> bool:
        """Whether an interrupted run of the same execution had made the edit that comes now; then it is done.

        If it had done something else here, the code has changed under the run, which the run shall say.
        """
        if not self.execution.repeats:
            return False
        source = self.execution.next_source()
        if source is not None and self.task.command.item.effects[source.ordinal] != _STORE:
            self.report(
                TickEditStore(at=self.now(), base_version=0, changed={}, source=source, writes=self.execution.writes)
            )
        return True

    def _read(self, view: StoreView) -> InMemoryStateStore[Any]:
        if view.too_large:
            raise ValueError(
                f"The store of run {self.run_id} has {view.too_large} bytes, and Temporal's limit is 2 MiB: keep large "
                "values elsewhere, and references to them in the store."
            )
        return self.convert.store_from(view.values, view.store_type, view.version)

    async def _lock(self) -> StoreView:
        seq, delay = self.task.command.seq, self.settings.lock_poll_s
        self._heard_at, self._holds_store, self._edits = self.loop.time(), False, []
        await self._link.signal(SIGNAL_LOCK, self._request)
        self._renew_later()
        try:
            while True:
                view = await self._link.query(QUERY_STORE, StoreQuery(seq), StoreView)
                if view.granted:
                    self._holds_store = True
                    return view
                await asyncio.sleep(delay)
                delay = min(delay * 2, self.settings.lock_poll_max_s)
        except asyncio.CancelledError:
            self.stop_renewing()
            self.outbox.send_later(unlocks=seq)  # the body may go on, and others must not wait for it
            raise

    def _renew_later(self) -> None:
        self._renewing = self.loop.call_later(self.settings.lock_renew_s, self._renew)

    def _renew(self) -> None:
        """Say that the store is still wanted, now and then."""
        if self._holds_store and self._was_silent():
            return  # if another one has written meanwhile, another turn would not make up for it
        self._heard_at = self.loop.time()
        asking = self._guarded(self._link.signal(SIGNAL_LOCK, self._request))
        self._asking = self.loop.create_task(asking)
        self._asking.add_done_callback(_retrieve)
        self._renew_later()

    def stop_renewing(self) -> None:
        """The store is not wanted any more."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    def _was_silent(self) -> bool:
        """Whether the event loop was blocked for so long that the run may have given the turn to another writer."""
        return self.loop.time() > self._heard_at + 2 * self.settings.lock_renew_s

    async def _unlock(self) -> None:
        self.stop_renewing()
        was_silent = self._was_silent()
        await self.outbox.flush(unlocks=self.task.command.seq)
        if was_silent and self._edits:
            await self._check_edits()

    async def _check_edits(self) -> None:
        """See whether the run has taken the edits. One that has not lets the body begin again, with what is there."""
        command = self.task.command
        asked = ExecutionQuery(command.step, command.item.id, command.seq)
        execution = (await self._link.query(QUERY_EXECUTION, asked, ExecutionView)).execution
        if execution is not None and any(edit not in execution.effects for edit in self._edits):
            raise RunUnreachable(
                f"Step '{command.step}' of run {self.run_id} has held the store and was silent for too long: "
                "another one has written, and it begins again."
            )

    # -- where things happen ------------------------------------------------------------------------------------------

    def on_loop(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call something on the event loop of the activity, from whichever thread."""
        if threading.get_ident() == self._thread:
            call(*arguments)
        else:
            self.loop.call_soon_threadsafe(call, *arguments)

    async def at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Await something on the event loop of the activity; a sync step may have a loop of its own in its thread."""
        if asyncio.get_running_loop() is self.loop:
            return await self._guarded(work)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._guarded(work), self.loop))

    async def _guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Without its run a body need not go on: what the error becomes in it is of no interest."""
        try:
            return await work
        except (RunGone, RunUnreachable) as error:
            self.give_up(error)
            raise

    # -- what only a handler has --------------------------------------------------------------------------------------

    @property
    def state(self) -> BrokerState:
        """The run as data: it is not here."""
        _refuse("The state of the run")

    def state_to_save(self) -> BrokerState:
        """The same, with all that it was told."""
        _refuse("The state of the run")

    async def cancel(self, timeout_s: float | None) -> None:
        """Only from outside."""
        del timeout_s
        _refuse("cancel()")

    def request_cancel(self) -> None:
        """Only from outside."""
        _refuse("cancel()")

    async def outcome(self) -> StopEvent:
        """Only from outside."""
        _refuse("The result of the run")

    def ending(self) -> StopEvent | BaseException | None:
        """Only from outside."""
        _refuse("The result of the run")

    def read_stream(self, after: int, internal: bool) -> AsyncIterator[tuple[int, Event]]:
        """Only from outside."""
        del after, internal
        _refuse("The stream of the run")


def _refuse(what: str) -> NoReturn:
    raise ContextStateError(f"{what} is only available from handler code, not from within steps.")


def _retrieve(task: asyncio.Task[None]) -> None:
    """Nobody waits for it, and its trouble was told."""
    if not task.cancelled():
        task.exception()
