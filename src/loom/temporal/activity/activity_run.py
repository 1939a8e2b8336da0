"""One execution of a body inside an activity: what the body finds there, what it does, and what it reports.

The run itself is in a workflow on the cluster and is reached through a `RunLink`. Effects of the body leave as signals
or with its result. A body that waits without an answer leaves: its activity ends, and the run begins the body again
from the top once there is an answer. What the body did by then is not done twice.
"""

from __future__ import annotations

import asyncio
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from msgspec.structs import replace
from typing_extensions import override

from loom.core.body_effects import CHILD, NO_WRITES, SLEEP, WAIT, child_key, once_key, sleep_key, wait_key, write_digest
from loom.core.commands import CommandResumeWorker
from loom.core.records import Failure
from loom.core.ticks import (
    TickAddEvent,
    TickAwaitEvent,
    TickEndWait,
    TickLeaveStep,
    TickParkRun,
    TickPublishEvent,
    TickRecordResult,
    TickRefuseEvent,
    TickSleep,
    TickStartChild,
    TickStepResult,
)
from loom.effects.execution import StepExecution
from loom.runtime.durable.registration import child_start
from loom.steps.context import Context
from loom.steps.errors import ContextStateError, WorkflowRuntimeError
from loom.steps.events import Event
from loom.temporal.activity.outbox import Outbox, size_of
from loom.temporal.activity.remote_store import RemoteStore, StoreAccess
from loom.temporal.payloads import ActivityReport
from loom.temporal.rpc import RunGone, RunUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping

    from loom.core.state import BrokerState
    from loom.core.ticks import WorkflowTick
    from loom.effects.ports import Binding
    from loom.runtime.durable.metrics import RuntimeMetrics
    from loom.runtime.durable.registration import Registration
    from loom.steps.events import StartEvent, StopEvent
    from loom.steps.resources import RunResources
    from loom.steps.state_store import InMemoryStateStore
    from loom.temporal.activity.remote_store import WriterTurns
    from loom.temporal.payloads import StepTask
    from loom.temporal.rpc import RunLink
    from loom.temporal.settings import ActivitySettings

T = TypeVar("T")

_Wait = TickAwaitEvent | TickSleep | TickStartChild
_Last = TickStepResult | TickParkRun | TickRefuseEvent
"""How an execution ends that does not leave to wait."""

_SEND, _PUBLISH = "send", "publish"
"""How the run notes among the effects of a body that it has sent an event, or written one to the stream."""


class ActivityContext(NamedTuple):
    """What all bodies of a worker share."""

    codes: Mapping[str, Registration]
    settings: ActivitySettings
    turns: WriterTurns
    metrics: RuntimeMetrics | None = None
    """Counts executions; None in a worker that is not Loom's own."""


class Attempt(NamedTuple):
    """The number of an attempt at an activity, and when it began by the cluster's clock."""

    number: int
    started_at: float


class _Execution(StepExecution):
    """An execution that knows which of its tasks work out a result that shall not be worked out twice."""

    making: set[asyncio.Task[Any] | None]
    """These tasks."""
    later_traceback_bytes = 4 * 1024
    """A result is an event of the history, and a run that fails for days has many of them."""

    @override
    async def once(self, name: str, make: Callable[[], Any]) -> Any:
        task = asyncio.current_task()
        self.making.add(task)
        try:
            return await super().once(name, make)
        finally:
            self.making.discard(task)


class ActivityRun:
    """The host of one execution: the run as its body and its context see it from inside an activity."""

    is_idle = False
    is_done = False
    status = "running"
    loop_ends = False
    """Always False: the worker that stops an activity marks its execution as abandoned first."""

    def __init__(
        self,
        task: StepTask,
        code: Registration,
        binding: Binding,
        worker: ActivityContext,
        link: RunLink,
        attempt: Attempt,
    ) -> None:
        self.task = task
        self.run_id = task.run_id
        self.definition = code.definition
        self.workflow_name = task.workflow
        self.resources: RunResources | None = None
        self.codec = code.codec
        # All times of a run are the cluster's: a worker's own clock may be off, and how long retries take counts.
        ahead = monotonic() - attempt.started_at
        self.now: Callable[[], float] = lambda: monotonic() - ahead
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._worker = worker
        self.settings = worker.settings
        self.outbox = Outbox(link, worker.settings, self.give_up, attempt.number)
        self._access = StoreAccess(self, link, attempt.number)
        self._store: RemoteStore | None = None
        self._written = task.command.item.writes or NO_WRITES
        """What stands on the stream from an earlier run of the execution, as far as this one has written the same."""
        self.execution = _Execution(self, binding, task.command)
        self.execution.making = set()
        self._pending: dict[str, asyncio.Task[Any] | None] = {}
        """The tasks that wait without an answer, by key of the wait."""
        self._result: _Last | None = None
        self._trouble: Exception | None = None
        self._turned: asyncio.Future[None] = self.loop.create_future()
        """Done when the body shall not go on, though it has no result."""
        self._closed = False
        self._settling: asyncio.TimerHandle | None = None
        self._held_since: float | None = None
        self._recording: set[asyncio.Task[None]] = set()

    # -- from its beginning to its report -----------------------------------------------------------------------------

    async def perform(self) -> ActivityReport:
        """Run the body until it has a result or leaves. To cancel this is to cancel the body."""
        try:
            return await self._perform()
        finally:
            self._access.stop_renewing()
            if self.resources is not None:
                self.resources.leave()

    async def _perform(self) -> ActivityReport:
        body = self.execution.task = self.loop.create_task(self.execution.work())
        try:
            await asyncio.wait({body, self._turned}, return_when=asyncio.FIRST_COMPLETED)
            if self._result is None or not body.done():
                await self._stop(body)
        except asyncio.CancelledError:
            await self._stop(body)
            self.outbox.close()
            raise
        if self._trouble is not None:
            self.outbox.close()
            raise self._trouble
        last = self._fitting(self._result) if self._result is not None else self._leaving()
        return ActivityReport((*await self.outbox.rest(last), last))

    async def _stop(self, body: asyncio.Task[None]) -> None:
        """Cancel the body, with a little grace. Nothing that it does from now on counts."""
        if not self._turned.done() and body.done() and not body.cancelled():
            body.result()  # it broke off in a way that is no failure of a step
        self._closed = self.execution.abandoned = True
        self._unsettle()
        for waiting in self._pending.values():
            if waiting is not None and waiting is not body:
                waiting.get_loop().call_soon_threadsafe(waiting.cancel)
        body.cancel()
        await asyncio.wait({body}, timeout=self.settings.grace_s)

    def _leaving(self) -> TickLeaveStep:
        command = self.task.command
        pending = tuple(self._pending)
        return TickLeaveStep(
            at=self.now(),
            step=command.step,
            item=command.item.id,
            seq=command.seq,
            pending=pending,
            writes=self.execution.fewer_writes,
        )

    def _fitting(self, result: _Last) -> _Last:
        """Return the result, or a failure in its place if it is too large for Temporal."""
        size = size_of(result)
        if not isinstance(result, TickStepResult) or size <= self.settings.result_bytes:
            return result
        message = (
            f"The result of step '{result.step}' has {size} bytes, and Temporal's limit for a result is 2 MiB: "
            "return a reference to data that is kept elsewhere."
        )
        failure = Failure("builtins.ValueError", message)
        return replace(result, returned=(), fanned_out=False, collects=(), failure=failure, retry_delay_s=None)

    def executed(self, execution: StepExecution, result: TickStepResult | TickRefuseEvent) -> None:
        """Take the result of the body, which has ended."""
        self._unsettle()
        if not self._closed:
            self._result = result
            metrics = self._worker.metrics
            if metrics is not None and type(result) is TickStepResult:
                metrics.executed(metrics.of_workflow(self.workflow_name), execution, result)

    def give_up(self, error: Exception) -> None:
        """End the activity with an error: the run cannot be reached, or is gone."""
        if self._trouble is None and self._result is None:
            self._trouble = error
            self._closed = True
            self._turn_away()

    # -- what the body does -------------------------------------------------------------------------------------------

    def report(self, tick: WorkflowTick) -> None:
        """Tell the run what the body did; safe from any thread. Effects of an earlier run are not told again."""
        if self._closed:
            return
        if isinstance(tick, TickParkRun):
            self._result = tick
            self.on_loop(self._turn_away)
        elif isinstance(tick, _Wait):
            self._wait(tick)
        elif isinstance(tick, TickRecordResult):
            self._record(tick)
        elif isinstance(tick, TickRefuseEvent):
            self._tell(tick)
            self._leave_waiting(tick.key, tick.suspends)
        elif (isinstance(tick, TickAddEvent) and self._is_sent(tick)) or (
            isinstance(tick, TickPublishEvent) and self._is_written(tick)
        ):
            self.on_loop(self._happened)
        else:
            if isinstance(tick, TickEndWait):
                self._pending.pop(tick.key, None)
            self._tell(tick)

    def _is_sent(self, tick: TickAddEvent) -> bool:
        source = tick.source
        return source is not None and self.task.command.item.effects.get(source.ordinal) == _SEND

    def _is_written(self, tick: TickPublishEvent) -> bool:
        """Say whether the same write stands on the stream already. From the first difference on none does."""
        source = tick.source
        if source is not None and tick.writes < 0:
            return self.task.command.item.effects.get(source.ordinal) == _PUBLISH
        if source is None or tick.writes >= self._written.count:
            return False
        if self._written.is_equal(tick.writes, write_digest(tick.event)):
            return True
        self._written = self._written.cut(tick.writes)
        return False

    def _tell(self, tick: WorkflowTick) -> None:
        size = size_of(tick)
        if size > self.settings.result_bytes:
            raise ValueError(
                f"Step '{self.task.command.step}' cannot do this on Temporal, whose limit is 2 MiB: the "
                f"{type(tick).__name__} has {size} bytes. Pass a reference to data that is kept elsewhere."
            )
        self.outbox.add(tick, size)
        self.on_loop(self._happened)

    # -- waits --------------------------------------------------------------------------------------------------------

    def _wait(self, tick: _Wait) -> None:
        """Answer a wait with what the run had for it, else leave: at once if the body's own task waits."""
        kind, key = _kind_and_key(tick)
        earlier = self.task.command.item.effects.get(tick.source.ordinal)
        is_same = earlier is None or earlier.startswith(kind)
        key = earlier if earlier is not None else key
        answer = self.task.answers.get(key) if is_same else None
        if answer is None or earlier is None:
            self._tell(tick)
        if answer is not None:
            command = self.task.command
            given = (answer.event, answer.timed_out, None, answer.value, answer.child)
            # Not at once: others that the body has begun come first, as they did when there was no answer yet.
            asyncio.get_running_loop().call_soon(
                self.execution.answer, CommandResumeWorker(command.seq, command.step, key, *given)
            )
            return
        if is_same:
            self._leave_waiting(key, tick.suspends)
        else:
            self._pending[key] = asyncio.current_task()
            self.on_loop(self._turn_away)

    def _leave_waiting(self, key: str, suspends: bool) -> None:
        """Leave because a wait has no answer: at once if the body's own task waits."""
        self._pending[key] = waiting = asyncio.current_task()
        self.execution.making.discard(waiting)
        self.on_loop(self._settled if suspends else self._happened)

    def _record(self, tick: TickRecordResult) -> None:
        """Let a result be recorded, and the body go on when it is."""
        key = once_key(tick.name)
        self._tell(tick)
        if self.task.command.item.effects.get(tick.source.ordinal, key) != key:
            # The code has changed under the run, which the run will say.
            self._pending[key] = asyncio.current_task()
            self.on_loop(self._turn_away)
            return
        self.on_loop(self._begin_to_record, key, tick.value, asyncio.get_running_loop())

    def _begin_to_record(self, key: str, value: Any, home: asyncio.AbstractEventLoop) -> None:
        recording = self.loop.create_task(self._recorded(key, value, home))
        self._recording.add(recording)
        recording.add_done_callback(self._recording.discard)

    async def _recorded(self, key: str, value: Any, home: asyncio.AbstractEventLoop) -> None:
        try:
            await self.outbox.flush()
        except (RunGone, RunUnreachable) as error:
            self.give_up(error)
            return
        command = self.task.command
        answer = CommandResumeWorker(command.seq, command.step, key, value=value)
        home.call_soon_threadsafe(self.execution.answer, answer)

    # -- leaving ------------------------------------------------------------------------------------------------------

    def _happened(self) -> None:
        """Let effects leave in time, and give a body that waits in one of its tasks more time to settle."""
        self.outbox.arm()
        self._unsettle()
        if self._pending and not self._closed:
            self._settling = self.loop.call_later(self.settings.settle_s, self._settled)

    def _settled(self) -> None:
        """Leave, unless another task works out a recorded result; after `hold_s` seconds leave all the same."""
        self._unsettle()
        if not self._pending:
            return
        now = self.loop.time()
        if self._held_since is None:
            self._held_since = now
        if self.execution.making and now < self._held_since + self.settings.hold_s:
            self._settling = self.loop.call_later(self.settings.settle_s, self._settled)
        else:
            self._turn_away()

    def _unsettle(self) -> None:
        if self._settling is not None:
            self._settling.cancel()
            self._settling = None

    def _turn_away(self) -> None:
        if not self._turned.done():
            self._turned.set_result(None)

    # -- where things happen ------------------------------------------------------------------------------------------

    def on_loop(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call a function on the event loop of the activity, from any thread."""
        if threading.get_ident() == self._thread:
            call(*arguments)
        else:
            self.loop.call_soon_threadsafe(call, *arguments)

    async def at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work on the event loop of the activity; a sync step may have a loop of its own in its thread."""
        if asyncio.get_running_loop() is self.loop:
            return await self.guarded(work)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.guarded(work), self.loop))

    async def guarded(self, work: Coroutine[Any, Any, T]) -> T:
        """Await work that talks to the run, and end the activity if the run cannot be reached."""
        try:
            return await work
        except (RunGone, RunUnreachable) as error:
            self.give_up(error)
            raise

    # -- what bodies and contexts ask of a run ------------------------------------------------------------------------

    @property
    def store(self) -> InMemoryStateStore[Any]:
        """Return the run's store."""
        if self._store is None:
            turn = self._worker.turns.of_run(self.run_id)
            self._store = RemoteStore(self._access, self.definition.state_type, turn)
        return self._store

    @property
    def max_unsaved(self) -> int | None:
        """Return None: the outbox holds bodies to what the cluster takes."""
        return None

    def tell(self) -> None:
        """See `Host`."""

    def break_off(self, error: Exception) -> None:
        """Let the activity fail, which the cluster tries again."""
        raise error

    def make_room(self, weight: int, *, waits: bool = True) -> None:
        """Do nothing: a body here needs no room."""

    def check_target(self, event: Event, step: str | None) -> None:
        """Refuse an event for a step that does not exist or does not take it."""
        if not isinstance(event, Event):
            raise WorkflowRuntimeError(f"Only events can be sent, not {type(event).__name__}.")
        self.definition.check_target(event, step)

    def make_context(self, execution: StepExecution) -> Context[Any]:
        """Make the context that a body asks for."""
        return Context._of_run(execution.run, execution)

    def admission(self) -> Awaitable[None] | None:
        """Return None: the cluster bounds what is open in its own way."""
        return None

    def lease(self) -> Awaitable[None] | None:
        """Return None: the cluster has given the body to this worker, and knows by heartbeats whether it lives."""
        return None

    def start_of(self, workflow: Any, inputs: dict[str, Any], start_event: StartEvent | None) -> tuple[str, Any]:
        """Return the name of a child's workflow, and what the child begins with; any worker may take it."""
        name = workflow if isinstance(workflow, str) else workflow.workflow_name
        return name, child_start(name, self._worker.codes.get(name), self.codec, inputs, start_event)

    def send(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Send an event to the run, as an effect of the body."""
        self.execution.send(event, step, waiter_id)

    async def send_durably(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Send an event to the run, and return when it cannot be lost any more."""
        self.send(event, step, waiter_id)
        await self.at_home(self.outbox.flush())

    # -- what only a handler has --------------------------------------------------------------------------------------

    @property
    def state(self) -> BrokerState:
        """Refuse: the state is with the run."""
        _refuse("The state of the run")

    def state_to_save(self) -> BrokerState:
        """Refuse: the state is with the run."""
        _refuse("The state of the run")

    async def cancel(self, timeout_s: float | None, force: bool = False) -> None:
        """Refuse: a run is cancelled from outside."""
        del timeout_s, force
        _refuse("cancel()")

    def request_cancel(self) -> None:
        """Refuse: a run is cancelled from outside."""
        _refuse("cancel()")

    async def outcome(self) -> StopEvent:
        """Refuse: the outcome is for callers outside of the run."""
        _refuse("The result of the run")

    def ending(self) -> StopEvent | BaseException | None:
        """Refuse: the outcome is for callers outside of the run."""
        _refuse("The result of the run")

    def read_stream(self, after: int, internal: bool) -> AsyncIterator[tuple[int, Event]]:
        """Refuse: the stream is for readers outside of the run."""
        del after, internal
        _refuse("The stream of the run")


def _refuse(what: str) -> NoReturn:
    raise ContextStateError(f"{what} is only available from handler code, not from within steps.")


def _kind_and_key(tick: _Wait) -> tuple[str, str]:
    """Return how the keys of such waits begin, and the key of this one."""
    if isinstance(tick, TickAwaitEvent):
        return WAIT, wait_key(tick.waiter_id, tick.occurrence)
    if isinstance(tick, TickSleep):
        return SLEEP, sleep_key(tick.occurrence)
    return CHILD, child_key(tick.occurrence)
