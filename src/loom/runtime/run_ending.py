"""How a run in memory has ended, as the caller who awaits it is told; and what begins after its work was stopped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from loom.core.commands import CommandCompleteRun, CommandFailWorkflow
from loom.effects.event_codec import LIVE_CODEC, exception_of
from loom.steps.errors import WorkflowCancelledByUser, WorkflowRuntimeError, WorkflowTimeoutError, described

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom.core.commands import CommandRunWorker, TerminalCommand
    from loom.effects.event_codec import EventCodec
    from loom.effects.execution import StepExecution
    from loom.steps.events import StopEvent

_ENDS_THE_CALLER = (asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit)
"""Raised as they are, they would cancel the caller that awaits a run, or end the caller's process."""


def ending_of(command: TerminalCommand, codec: EventCodec = LIVE_CODEC) -> StopEvent | BaseException:
    """The stop event or exception that a caller who awaits a run gets."""
    if isinstance(command, CommandCompleteRun):
        result: Any = codec.event(command.result)
        return result  # type: ignore[no-any-return]
    if isinstance(command, CommandFailWorkflow):
        body = command.failure.body
        if isinstance(body, _ENDS_THE_CALLER):
            did = "was cancelled from within" if isinstance(body, asyncio.CancelledError) else "asked to exit"
            error = WorkflowRuntimeError(f"Step {command.step} {did}: {described(body)}")
            error.__cause__ = body
            return error
        return body if isinstance(body, BaseException) else exception_of(command.failure)
    if command.reason == "cancelled":
        return WorkflowCancelledByUser()
    if command.reason == "timed_out":
        return WorkflowTimeoutError(command.message)
    return WorkflowRuntimeError(command.message)


GRACE_S = 0.5
"""Seconds that bodies may take to end after they were cancelled."""


def abandoned(executions: dict[int, StepExecution]) -> list[asyncio.Task[Any]]:
    """Cancel the bodies at work and forget them. Return the tasks that have yet to end."""
    tasks = []
    for execution in list(executions.values()):
        execution.abandoned = True
        if execution.task is not None and not execution.task.done():
            execution.task.cancel()
            tasks.append(execution.task)
    executions.clear()
    return tasks


class LateBodies:
    """Bodies that begin when the stopped ones have ended, or after a little grace."""

    __slots__ = ("_begin", "_task", "commands")

    def __init__(self, stopped: Sequence[asyncio.Task[Any]], begin: Callable[[CommandRunWorker], None]) -> None:
        self.commands: list[CommandRunWorker] = []
        self._begin = begin
        self._task = asyncio.get_running_loop().create_task(self._wait(stopped))

    async def _wait(self, stopped: Sequence[asyncio.Task[Any]]) -> None:
        await asyncio.wait(stopped, timeout=GRACE_S)
        for command in self.commands:
            self._begin(command)

    def drop(self) -> None:
        """Begin none of them: the run leaves its process."""
        self._task.cancel()
