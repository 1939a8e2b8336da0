"""The handler of a run: await its result, read its stream, send it events, cancel it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, cast, overload

from typing_extensions import TypeVar, override

from loom.steps.errors import WorkflowCancelledByUser, WorkflowRuntimeError, warn_once
from loom.steps.events import StopEvent, WorkflowCancelledEvent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from loom.steps.context import Context
    from loom.steps.events import Event
    from loom.steps.ports import RunPort


StopT = TypeVar("StopT", bound=StopEvent, default=Any)


class WorkflowHandler(Generic[StopT]):
    """A run from outside. `await handler` gives its result or raises what it failed with.

    The parameter is the class of the event that ends the run. A result of a plain `StopEvent` may be of any type.
    """

    def __init__(self, ctx: Context[Any], run: RunPort) -> None:
        self.ctx = ctx
        self.run_id = run.run_id
        self._run = run
        self._cursor = -1
        self._drained = False

    @overload
    def __await__(self: WorkflowHandler[StopEvent]) -> Generator[Any, Any, Any]: ...
    @overload
    def __await__(self) -> Generator[Any, Any, StopT]: ...
    def __await__(self) -> Generator[Any, Any, Any]:
        return self._result().__await__()

    async def _result(self) -> Any:
        return plain_result(await self._run.outcome())

    @override
    def __str__(self) -> str:
        name = self._run.definition.name
        return f"WorkflowHandler(workflow={name}, run_id={self.run_id}, result={self.get_stop_event()})"

    @override
    def __repr__(self) -> str:
        name = self._run.definition.name
        return f"WorkflowHandler(workflow={name!r}, run_id={self.run_id!r}, status={self._run.status!r})"

    async def stop_event_result(self) -> StopT:
        """Return the event that the run ended with, whatever its class."""
        return cast("StopT", await self._run.outcome())

    def get_stop_event(self) -> StopEvent | None:
        """The event that the run ended with; None while it goes on, and if it failed: awaiting tells with what."""
        ending = self._run.ending()
        if isinstance(ending, WorkflowCancelledByUser):
            return WorkflowCancelledEvent()
        return ending if isinstance(ending, StopEvent) else None

    def is_done(self) -> bool:
        """Return whether the run has ended, in whatever way."""
        return self._run.is_done

    async def send_event(self, event: Event, step: str | None = None, *, waiter_id: str | None = None) -> None:
        """Send an event into the run; returns once it cannot be lost any more.

        `step` aims it at one step, `waiter_id` at the waiters of one id.
        """
        await self._run.send_durably(event, step, waiter_id)

    async def cancel_run(self, *, timeout: float | None = 5.0, force: bool = False) -> None:  # noqa: ASYNC109 - part of the contract
        """Cancel the run and wait for its end. Raises nothing; `ctx.to_dict()` can be resumed.

        A run with an `@on_cancel` step ends when that is done, which may take longer than `timeout` seconds. With
        `force` it ends at once.
        """
        await self._run.cancel(timeout, force)

    async def stream_events(
        self, expose_internal: bool = False, *, after: int | None = None
    ) -> AsyncGenerator[Event, None]:
        """Return the run's events as they come, until it ends.

        Without `after` there is one reading per handler: leaving it early and calling again goes on from there. With
        `after` any number of readers can read from any cursor, -1 for the beginning.
        """
        if after is not None:
            async for _, event in self._run.read_stream(after, expose_internal):
                yield event
            return
        if self._drained:
            raise WorkflowRuntimeError("All the streamed events have already been consumed.")
        async for cursor, event in self._run.read_stream(self._cursor, expose_internal):
            self._cursor = cursor
            self._drained = isinstance(event, StopEvent)
            yield event
        self._drained = True

    async def stream_with_cursors(
        self, expose_internal: bool = False, *, after: int = -1
    ) -> AsyncGenerator[tuple[int, Event], None]:
        """The run's events with their cursors as they come, until it ends; any number of readers, from any cursor.

        A `StreamSupersededEvent` names the cursors of events that do not count any more.
        """
        async for cursor, event in self._run.read_stream(after, expose_internal):
            yield cursor, event

    def done(self) -> bool:
        """Return whether the run has ended. Deprecated: `is_done()`."""
        warn_once("WorkflowHandler.done() is deprecated: use is_done().")
        return self.is_done()

    def cancelled(self) -> bool:
        """Return whether the run was cancelled. Deprecated: look at the exception that awaiting the handler raises."""
        warn_once("WorkflowHandler.cancelled() is deprecated: await the handler and catch WorkflowCancelledByUser.")
        outcome = self._run.state.outcome
        return outcome is not None and outcome.status == "cancelled"

    def exception(self) -> BaseException | None:
        """Return what the run failed with. Deprecated: await the handler."""
        warn_once("WorkflowHandler.exception() is deprecated: await the handler and catch what it raises.")
        if not self._run.is_done:
            from asyncio import InvalidStateError

            raise InvalidStateError("Exception is not set: the run goes on.")
        ending = self._run.ending()
        return ending if isinstance(ending, BaseException) else None

    def cancel(self) -> bool:
        """Ask the run to stop, without waiting. Deprecated: `await cancel_run()`."""
        warn_once("WorkflowHandler.cancel() is deprecated: use await cancel_run().")
        if self._run.is_done:
            return False
        self._run.request_cancel()
        return True


def plain_result(event: StopEvent) -> Any:
    """Return what awaiting a run gives: the result of a plain `StopEvent`, else the event itself."""
    return event.result if type(event) is StopEvent else event
