"""The workload of the kill sweep in one process, and a caller that insists: what was refused is asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kill_workload import WORKFLOWS, Mark, Plan, Workload, witness

from loom.store.errors import StoreUnavailable

T = TypeVar("T")


class Caller:
    """Starts the runs of a workload, sends to them and waits for them, whatever the store says in between.

    What was acknowledged is never asked for again, so that it shows if it is lost: as an error, or as a run that does
    not end.
    """

    def __init__(self, work: Workload, pause_s: float = 0.01) -> None:
        self.work = work
        self._pause_s = pause_s
        self.refusals: list[StoreUnavailable] = []
        self.started: set[str] = set()
        self.sent: set[str] = set()
        self.results: dict[str, Any] = {}

    async def see_to_all(self, runtime: Any) -> None:
        """Until every run has ended."""
        async with asyncio.TaskGroup() as group:
            for plan in self.work.plans:
                group.create_task(self.see_to(runtime, plan))

    async def see_to(self, runtime: Any, plan: Plan, *, reads: bool = True) -> None:
        """Until a run has ended. Its stream is read meanwhile, unless that would be too much."""
        if plan.run_id in self.started:
            handler = await self.insist(lambda: runtime.handler(plan.run_id))
        else:
            handler = await self.insist(lambda: runtime.start(plan.workflow, plan.inputs, run_id=plan.run_id))
            self.started.add(plan.run_id)
            witness.note("start", run=plan.run_id)
        reading = asyncio.create_task(self.insist(lambda: _read(handler) if reads else _result(handler)))
        try:
            for event in plan.events:
                if event.token not in self.sent:
                    await self.insist(lambda event=event: runtime.send_event(plan.run_id, event, event_id=event.token))
                    self.sent.add(event.token)
                    witness.note("event", run=plan.run_id, id=event.token)
            await reading
        finally:
            reading.cancel()
        self.results[plan.run_id] = await self.insist(lambda: _result(handler))
        witness.note("result", run=plan.run_id, result=self.results[plan.run_id])

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until the store does not refuse."""
        while True:
            try:
                return await call()
            except StoreUnavailable as error:
                self.refusals.append(error)
            await asyncio.sleep(self._pause_s)


async def _result(handler: Any) -> Any:
    return await handler


async def _read(handler: Any) -> None:
    """Whoever reads anew begins at the beginning."""
    seen = 0
    async for event in handler.stream_events(after=-1):
        if isinstance(event, Mark):
            witness.note("seen", run=handler.run_id, number=seen, text=event.text)
            seen += 1


def register_all(runtime: Any, work: Workload) -> None:
    """Work for the workflows of a workload."""
    for kind, name in work.workflow_names().items():
        runtime.register(WORKFLOWS[kind], name=name)
