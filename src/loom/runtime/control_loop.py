"""The control loop: drives one run on asyncio, through its adapter and nothing else.

    drain -> flush -> commit -> effects -> wait for the next thing to happen -> drain ...

Ticks of workers come before ticks from outside, and both are taken whenever the loop looks, so that neither starves the
other. A transition that would hold the event loop up is done in a thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from loom.core.adapter import pull_of
from loom.core.commands import (
    CommandCancelChild,
    CommandCancelTimer,
    CommandCompleteRun,
    CommandFailWorkflow,
    CommandHalt,
    CommandPublishEvent,
    CommandQueueEvent,
    CommandResumeWorker,
    CommandRunWorker,
    CommandStartChild,
    CommandStartTimer,
    CommandWarn,
    TerminalCommand,
)
from loom.core.reports import IdleReport
from loom.effects.threads import aside
from loom.runtime.timers import ArmedTimers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.core.adapter import InternalRunAdapter
    from loom.core.commands import WorkflowCommand
    from loom.core.run import Batch, Run
    from loom.core.ticks import WorkflowTick


class Workers(Protocol):
    """The bodies of a run's steps, as the control loop handles them."""

    pull: Callable[[], Awaitable[WorkflowTick]]

    def completed(self) -> list[WorkflowTick]:
        """See `TaskSet`."""
        ...

    def on_completion(self, wake: Callable[[bool], None]) -> None:
        """See `TaskSet`."""
        ...

    def start(self, command: CommandRunWorker) -> None:
        """Run a body."""
        ...

    def resume(self, command: CommandResumeWorker) -> None:
        """Let a suspended body go on."""
        ...

    def start_child(self, command: CommandStartChild) -> None:
        """Begin a child run."""
        ...

    def cancel_child(self, command: CommandCancelChild) -> None:
        """Cancel a child run."""
        ...

    def warn(self, message: str) -> None:
        """Tell the operator."""
        ...

    def committed(self, batch: Batch) -> None:
        """Tell the log what a batch brought: it is durable now."""
        ...

    def is_stuck(self) -> None:
        """The run is idle and waits for nothing."""
        ...

    async def stop(self) -> None:
        """Cancel the bodies that are left, with a little grace."""
        ...


PATIENCE = 256 * 1024
"""Units of work that one drain may do on the event loop: about 3 ms, at most 20 ms where a unit takes longest."""


class ControlLoop:
    """One run in motion."""

    __slots__ = ("_adapter", "_run", "_timers", "_workers")

    def __init__(self, run: Run, adapter: InternalRunAdapter, workers: Workers) -> None:
        self._run = run
        self._adapter = adapter
        self._workers = workers
        self._timers: ArmedTimers | None = None
        workers.pull = pull_of(adapter)

    async def drive(self) -> TerminalCommand:
        """Run to the end. Whatever a commit raises ends the run in this process, before any of its effects."""
        run, adapter, workers = self._run, self._adapter, self._workers
        try:
            while True:
                while not run.drain(PATIENCE):
                    await self._reduce_elsewhere()
                batch = run.flush()
                await adapter.commit(batch)
                workers.committed(batch)
                ending = self._carry_out(batch)
                if ending is not None:
                    return ending
                del batch  # a run may wait for days
                if run.holds_input:
                    continue  # what did not fit into one commit goes into the next
                until = self._timers.next_due if self._timers is not None else None
                ticks = await adapter.wait_for_next_task(workers, until)
                if until is not None and until <= adapter.get_now():
                    ticks += self._due()
                run.feed(*ticks)
                del ticks
        finally:
            try:
                await workers.stop()
            finally:
                adapter.close()

    async def _reduce_elsewhere(self) -> None:
        """Let a thread do the transition that is too costly for the event loop; other runs go on.

        Until it is done the run is as it was before. What comes for it waits in its buffer.
        """
        self._run.adopt(await aside("reduce", self._run.detached()))

    def _due(self) -> list[WorkflowTick]:
        """Timers come last: what workers and the outside had to say was there before them."""
        return self._timers.fire(self._adapter.get_now()) if self._timers is not None else []

    def _carry_out(self, batch: Batch) -> TerminalCommand | None:
        """Do what a committed batch asks for."""
        adapter = self._adapter
        for tick in batch.ticks:
            adapter.on_tick(tick)
        ending: TerminalCommand | None = None
        for command in batch.commands:
            if isinstance(command, CommandPublishEvent):
                adapter.write_to_event_stream(command.cursor, command.event)
            elif isinstance(command, CommandRunWorker):
                self._workers.start(command)
            else:
                ending = self._perform(command) or ending
        if self._run.look.idle_since is not None and any(map(_tells_of_no_waiter, batch.commands)):
            self._workers.is_stuck()
        return ending

    def _perform(self, command: WorkflowCommand) -> TerminalCommand | None:
        match command:
            case CommandResumeWorker():
                self._workers.resume(command)
            case CommandStartTimer():
                if self._timers is None:
                    self._timers = ArmedTimers()
                self._timers.start(command)
            case CommandCancelTimer():
                if self._timers is not None:
                    self._timers.cancel(command.seq)
            case CommandWarn():
                self._workers.warn(command.notice.message)
            case CommandStartChild() | CommandCancelChild():
                self._attend_child(command)
            case CommandCompleteRun() | CommandFailWorkflow() | CommandHalt():
                return command
            case CommandPublishEvent() | CommandRunWorker() | CommandQueueEvent():
                raise TypeError(f"{type(command).__name__} is not for here.")
        return None

    def _attend_child(self, command: CommandStartChild | CommandCancelChild) -> None:
        if isinstance(command, CommandStartChild):
            self._workers.start_child(command)
        else:
            self._workers.cancel_child(command)


def _tells_of_no_waiter(command: WorkflowCommand) -> bool:
    """Whether a command tells the stream that the run is idle and waits for nothing."""
    event = command.event if isinstance(command, CommandPublishEvent) else None
    return isinstance(event, IdleReport) and not event.waiters
