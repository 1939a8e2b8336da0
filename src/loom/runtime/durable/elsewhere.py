"""The workflow behind the handlers of a process that does not have its code. May import loom.steps."""

from __future__ import annotations

from loom.steps.decorators import step
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import StartEvent, StopEvent  # noqa: TC001 - read from the annotations at run time
from loom.steps.workflow import Workflow


class CodeElsewhere(Workflow):
    """Stands for a workflow by its name: its runs can be awaited and told things, but not be worked on."""

    @step
    async def not_here(self, _event: StartEvent) -> StopEvent:
        """A workflow has a step; this one is never registered."""
        raise WorkflowRuntimeError(f"The code of {self.workflow_name} is not at hand.")
