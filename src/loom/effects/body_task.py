"""Tasks that run bodies: one after the other, while one follows from the other.

A task of its own for each body costs as much as the rest of a short step: a task, a handle, a turn of the event loop
with a look at its sockets. So a task takes more than one:

- Bodies that start together share a task, one after the other. As soon as one of them awaits something, the ones after
  it get tasks of their own, which begin in the next turn of the event loop.
- When the last body of a run ends and lets its run go on at once, its task takes the bodies that the run starts then,
  in the same turn of the event loop.

For a body this makes no difference that it could rely on:

- Its context is a copy of its run's, as `create_task` would have made it. What an earlier body has set is not in it.
- `asyncio.current_task()` is the task that runs it, for as long as it runs. Earlier bodies of the same run, which have
  ended, may have had the same task. A task that was ever cancelled takes no further body.
- Other tasks get their turn: a task takes at most `MAX_BODIES`, and none after `MAX_TIME_S`.
- A body waits for no other one: what runs before it in its task would have held up the event loop as well.
"""

from __future__ import annotations

import asyncio
import types
from collections import deque
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from loom.effects.execution import StepExecution

MAX_BODIES = 16
"""Bodies that one task runs at most."""
MAX_TIME_S = 0.005
"""Seconds, on the clock of the run, after which a task takes no further body."""


class BodyTask:
    """A task that runs a body, the ones that have started with it, and those that follow from them."""

    __slots__ = ("_began_at", "_bodies", "_is_open", "_queue", "_task")

    def __init__(self) -> None:
        self._bodies = 0
        self._began_at = 0.0
        self._is_open = True
        """Whether it takes bodies: before it has begun, and while its last body ends."""
        self._queue: deque[tuple[StepExecution, Context]] = deque()
        self._task: asyncio.Task[Any] | None = None

    @property
    def has_more(self) -> bool:
        """Whether another body begins in this turn of the event loop when the one that runs has ended."""
        return bool(self._queue)

    def begin(self, execution: StepExecution, context: Context | None = None) -> None:
        """Run a body first, in this context or in a copy of the one that this is called in."""
        self._bodies += 1
        execution.body_task = self
        execution.task = asyncio.get_running_loop().create_task(self.run(execution), context=context)

    def may_take(self, now: float) -> bool:
        """Return whether the task may run other bodies after the one that is about to end in it."""
        self._is_open = self._bodies < MAX_BODIES and self._has_time(now)
        return self._is_open

    def _has_time(self, now: float) -> bool:
        # A cancellation that came too late for one body must not reach the next one.
        return now - self._began_at <= MAX_TIME_S and self._task is not None and not self._task.cancelling()

    def take(self, execution: StepExecution) -> bool:
        """Run this body later, in a copy of the context that this is called in. False if the task takes no more."""
        if not self._is_open or self._bodies >= MAX_BODIES:
            return False
        self._bodies += 1
        self._queue.append((execution, copy_context()))
        return True

    async def run(self, execution: StepExecution) -> None:
        """Run a body, then each one that was taken, while there is time."""
        self._task, self._is_open, queue = asyncio.current_task(), False, self._queue
        try:
            self._began_at = execution.host.now()
            if queue:
                await _within(copy_context(), execution.work(), self)
            else:
                await execution.work()
            while queue and (self._is_open or self._has_time(execution.host.now())):
                self._is_open = False
                execution, context = queue.popleft()
                if not execution.abandoned:  # else as for a task that is cancelled before it has begun
                    execution.task, execution.body_task = self._task, self
                    await _within(context, execution.work(), self)
        except GeneratorExit:
            queue.clear()  # the event loop is gone
            raise
        except asyncio.CancelledError as error:
            if not execution.abandoned:
                raise
            # Nobody asks what became of it. Its task would hold the error, whose frames hold the run and the task. The
            # context of the task holds the execution.
            error.__traceback__ = execution.task = None
        except Exception as error:  # noqa: BLE001 - the engine's own, or of a decorator: no body raises here
            execution.host.break_off(error)
        finally:
            self._task = None
            self.spread()

    def spread(self) -> None:
        """Give each body that is left a task of its own, to begin in the next turn of the event loop."""
        left = list(self._queue)
        self._queue.clear()
        for execution, context in left:
            if not (execution.abandoned or execution.host.loop_ends):
                BodyTask().begin(execution, context)
        if left:
            left[0][0].host.tell()


@types.coroutine
def _within(context: Context, body: Coroutine[Any, Any, None], task: BodyTask) -> Generator[Any, Any, None]:
    """Advance a coroutine in its own context, as a task of its own would. While it waits, no other body does."""
    resume, value = body.send, None
    while True:
        try:
            awaited = context.run(resume, value)
        except StopIteration:
            return
        if task.has_more:
            task.spread()
        try:
            value, resume = (yield awaited), body.send
        except GeneratorExit:
            context.run(body.close)
            raise
        except BaseException as error:  # noqa: BLE001 - it is for the body
            value, resume = error, body.throw
