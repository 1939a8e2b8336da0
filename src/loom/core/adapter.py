"""The control loop's only way to the outside: protocols and a base for decorators.

A runtime supplies an `InternalRunAdapter` for each run. Decorators wrap one and change what they care about, as the
durable runtime does with `commit`, and as a program does with the option `decorate` of `loom.connect`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from loom.core.commands import CommandRunWorker
    from loom.core.records import Published
    from loom.core.run import Batch
    from loom.core.ticks import WorkflowTick


class TaskSet(Protocol):
    """What a control loop waits for: its workers' ticks, and a pull for ticks from outside."""

    pull: Callable[[], Awaitable[WorkflowTick]]
    """The outermost adapter's `wait_receive`."""

    def completed(self) -> list[WorkflowTick]:
        """Return the ticks that workers have caused since the last call, in order."""
        ...

    def on_completion(self, wake: Callable[[bool], None]) -> None:
        """Call `wake` when a worker has a tick. Its argument tells whether the run may go on within the call."""
        ...


class InternalRunAdapter(Protocol):
    """Everything that a run needs of its runtime.

    The order for every batch: `commit`, then `on_tick` for each tick, then the effects. If `commit` raises, nothing of
    the batch has happened outside, and the run must be dropped from memory. Whatever else an adapter raises ends the
    run in this process too, and reaches the callers that await it.

    A driver may have no task of its own, so its coroutines await futures only: what needs a task around it, such as a
    timeout, belongs into a task that resolves such a future.
    """

    @property
    def run_id(self) -> str:
        """The id of the run."""
        ...

    async def wait_receive(self) -> WorkflowTick:
        """Block until a tick arrives from outside."""
        ...

    async def wait_for_next_task(self, tasks: TaskSet, until: float | None) -> list[WorkflowTick]:
        """Block until there is a tick or the time `until` is reached; None means no time limit.

        Ticks of workers come before ticks from outside. An empty list means that the time was reached.
        """
        ...

    async def commit(self, batch: Batch) -> None:
        """Make a batch durable. Called once per flush, before anything of it happens outside."""
        ...

    def on_tick(self, tick: WorkflowTick) -> None:
        """Observe a committed tick."""
        ...

    def write_to_event_stream(self, cursor: int, event: Published) -> None:
        """Give an event to the stream's readers."""
        ...

    def get_now(self) -> float:
        """Return the time, in seconds since the epoch."""
        ...

    def send_event(self, tick: WorkflowTick) -> None:
        """Let a tick reach the run: from outside, or an event that a step sends.

        What a step sends has a `source`, the number of the effect. It is called in the thread of the body, before the
        body goes on; what it raises is raised in the body. A tick that is passed on with its source is applied once,
        however often that happens, but not after the end of its execution.
        """
        ...

    def finalize_step(self, command: CommandRunWorker) -> None:
        """Note that an execution is over and that its result was fed to the run."""
        ...

    def close(self) -> None:
        """Wake everything that is blocked here: the run is over or leaves memory."""
        ...


class RunAdapterDecorator:
    """An adapter around another one. Subclasses override what they change."""

    def __init__(self, inner: InternalRunAdapter) -> None:
        self.inner = inner

    @property
    def run_id(self) -> str:
        """See `InternalRunAdapter`."""
        return self.inner.run_id

    async def wait_receive(self) -> WorkflowTick:
        """See `InternalRunAdapter`."""
        return await self.inner.wait_receive()

    async def wait_for_next_task(self, tasks: TaskSet, until: float | None) -> list[WorkflowTick]:
        """See `InternalRunAdapter`."""
        return await self.inner.wait_for_next_task(tasks, until)

    async def commit(self, batch: Batch) -> None:
        """See `InternalRunAdapter`."""
        await self.inner.commit(batch)

    def on_tick(self, tick: WorkflowTick) -> None:
        """See `InternalRunAdapter`."""
        self.inner.on_tick(tick)

    def write_to_event_stream(self, cursor: int, event: Published) -> None:
        """See `InternalRunAdapter`."""
        self.inner.write_to_event_stream(cursor, event)

    def get_now(self) -> float:
        """See `InternalRunAdapter`."""
        return self.inner.get_now()

    def send_event(self, tick: WorkflowTick) -> None:
        """See `InternalRunAdapter`."""
        self.inner.send_event(tick)

    def finalize_step(self, command: CommandRunWorker) -> None:
        """See `InternalRunAdapter`."""
        self.inner.finalize_step(command)

    def close(self) -> None:
        """See `InternalRunAdapter`."""
        self.inner.close()


RunDecorator: TypeAlias = Callable[[InternalRunAdapter], InternalRunAdapter]
"""Wraps the adapter of each run, before the run begins or goes on in this process."""
