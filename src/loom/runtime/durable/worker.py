"""What every runtime has that can work on runs: a facade over its parts, the code that it works for, and when it works.

The parts are the calls on stored runs (`RunClient`), starts (`RunStarter`), schedules (`ScheduleClient`), stored
definitions (`Definitions`), and the handles that programs hold (`Handles`). Who moves the runs, a runtime says itself:
`DurableRuntime` has them in memory (`ActiveRuns`), `TemporalRuntime` leaves them to a cluster.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from loom.flows.plain import plain_value
from loom.runtime.durable.addresses import Signer, StoredCallbacks
from loom.runtime.durable.admission import MemoryLimit
from loom.runtime.durable.definitions import Definitions
from loom.runtime.durable.flow_client import FlowClient
from loom.runtime.durable.handle import Handles, RunHandle
from loom.runtime.durable.problems import Problems
from loom.runtime.durable.registration import (
    FlowRegistration,
    RemoteDefinition,
    instance_of,
    prepared,
    registration_of,
)
from loom.runtime.durable.run_client import RunClient
from loom.runtime.durable.run_starter import RunStarter
from loom.runtime.durable.schedules import ScheduleClient, ScheduleNotFound, check_schedule
from loom.runtime.durable.schedules_run import ScheduleStart, keep_triggers, timing_of
from loom.runtime.durable.services import internal_codes, services_for
from loom.runtime.durable.settings import Settings
from loom.runtime.durable.workers import own_facts
from loom.runtime.watchdog import rouse, watchdog
from loom.steps.context import Context
from loom.steps.handler import WorkflowHandler
from loom.steps.resource_lifetimes import close_resources
from loom.store.errors import StoreError, StoreLocked, StoreUnavailable
from loom.store.hash_chain import Links
from loom.store.loop_time import wall_clock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from types import TracebackType

    from loom.api.definitions import Definition, FlowAddress, FlowStatus, TriggerFired, TriggerHistory
    from loom.api.workers import Role
    from loom.core.state import BrokerState
    from loom.runtime.durable.active_run import ActiveRun
    from loom.runtime.durable.active_runs import ActiveRuns
    from loom.runtime.durable.listeners import ListenerClient
    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.schedules import ScheduleInfo
    from loom.runtime.durable.workers import WorkerFacts
    from loom.runtime.flow import Flow
    from loom.runtime.watchdog import LoopWatch
    from loom.steps.events import Event, StartEvent
    from loom.steps.state_store import InMemoryStateStore
    from loom.steps.workflow import Workflow
    from loom.store.ports import Store
    from loom.store.records import RunRow

_log = logging.getLogger("loom.durable")


class WorkerRuntime(RunClient, ABC):
    """Runs in a store, and work on them.

    Without a registered workflow it is a client: it starts, tells and asks, and leaves the work to others.
    """

    definitions: Definitions
    """The flows in the store, and which version of them a run begins with."""
    definitions_at_once = 32
    """How many flows are recorded at once when work begins."""

    def __init__(
        self, store: Store, settings: Settings | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        super().__init__(store, clock or self._wall_time)
        self._has_clock = clock is not None
        self._settings = settings or Settings()
        self.links = Links(self._settings.keyring)
        if not self._settings.tracing:
            self.caller = _nobody
        self.memory = MemoryLimit(self._settings.max_memory)
        """How much memory this process may use."""
        self.home: asyncio.AbstractEventLoop | None = None
        """The event loop on which the runtime is open."""
        self.active_runs: ActiveRuns | None = None
        """The runs in memory, while this process works on runs and no cluster has them."""
        self.handles = Handles()
        self.starter = RunStarter(self)
        self.schedule_client = ScheduleClient(self)
        self.signer = Signer(store)
        """Signs addresses, and knows signatures again."""
        self.flow_client = FlowClient(self, self.signer, lambda: self.listeners)
        self.watch: LoopWatch | None = None
        """What the watchdog knows of the event loop; None while this process does not work, or without a watchdog."""
        self._watches_always = False
        self._working: asyncio.Task[None] | None = None
        """The latest beginning, which waits for those before it."""
        self._placed = asyncio.Event()
        """Set once the latest beginning knows whether there is a place for this process."""
        self._working_since: float | None = None
        """When this process became one that works on runs."""
        self._beginnings: set[asyncio.Task[None]] = set()
        self._in_the_way: str | None = None
        """Why joining again has failed so far: callers are told, and do not wait until it succeeds."""
        self._triggered: set[str] = set()
        self._open = False
        self.opened_by = "async with loom.connect(...)"
        """How a program opens it, for errors."""
        self.definitions = Definitions(
            self, follow=self._settings.definitions, poll_interval=self._settings.poll_interval
        )
        self.callbacks = StoredCallbacks(self.signer, self._settings.callback_url)
        """The addresses at which services call back."""
        self.services = services_for(self, self._settings)
        """What the actions of flows find in this process."""
        told: dict[str, Registration] = {}
        if self._settings.on_problem is not None or self._settings.webhook is not None:
            from loom.runtime.durable.problem_run import hook_codes  # with retries, which few processes need at start

            told = hook_codes(self._settings)
        self.codes |= told
        self.problems = Problems(store, [name.rpartition(".")[2] for name in told], self._settings.problem_interval)
        """The hooks that are told of runs with problems."""
        store.on_notification = self._on_notification

    @staticmethod
    def _wall_time() -> float:
        return wall_clock(asyncio._get_running_loop())()

    # -- what a runtime has to say ------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def is_alone(self) -> bool:
        """Whether nobody else can be at work on the store while this process is."""

    @property
    @abstractmethod
    def figures(self) -> dict[str, int]:
        """How many runs are in memory here, and how many were released and brought back so far."""

    @override
    def describe_worker(self) -> WorkerFacts:
        """What this process knows of itself."""
        return own_facts(self._working_since, self.codes, self.figures["in_memory"])

    @property
    @abstractmethod
    def role(self) -> Role:
        """What this process does now: work on runs, only start, send and read, or that until it takes over."""

    @abstractmethod
    async def _join(self) -> bool:
        """Become a process that works on runs, unless it is one already. False: it stays beside the one that works."""

    @abstractmethod
    async def _leave(self) -> None:
        """Work on runs no more. Also called where `_join` never was, or has failed."""

    @abstractmethod
    async def _recover_runs(self, names: Sequence[str]) -> None:
        """Recover the runs of names whose code has come or changed, parked runs included."""

    @abstractmethod
    def _on_notification(self, run_ids: Sequence[str]) -> None:
        """Something has come for runs, or they have ended; without ids, for any."""

    # -- opening and closing ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._open_store()
        self.home = asyncio.get_running_loop()
        if not self._has_clock:  # it is read several times for every tick: the loop is asked for its clock once
            self.now = wall_clock(asyncio.get_running_loop())
        self._working = self._in_the_way = None
        self._open = True
        if self.codes or self._settings.definitions:
            self._begin_to_work()
            try:
                await self.check_place()
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop working. Unfinished runs stay in the store, and go on where a process works for them."""
        if not self._open:
            return
        self._open = False
        self._end_changes()
        beginnings = list(self._beginnings)
        for each in beginnings:
            each.cancel()
        await asyncio.gather(*beginnings, return_exceptions=True)
        await self.definitions.close()
        await self.catalog.close()
        await self._leave()
        await close_resources(code.definition.instance for code in self.codes.values())
        if self.watch is not None:
            watchdog().leave(self.watch, self._may_stall)
            self.watch = None
        self.watchers.wake_all()
        self.endings.wake_all()
        await self.committer.close()
        await self.store.close()

    @override
    async def ready(self) -> None:
        """Wait until calls can be made; raise why they cannot."""
        if not self._open:
            raise StoreError(f"The runtime is closed: use it inside of `{self.opened_by} as runtime:`.")
        if self._working is not None:
            if self._in_the_way is not None:
                raise StoreUnavailable(self._in_the_way)
            if _has_failed(self._working):
                self._begin_to_work()  # what was in the way may be gone
            await asyncio.shield(self._working)

    # -- starting runs ------------------------------------------------------------------------------------------------

    async def start(
        self,
        workflow: str,
        inputs: Any = None,
        *,
        run_id: str | None = None,
        tags: dict[str, str] | None = None,
        parameters: dict[str, Any] | None = None,
        variables: dict[str, Any] | None = None,
        version: int | None = None,
    ) -> WorkflowHandler:
        """Begin a run. Returns once it is stored; the same `run_id` with the same input again is the same run.

        The input of a flow is its trigger's body, any JSON value; only flows have parameters, variables and versions.
        `DefinitionNotFound` if the flow was deleted, or has no such version; `MemoryExceeded` above `max_memory`.
        """
        begun, _ = await self.starter.begin(
            workflow,
            inputs,
            run_id=run_id,
            tags=tags,
            parameters=parameters,
            variables=variables,
            version=version,
        )
        return self._handler_for(begun, workflow, None)

    async def start_with_event(
        self,
        workflow: str,
        event: Event,
        *,
        run_id: str,
        inputs: Any = None,
        event_id: str | None = None,
        tags: dict[str, str] | None = None,
    ) -> WorkflowHandler:
        """Begin a run with an event that is there from its first moment, or send the event to the run of this id.

        A new run is stored together with its event, so nobody finds one without the other. The same `run_id` and
        `event_id` again change nothing. `RunExists` if the id is that of another workflow or came with another input,
        `RunFinished` if the run has ended: the event is not sent then.
        """
        await self.starter.start_with_event(workflow, event, run_id=run_id, inputs=inputs, event_id=event_id, tags=tags)
        return self._handler_for(run_id, workflow, None)

    async def fork(
        self,
        source_id: str,
        /,
        *,
        tick: int,
        run_id: str | None = None,
        input: Any = None,  # noqa: A002 - what it is called elsewhere
        event: Event | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> WorkflowHandler:
        """Store a new run that goes on from a past tick of another one, as `history` counts them.

        `input` replaces what the run began with, which needs tick 0. `store` has new values by dotted path: of the
        store of steps, of the variables of a flow. `event` comes first in the fork. A `ValueError` says what does not
        fit; then nothing is stored.
        """
        fork_id = await self.store_fork(source_id, tick=tick, run_id=run_id, input=input, event=event, store=store)
        return self._handler_for(fork_id, (await self.row(fork_id)).workflow, None)

    def start_run(
        self,
        workflow: Workflow,
        run_id: str | None,
        start_event: StartEvent | None,
        staged: InMemoryStateStore[Any] | None,
        resumed: BrokerState | None,
    ) -> RunHandle:
        """Begin a run of a workflow that was made for this runtime: `workflow.run()` calls it."""
        return self.starter.start_run(workflow, run_id, start_event, staged, resumed)

    def track_workflow(self, workflow: Workflow) -> None:
        """Do nothing: a workflow that was made for this runtime is registered with its first run."""

    # -- handlers -----------------------------------------------------------------------------------------------------

    async def handler(self, run_id: str) -> WorkflowHandler:
        """Return the handler of a run, whichever process started it."""
        await self.ready()
        row = await self.row(run_id)
        return self._handler_for(run_id, row.workflow, row)

    def _handler_for(self, run_id: str, name: str, row: RunRow | None) -> WorkflowHandler:
        code = self.codes.get(name)
        definition = code.definition if code is not None else RemoteDefinition(name)
        handle = RunHandle(self, run_id, definition, self.codec_for(name), row)
        self.handles.keep(handle)
        return WorkflowHandler(Context._of_run(handle), handle)

    @override
    def saw(self, row: RunRow) -> None:
        self.handles.saw(row)

    @override
    def active_run(self, run_id: str) -> ActiveRun | None:
        return self.active_runs.runs.get(run_id) if self.active_runs is not None else None

    @override
    def short_of_memory(self) -> str | None:
        return None if self.memory.has_room else self.memory.words

    # -- schedules ----------------------------------------------------------------------------------------------------

    async def schedule(  # noqa: PLR0913 - all by name
        self,
        name: str,
        workflow: str,
        *,
        recurrence: dict[str, Any] | None = None,
        cron: str | None = None,
        every: float | None = None,
        time_zone: str | None = None,
        input: Any = None,  # noqa: A002 - what it is called elsewhere
        parameters: dict[str, Any] | None = None,
        variables: dict[str, Any] | None = None,
        tags: dict[str, str] | None = None,
        catch_up: bool = False,
    ) -> ScheduleInfo:
        """Start runs of a workflow again and again. Returns once that is stored.

        When: a `recurrence` of Logic Apps, five fields of `cron`, or `every` number of seconds, counted from now. The
        same again changes nothing; something else under the same name replaces what was there. Of occurrences that
        were missed because nobody worked, only the last one starts a run, unless it shall `catch_up`.
        """
        await self.ready()
        check_schedule(name, workflow, tags or {})
        given = {"input": input, "parameters": parameters, "variables": variables}
        schedule = ScheduleStart(
            name=name,
            workflow=workflow,
            timing=timing_of(recurrence, cron, every, time_zone),
            tags=tags or {},
            catch_up=catch_up,
            **{key: plain_value(value, key) for key, value in given.items()},
        )
        return await self.schedule_client.put(schedule)

    async def unschedule(self, name: str) -> None:
        """Let a schedule start nothing any more. The runs that it has started are left alone."""
        await self.ready()
        if not await self.schedule_client.end(name):
            raise ScheduleNotFound(name)

    async def schedules(self) -> list[ScheduleInfo]:
        """Return all schedules that start runs, or would if they were not paused, by their names."""
        return await self.schedule_client.all()

    async def get_schedule(self, name: str) -> ScheduleInfo:
        """Return a schedule as it is now, also if it has come to its end; `ScheduleNotFound` if there is none."""
        return await self.schedule_client.get(name)

    # -- flows --------------------------------------------------------------------------------------------------------

    async def flows(self) -> list[Definition]:
        """List the flows of the store by their names."""
        return await self.flow_client.all()

    async def flow_status(self, name: str) -> FlowStatus:
        """Tell whether a flow is enabled, and what starts its runs; `DefinitionNotFound` if there is none."""
        return await self.flow_client.status(name)

    async def enable_flow(self, name: str) -> FlowStatus:
        """Let the triggers of a flow fire again. What they have missed is not made up for."""
        return await self.flow_client.enable(name)

    async def disable_flow(self, name: str) -> FlowStatus:
        """Let the triggers of a flow fire no more: requests to it are refused, and its own schedules start nothing.

        Runs under way go on, and `start` still works.
        """
        return await self.flow_client.disable(name)

    async def flow_address(
        self, name: str, *, url: str | None = None, expires_in: float | None = None, rotate: bool = False
    ) -> FlowAddress:
        """Give out a signed address at which a request fires the flow's trigger without a key.

        `url` is the server's address, by default the setting `callback_url`. The address expires after `expires_in`
        seconds, or never. To `rotate` ends all that were given out before.
        """
        url = url or self.callbacks.url
        if url is None:
            raise ValueError("Say where the server is: pass url, or connect with callback_url.")
        return await self.flow_client.address(name, url, expires_in=expires_in, rotate=rotate)

    async def trigger_history(self, name: str, trigger: str | None = None) -> TriggerHistory:
        """Tell what has become of a trigger of a flow, latest first; without its name, of the only one.

        `TriggerNotFound` if the flow has no such trigger.
        """
        return await self.flow_client.trigger_history(name, trigger)

    async def fire_trigger(self, name: str, trigger: str | None = None) -> TriggerFired:
        """Fire a trigger by hand: poll its service now, or start the run that time would start.

        Returns once that is stored. `TriggerRefused` if the flow is disabled, or the trigger needs a call from outside.
        """
        return await self.flow_client.fire_trigger(name, trigger)

    # -- working ------------------------------------------------------------------------------------------------------

    def register(self, workflow: Workflow | type[Workflow], name: str | None = None, *, schedules: bool = True) -> None:
        """Work for a workflow from now on: its unfinished runs are recovered, under the name they are stored with.

        A class counts as an instance that is made without arguments. `schedules=False` leaves alone what the triggers
        of a flow say about time.
        """
        workflow = instance_of(workflow)
        code = prepared(name or workflow.workflow_name, workflow, self.services, self._settings.max_depth)
        own = internal_codes(self, workflow)
        self.codes |= own
        self.codes[code.name] = code
        self.metrics.know(code.name, code.steps)
        self.definitions.registered(code)
        if schedules and self._settings.schedules:
            self._triggered.add(code.name)
        self.work_for([*own, code.name])

    def adopt(self, name: str, flow: Flow) -> None:
        """Take a flow for the code of a name that is stored as a definition. `work_for` lets the work begin."""
        own = internal_codes(self, flow)
        self.codes |= own
        before = self.codes.get(name)
        # A version of a project keeps its values, though another one was put since.
        surroundings = before.surroundings if isinstance(before, FlowRegistration) else None
        self.codes[name] = code = registration_of(name, flow, self.services, surroundings=surroundings)
        self.metrics.know(name, code.steps)
        if self._settings.schedules:
            self._triggered.add(name)
        self.work_for([*own])

    def work_for(self, names: Sequence[str]) -> None:
        """Begin to work for names whose code has come or changed."""
        if names and self._open:
            self._begin_to_work(names)

    async def check_place(self) -> None:
        """Raise `StoreLocked` if another process has the only place. Other failures are told by the next call."""
        await self._placed.wait()
        if self._working is not None and self._working.done() and not self._working.cancelled():
            error = self._working.exception()
            if isinstance(error, StoreLocked):
                raise error

    def _begin_to_work(self, names: Sequence[str] | None = None) -> None:
        self._placed = placed = asyncio.Event()
        self._begin(self._work(self._working, names, placed)).add_done_callback(lambda _done: placed.set())

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._working = beginning = asyncio.get_running_loop().create_task(work)
        self._beginnings.add(beginning)
        beginning.add_done_callback(self._beginnings.discard)
        # The next caller is told; if there is none, the log says it.
        beginning.add_done_callback(_log_failure)
        return beginning

    async def _work(
        self, previous: asyncio.Task[None] | None, names: Sequence[str] | None, placed: asyncio.Event
    ) -> None:
        """Work for these names, or for all of them, once what was begun before is done."""
        if previous is not None:
            await asyncio.wait([previous])
            names = None if _has_failed(previous) else names
        works = await self._join()
        placed.set()
        self._watch_loop()
        found = await self.definitions.begin(records=works)
        if not works:
            return
        names = [*names, *found] if names is not None else list(self.codes)
        await self._recover_runs(names)
        self.catalog.write(names)
        if self._settings.safe:
            return
        triggered = [name for name in names if name in self._triggered]
        await keep_triggers(self, triggered, self.definitions.deleted)
        if triggered:
            from loom.runtime.durable.listeners import keep_listeners

            await keep_listeners(self, triggered, self.definitions.deleted)

    @cached_property
    def listeners(self) -> ListenerClient:
        """The runs that listen for triggers. Their code is imported for flows with triggers only."""
        from loom.runtime.durable.listeners import ListenerClient

        return ListenerClient(self)

    async def work_on(self, names: Sequence[str]) -> None:
        """Recover the runs of names of Loom's own, whose code has come while this process begins to work."""
        await self._recover_runs(names)

    # -- being watched ------------------------------------------------------------------------------------------------

    def watch_always(self) -> None:
        """Have the event loop watched also while no run is in memory: it has other work, such as requests."""
        self._watches_always = True
        rouse()

    def _watch_loop(self) -> None:
        stall_s = self._settings.watchdog
        if self.watch is None and stall_s is not None:
            self.watch = watchdog().watch(asyncio.get_running_loop(), stall_s, self._may_stall)

    def _may_stall(self) -> bool:
        return self._watches_always or self._is_at_work

    @property
    def _is_at_work(self) -> bool:
        """Whether runs are in memory here."""
        return True

    def hindrances(self) -> list[str]:
        """Tell why this process should get no new work, as far as it is known without asking. For any thread."""
        found = {
            "stalled": self.watch is not None and self.watch.is_stalled,
            "memory-exceeded": self.memory.look(),
            "commits-failing": self._open and self.committer.failing is not None,
        }
        return [reason for reason, holds in found.items() if holds]

    # -- working again, after it had to stop --------------------------------------------------------------------------

    async def _rejoin(self) -> None:
        """Join again, however long that takes."""
        try:
            while not await self._has_joined_again():  # noqa: ASYNC110 - a store is tried, and tells nobody
                await asyncio.sleep(self._settings.poll_interval)
        finally:
            self._in_the_way = None

    async def _has_joined_again(self) -> bool:
        try:
            await self._work(None, None, asyncio.Event())
        except StoreUnavailable as error:
            _log.error("Joining again has failed, and is tried again: %s", error)
            self._in_the_way = str(error)
            return False
        return True


def _nobody() -> None:
    """Give no caller's span."""


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _log_failure(task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        _log.error("This process cannot work on runs: %s", error)
