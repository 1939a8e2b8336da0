"""One execution of a body inside an activity, from its beginning to what it reports.

A body that waits without an answer leaves: its activity ends, and the run begins it again from the top once there is
one. What it did by then is not done twice. May import loom.core, loom.effects and the modules beside it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

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
from loom.temporal.effects_out import size_of
from loom.temporal.link import RunGone, RunUnreachable
from loom.temporal.payloads import StepReport
from loom.temporal.run_inside import RunInside

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.ticks import WorkflowTick
    from loom.effects.body import Body
    from loom.runtime.durable.registered import Registered
    from loom.temporal.link import RunLink
    from loom.temporal.payloads import StepTask
    from loom.temporal.run_inside import Around, Attempt

_Wait = TickAwaitEvent | TickSleep | TickStartChild
_Last = TickStepResult | TickParkRun | TickRefuseEvent
"""How an execution ends that does not leave to wait."""

_SEND, _PUBLISH = "send", "publish"
"""How the run notes among the effects of a body that it has sent an event, or written one to the stream."""


class _Execution(StepExecution):
    """An execution that says when it works a result out that shall not be worked out twice."""

    making: set[asyncio.Task[Any] | None]
    """The tasks that do so."""
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


class ActivityRun(RunInside):
    """The host of one execution."""

    execution: _Execution

    def __init__(
        self,
        task: StepTask,
        code: Registered,
        binding: Body,
        around: Around,
        link: RunLink,
        attempt: Attempt,
    ) -> None:
        super().__init__(task, code, around, link, attempt)
        self._written = task.command.item.writes or NO_WRITES
        """What stands on the stream from an earlier run of the execution, as far as this one has written the same."""
        self.execution = _Execution(self, binding, task.command)
        self.execution.making = set()
        self._pending: dict[str, asyncio.Task[Any] | None] = {}
        """The waits without an answer by key, and who waits."""
        self._result: _Last | None = None
        self._trouble: Exception | None = None
        self._turned: asyncio.Future[None] = self.loop.create_future()
        """Done when the body shall not go on, though it has no result."""
        self._closed = False
        self._settling: asyncio.TimerHandle | None = None
        self._held_since: float | None = None
        self._recording: set[asyncio.Task[None]] = set()

    async def perform(self) -> StepReport:
        """Run the body until it has a result or leaves. Whoever cancels this cancels the body."""
        try:
            return await self._perform()
        finally:
            self.stop_renewing()

    async def _perform(self) -> StepReport:
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
        return StepReport((*await self.outbox.rest(last), last))

    async def _stop(self, body: asyncio.Task[None]) -> None:
        """Nothing that the body does from now on counts. It is cancelled, with a little grace."""
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
        """The result, or a failure that says that it is too large."""
        size = size_of(result)
        if not isinstance(result, TickStepResult) or size <= self.settings.result_bytes:
            return result
        message = (
            f"The result of step '{result.step}' has {size} bytes, and Temporal's limit for a result is 2 MiB: "
            "return a reference to data that is kept elsewhere."
        )
        failure = Failure("builtins.ValueError", message)
        return replace(result, returned=(), fanned_out=False, collects=(), failure=failure, retry_delay_s=None)

    # -- what the body does -------------------------------------------------------------------------------------------

    @override
    def report(self, tick: WorkflowTick) -> None:
        """The body did something. What an earlier run of the execution did is not told again."""
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

    def executed(self, execution: StepExecution, result: TickStepResult | TickRefuseEvent) -> None:
        """The body has ended."""
        self._unsettle()
        if not self._closed:
            self._result = result
            figures = self._around.figures
            if figures is not None and type(result) is TickStepResult:
                figures.executed(figures.of_workflow(self.workflow_name), execution, result)

    @override
    def give_up(self, error: Exception) -> None:
        """There is nobody to work for."""
        if self._trouble is None and self._result is None:
            self._trouble = error
            self._closed = True
            self._turn_away()

    def _is_sent(self, tick: TickAddEvent) -> bool:
        source = tick.source
        return source is not None and self.task.command.item.effects.get(source.ordinal) == _SEND

    def _is_written(self, tick: TickPublishEvent) -> bool:
        """Say whether the same stands on the stream already. From the first difference on nothing does."""
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
        """A wait has no answer: leave, at once if the body's own task waits."""
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
        """Something was done: what was told leaves in time, and a body that waits aside may not be done yet."""
        self.outbox.arm()
        self._unsettle()
        if self._pending and not self._closed:
            self._settling = self.loop.call_later(self.settings.settle_s, self._settled)

    def _settled(self) -> None:
        """Leave, but not while a result is worked out beside the wait; if that takes too long, it is begun again."""
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


def _kind_and_key(tick: _Wait) -> tuple[str, str]:
    """How the keys of such waits begin, and the key of this one."""
    if isinstance(tick, TickAwaitEvent):
        return WAIT, wait_key(tick.waiter_id, tick.occurrence)
    if isinstance(tick, TickSleep):
        return SLEEP, sleep_key(tick.occurrence)
    return CHILD, child_key(tick.occurrence)
