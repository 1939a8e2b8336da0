"""What an execution needs: `Binding`, of what it runs; `Host`, of the run that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from loom.core.records import EventRecord
    from loom.core.state import WorkItem
    from loom.core.ticks import TickRefuseEvent, TickStepResult, WorkflowTick
    from loom.effects.event_codec import EventCodec
    from loom.effects.execution import StepExecution
    from loom.steps.events import Event, StartEvent
    from loom.steps.ports import Definition
    from loom.steps.resources import RunResources
    from loom.steps.workflow import Workflow


class Binding(Protocol):
    """Work that can be called."""

    @property
    def event_name(self) -> str:
        """The argument that holds what to work on."""
        ...

    @property
    def context_name(self) -> str | None:
        """The argument that wants a context, if one does."""
        ...

    @property
    def function(self) -> Callable[..., Any]:
        """The function that people know the work by."""
        ...

    @property
    def retry_policy(self) -> Any:
        """The policy that decides whether a failure is tried again; None if the planner decides."""
        ...

    def arguments(self, item: WorkItem) -> dict[str, Any]:
        """The events to work on, by argument."""
        ...

    def call(self, arguments: dict[str, Any]) -> Awaitable[Any]:
        """Do the work."""
        ...

    def classify(self, result: Any) -> tuple[tuple[EventRecord, ...], bool]:
        """The result as records, and whether it opens a stream."""
        ...


class Host(Protocol):
    """The run that an execution belongs to."""

    run_id: str
    now: Callable[[], float]
    """The clock of the run: seconds since 1970."""
    resources: RunResources | None
    """What its bodies have injected and is kept while the run is in memory; None until something is."""

    @property
    def definition(self) -> Definition:
        """The code that it runs."""
        ...

    @property
    def codec(self) -> EventCodec:
        """The codec between what bodies write and what the run keeps."""
        ...

    @property
    def workflow_name(self) -> str:
        """The name of the run's workflow, for logs."""
        ...

    @property
    def loop_ends(self) -> bool:
        """Whether everything on the event loop is being cancelled, the bodies too."""
        ...

    @property
    def max_unsaved(self) -> int | None:
        """Characters that bodies may report before the run has taken them in; None: any number."""
        ...

    def tell(self) -> None:
        """Let the run go on with what its bodies have told, if it does not know of it."""
        ...

    def break_off(self, error: Exception) -> None:
        """End the run in this process: a body cannot be run, for no fault of its own."""
        ...

    def make_room(self, weight: int, *, waits: bool = True) -> None:
        """Refuse what would be more than `max_unsaved`. In a thread, wait while much is unsaved."""
        ...

    def report(self, tick: WorkflowTick) -> None:
        """Tell the run what a body did; safe from any thread."""
        ...

    def check_target(self, event: Event, step: str | None) -> None:
        """Refuse an event for a step that does not exist or does not take it."""
        ...

    def start_of(
        self, workflow: Workflow | str, inputs: dict[str, Any], start_event: StartEvent | None
    ) -> tuple[str, Any]:
        """The name of a child run's workflow, and what the child begins with."""
        ...

    def make_context(self, execution: StepExecution) -> Any:
        """The context that a body asks for."""
        ...

    def lease(self) -> Awaitable[None] | None:
        """Something to await before work that must not happen twice; None if the run is surely this process's own.

        If another process has recovered the run, it never completes, and the body is cancelled.
        """
        ...

    def admission(self) -> Awaitable[None] | None:
        """Something to await before a child run starts; None if it may start at once. It may raise `ChildRunFailed`."""
        ...

    def executed(self, execution: StepExecution, result: TickStepResult | TickRefuseEvent) -> None:
        """Take note that an execution is over, or that its event does not fit its class."""
        ...
