"""The bodies of a run's steps: started and stopped for its control loop, and their way back to it.

May import loom.core, loom.effects and loom.steps.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

from loom.effects.convert import LIVE
from loom.effects.execution import StepExecution
from loom.runtime.logs import about
from loom.steps.context import Context
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import Event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.core.adapter import InternalRunAdapter
    from loom.core.commands import CommandResumeWorker, CommandRunWorker
    from loom.core.ticks import TickRefuseEvent, TickStepResult, WorkflowTick
    from loom.effects.body import Body
    from loom.effects.convert import Conversion
    from loom.runtime.guard import Guard
    from loom.steps.events import StartEvent
    from loom.steps.workflow import Workflow

GRACE_S = 0.5
"""How long bodies may take to end when their run has."""

_log = logging.getLogger("loom.run")


class RunBodies:
    """The part of a run that its control loop knows as `Workers`, and its bodies as their `Host`."""

    __slots__ = (
        "_bindings", "_executions", "_fault", "_lane", "_outer", "_thread", "_wake", "convert", "guard", "loop", "now",
        "pull", "run_id", "workflow",
    )  # fmt: skip

    def __init__(
        self,
        workflow: Workflow,
        run_id: str,
        outer: InternalRunAdapter,
        bindings: dict[str, Body],
        guard: Guard,
    ) -> None:
        self.workflow = workflow
        self.run_id = run_id
        self.convert: Conversion = LIVE
        """How what bodies write becomes what the run keeps."""
        self.pull: Callable[[], Awaitable[WorkflowTick]]
        self.loop = asyncio.get_running_loop()
        self.now = outer.get_now
        self._thread = threading.get_ident()
        self._outer = outer
        self._bindings = bindings
        self.guard = guard
        self._executions: dict[int, StepExecution] = {}
        self._lane: list[WorkflowTick] = []
        self._wake: Callable[[bool], None] | None = None
        self._fault: Exception | None = None

    @property
    def workflow_name(self) -> str:
        """What the run's workflow is called, for logs."""
        return self.workflow.workflow_name

    @property
    def loop_ends(self) -> bool:
        """Whether everything on the event loop is being cancelled."""
        return self.guard.loop_ends

    def on_loop(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call something where the run lives: here, or in the thread of its event loop."""
        if threading.get_ident() == self._thread:
            call(*arguments)
        else:
            self.loop.call_soon_threadsafe(call, *arguments)

    # -- bodies: what the control loop asks ---------------------------------------------------------------------------

    def completed(self) -> list[WorkflowTick]:
        """What bodies did since the last call."""
        if self._fault is not None:
            raise self._fault
        # The list itself stays: another thread may be adding to it.
        ticks = self._lane[:]
        del self._lane[: len(ticks)]
        return ticks

    def on_completion(self, wake: Callable[[bool], None]) -> None:
        """Call `wake` when a body has something to tell, with whether it has time to let the run go on at once."""
        self._wake = wake

    def start(self, command: CommandRunWorker) -> None:
        """Run a body. On an event loop that ends none begins any more: nobody would wait for it."""
        if self.guard.loop_ends:
            return
        execution = StepExecution(self, self._bindings[command.step], command)
        self._executions[command.seq] = execution
        execution.task = self.loop.create_task(execution.work())

    def resume(self, command: CommandResumeWorker) -> None:
        """Let a suspended body go on."""
        execution = self._executions.get(command.seq)
        if execution is not None:
            execution.answer(command)

    def warn(self, message: str) -> None:
        """Tell the operator."""
        _log.warning("Run %s: %s", self.run_id, message, extra=about(self.run_id))

    def at_work(self) -> list[tuple[float, str]]:
        """Name the steps whose bodies are at work: begun, not ended, and not waiting; each with when it began."""
        return [
            (execution.at_work_since, f"step '{execution.command.step}' of run {self.run_id}")
            for execution in self._executions.values()
            if not execution.is_over and not execution.is_waiting
        ]

    async def stop(self) -> None:
        """Cancel the bodies that are left, with a little grace."""
        tasks = []
        for execution in list(self._executions.values()):
            execution.abandoned = True
            if execution.task is not None and not execution.task.done():
                execution.task.cancel()
                tasks.append(execution.task)
        self._executions.clear()
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE_S)

    # -- bodies: what they ask ----------------------------------------------------------------------------------------

    @property
    def max_unsaved(self) -> int | None:
        """A run that is only in memory has all of it there anyway."""
        return None

    def make_room(self, weight: int, *, waits: bool = True) -> None:
        """See `Host`."""

    def report(self, tick: WorkflowTick) -> None:
        """A body did something; safe from any thread."""
        self._lane.append(tick)
        if self._wake is not None:
            self.on_loop(self._wake, False)

    def check_target(self, event: Event, step: str | None) -> None:
        """Refuse an event for a step that does not exist or does not take it."""
        if not isinstance(event, Event):
            raise WorkflowRuntimeError(f"Only events can be sent, not {type(event).__name__}.")
        self.workflow._check_target(event, step)

    def make_context(self, execution: StepExecution) -> Context[Any]:
        """The context that a body asks for."""
        return Context._inside(self.workflow, execution)

    def lease(self) -> Awaitable[None] | None:
        """A run in memory has no other owner."""
        return None

    def admission(self) -> Awaitable[None] | None:
        """Only nesting bounds the children of a run in memory."""
        return None

    def start_of(
        self, workflow: Workflow | str, inputs: dict[str, Any], start_event: StartEvent | None
    ) -> tuple[str, Any]:
        """The name of a child's workflow, and what the child begins with."""
        if isinstance(workflow, str):
            raise WorkflowRuntimeError(
                f"A run in memory knows no workflow {workflow!r}: give run_child() the workflow itself, or register it "
                "with a runtime from loom.connect()."
            )
        return workflow.workflow_name, (workflow, workflow._start_event(start_event, inputs))

    def executed(self, execution: StepExecution, result: TickStepResult | TickRefuseEvent) -> None:
        """A body has ended. What an abandoned one has to say is of no interest any more."""
        self._executions.pop(execution.command.seq, None)
        if execution.abandoned:
            self._outer.finalize_step(execution.command)
            return
        self._lane.append(result)
        try:
            self._outer.finalize_step(execution.command)
        except Exception as error:  # noqa: BLE001 - it is the run's business: its control loop raises it
            self._fault = error
        if self._wake is not None:
            # The last body has nothing left to do but to let the run go on. Several end in one turn of the event loop,
            # and are told together.
            self._wake(not self._executions and getattr(result, "failure", None) is None)
