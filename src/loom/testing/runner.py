"""Run a workflow in a test, and collect everything that it did."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, overload

from typing_extensions import TypeVar

from loom.steps.context import Context
from loom.steps.events import Event, StartEvent, StopEvent

if TYPE_CHECKING:
    from collections.abc import Collection

    from loom.steps.workflow import Workflow


StartT = TypeVar("StartT", bound=StartEvent, default=Any)
StopT = TypeVar("StopT", bound=StopEvent, default=Any)
ResultT = TypeVar("ResultT", default=Any)


@dataclass
class WorkflowTestResult(Generic[ResultT]):
    """A finished run: the events of its stream in order, their number by type, its result, its context, and times."""

    collected: list[Event]
    event_types: dict[type[Event], int]
    result: ResultT
    ctx: Context[Any]
    times: list[float] = field(default_factory=list)
    """Seconds from the start of the run to each collected event: exact under the virtual clock."""


class WorkflowTestRunner(Generic[StartT, StopT]):
    """Runs a workflow to its end and collects what it puts on its stream."""

    def __init__(self, workflow: Workflow[StartT, StopT]) -> None:
        self._workflow: Workflow[Any, Any] = workflow

    @overload
    async def run(
        self: WorkflowTestRunner[StartT, StopEvent],
        start_event: StartT | None = None,
        ctx: Context[Any] | None = None,
        expose_internal: bool = True,
        exclude_events: Collection[type[Event]] | None = None,
    ) -> WorkflowTestResult[Any]: ...
    @overload
    async def run(
        self,
        start_event: StartT | None = None,
        ctx: Context[Any] | None = None,
        expose_internal: bool = True,
        exclude_events: Collection[type[Event]] | None = None,
    ) -> WorkflowTestResult[StopT]: ...
    async def run(
        self,
        start_event: StartT | None = None,
        ctx: Context[Any] | None = None,
        expose_internal: bool = True,
        exclude_events: Collection[type[Event]] | None = None,
    ) -> WorkflowTestResult[Any]:
        """Run the workflow from `start_event`, by default a plain `StartEvent()`; raises what the run fails with.

        `exclude_events` leaves out events of exactly these types. `expose_internal=False` leaves out the engine's
        reports about itself.
        """
        excluded = frozenset(exclude_events or ())
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        handler = self._workflow.run(ctx=ctx, start_event=start_event if start_event is not None else StartEvent())
        timed = [
            (event, loop.time() - began_at)
            async for event in handler.stream_events(expose_internal=expose_internal)
            if type(event) not in excluded
        ]
        result = await handler
        collected = [event for event, _at in timed]
        times = [at for _event, at in timed]
        return WorkflowTestResult(collected, dict(Counter(map(type, collected))), result, handler.ctx, times)
