"""Tasks that run bodies: one after the other, while one follows from the other.

A task of its own for each body costs as much as the rest of a short step: a task, a handle, a turn of the event loop
with a look at its sockets. When a body ends and lets its run go on at once, its task has nothing left to do. So that
task takes the next body that the run starts, in the same turn of the event loop.

For a body this makes no difference that it could rely on:

- Its context is a copy of its run's, as `create_task` would have made it. What an earlier body has set is not in it.
- `asyncio.current_task()` is the task that runs it, for as long as it runs. Earlier bodies of the same run, which have
  ended, may have had the same task. A task that was ever cancelled takes no further body.
- Other tasks get their turn: a task takes at most `MAX_BODIES`, and none after `MAX_TIME_S`.
"""

from __future__ import annotations

import asyncio
import types
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
    """A task that runs a body, and the bodies that follow from it."""

    __slots__ = ("_began_at", "_bodies", "_next", "_task")

    def __init__(self) -> None:
        self._bodies = 0
        self._began_at = 0.0
        self._next: tuple[StepExecution, Context] | None = None
        self._task: asyncio.Task[Any] | None = None

    def may_take(self, now: float) -> bool:
        """Return whether the task may run another body after the one that is about to end in it."""
        return (
            self._bodies < MAX_BODIES
            and now - self._began_at <= MAX_TIME_S
            # A cancellation that came too late for one body must not reach the next one.
            and self._task is not None
            and not self._task.cancelling()
        )

    def take(self, execution: StepExecution) -> None:
        """Run this body next, in a copy of the context that this is called in."""
        execution.task, execution.body_task = self._task, self
        self._next = execution, copy_context()

    async def run(self, execution: StepExecution) -> None:
        """Run a body, then each one that was taken while the body before it ended."""
        self._task, self._began_at = asyncio.current_task(), execution.host.now()
        self._bodies = 1
        try:
            await execution.work()
            while self._next is not None:
                (execution, context), self._next = self._next, None
                self._bodies += 1
                if execution.abandoned:
                    return  # as for a task that is cancelled before it has begun
                await _within(context, execution.work())
        except asyncio.CancelledError as error:
            if not execution.abandoned:
                raise
            # Nobody asks what became of it. Its task would hold the error, whose frames hold the run and the task. The
            # context of the task holds the execution.
            error.__traceback__ = execution.task = None
        finally:
            self._task = None


@types.coroutine
def _within(context: Context, body: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    """Advance a coroutine in its own context, as a task of its own would."""
    resume, value = body.send, None
    while True:
        try:
            awaited = context.run(resume, value)
        except StopIteration:
            return
        try:
            value, resume = (yield awaited), body.send
        except GeneratorExit:
            context.run(body.close)
            raise
        except BaseException as error:  # noqa: BLE001 - it is for the body
            value, resume = error, body.throw
