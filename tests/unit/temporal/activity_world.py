"""Activities and the run that they work for, in one process: the real instance, the real bodies, and no server.

Signals of activities are activations of the instance, queries are asked of it, and what it schedules is performed.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hand_made import HandMade, argument_of, code_of, inbox_signal, signal, timer_fired
from temporalio.common import RawValue
from temporalio.testing import ActivityEnvironment

import loom
from loom.core.ticks import WorkflowTick
from loom.runtime.durable.registration import Registration
from loom.temporal.activity.step_activity import StepActivity
from loom.temporal.bridge import activations
from loom.temporal.payloads import ActivityReport, payload_of, value_of
from loom.temporal.rpc import RunGone
from loom.temporal.settings import ActivitySettings

QUICK = ActivitySettings(flush_after_s=0.01, settle_s=0.02, grace_s=0.2, lock_poll_s=0.001, lock_poll_max_s=0.005)


class World:
    """A run and its worker. It is also the link between the two."""

    def __init__(
        self,
        workflow: loom.Workflow | Registration,
        inputs: dict[str, Any] | None = None,
        settings: ActivitySettings = QUICK,
    ) -> None:
        code = workflow if isinstance(workflow, Registration) else code_of(workflow)
        self.codes = {code.name: code}
        self.made = HandMade(code, argument_of(code, inputs))
        self.settings = settings
        self.activity = self.worker()
        self.scheduled: list[Any] = []
        """What the run has asked for and nobody has begun."""
        self.timers: list[Any] = []
        self.children: list[Any] = []
        self.signals: list[tuple[str, Any]] = []
        self.reports: list[ActivityReport] = []
        self.end: Any = None
        self.on_signal: Callable[[str, Any], None] = lambda name, value: None
        self.is_open = True

    # -- the link -----------------------------------------------------------------------------------------------------

    async def signal(self, name: str, value: Any) -> None:
        """A signal arrives at once."""
        if not self.is_open:
            raise RunGone("Run run-1 cannot be told: it has closed.")
        self.on_signal(name, value)
        self.signals.append((name, value))
        self.take(self.made.activate(signal(name, value)))

    async def query(self, name: str, value: Any, expected: Any) -> Any:
        """A query is answered by the run."""
        return self.made.answer(name, expected, value)

    # -- the run ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """The run begins."""
        self.take(self.made.start())

    def take(self, commands: list[Any]) -> None:
        """What the run wants."""
        for command in commands:
            kind = command.WhichOneof("variant")
            if kind == "schedule_activity":
                self.scheduled.append(command)
            elif kind == "start_timer":
                self.timers.append(command)
            elif kind == "start_child_workflow_execution":
                self.children.append(command.start_child_workflow_execution)
            elif kind in ("complete_workflow_execution", "fail_workflow_execution"):
                self.end, self.is_open = command, False

    def send(self, event: loom.Event) -> None:
        """An event comes from outside."""
        self.take(self.made.activate(self.made.event(event)))

    def tell(self, tick: WorkflowTick) -> None:
        """A letter comes."""
        self.take(self.made.activate(inbox_signal(tick)))

    def fire(self) -> None:
        """The oldest timer is due."""
        self.made.now += 3600
        self.take(self.made.activate(timer_fired(self.timers.pop(0))))

    # -- the worker ---------------------------------------------------------------------------------------------------

    def worker(self) -> StepActivity:
        """Another worker."""
        return StepActivity(self.codes, lambda info: self, self.settings)

    async def perform(self, command: Any = None, **given: Any) -> None:
        """Perform an activity, the oldest that is scheduled, and tell the run its result."""
        if command is None:
            command = self.scheduled.pop(0)
        report = await self.result_of(command, **given)
        self.reports.append(report)
        job = activations.WorkflowActivationJob()
        job.resolve_activity.seq = command.schedule_activity.seq
        job.resolve_activity.result.completed.result.CopyFrom(payload_of(report))
        self.take(self.made.activate(job))

    async def result_of(
        self,
        command: Any,
        *,
        attempt: int = 1,
        env: ActivityEnvironment | None = None,
        worker: StepActivity | None = None,
    ) -> ActivityReport:
        """What an activity returns."""
        env = env if env is not None else ActivityEnvironment()
        wanted = command.schedule_activity
        env.info = dataclasses.replace(
            env.info, activity_type=wanted.activity_type, attempt=attempt, heartbeat_timeout=timedelta(seconds=0.03)
        )
        result = await env.run((worker or self.activity).perform, [RawValue(wanted.arguments[0])])
        return value_of(result.payload, ActivityReport)

    async def settle(self) -> None:
        """Perform all that is scheduled, and what follows from it."""
        while self.scheduled:
            batch, self.scheduled = self.scheduled, []
            await asyncio.gather(*[self.perform(command) for command in batch])

    # -- what came of it ----------------------------------------------------------------------------------------------

    def told(self, *kinds: type[WorkflowTick]) -> list[WorkflowTick]:
        """The ticks of these kinds that activities have told, by signals or with results."""
        ticks = [tick for _, value in self.signals for tick in getattr(value, "ticks", ())]
        ticks += [tick for report in self.reports for tick in report.ticks]
        return [tick for tick in ticks if isinstance(tick, kinds)]

    @property
    def outcome(self) -> Any:
        """How the run has ended."""
        return self.made.host.core.state.outcome

    @property
    def result(self) -> Any:
        """What a run that has completed has as its result."""
        assert self.outcome is not None, "the run goes on"
        assert self.outcome.status == "completed", self.outcome
        return self.made.code.codec.event(self.outcome.event).result

    @property
    def published(self) -> list[Any]:
        """The events of authors on the run's stream."""
        found = []
        for part in self.made.host.journal._parts:
            found += [event for event in part[3] if hasattr(event, "kind") and hasattr(event, "body")]
        return [self.made.code.codec.event(record) for record in found]
