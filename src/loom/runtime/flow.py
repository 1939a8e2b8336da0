"""A flow as its users and the runtimes see it: a workflow whose code is a document.

May import loom.core, loom.effects, loom.flows and loom.steps.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from loom.effects.actions.plain import NotPlainData, plain
from loom.effects.flow_convert import FlowStartEvent
from loom.flows.checks import body_problems, parameter_problems
from loom.flows.document import document_text
from loom.flows.plain import plain_value
from loom.flows.planner import flow_config
from loom.steps.decorators import step
from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import StartEvent, StopEvent  # noqa: TC001 - read from the annotations at run time
from loom.steps.loop_thread import run_to_end
from loom.steps.workflow import Workflow

if TYPE_CHECKING:
    from loom.core.config import BrokerConfig
    from loom.effects.flow_result import FlowResult
    from loom.flows.diagnostics import Problem
    from loom.flows.document import Document
    from loom.flows.limits import Limits
    from loom.flows.program import Program
    from loom.steps.context import Context
    from loom.steps.events import Event
    from loom.steps.handler import WorkflowHandler
    from loom.steps.ports import RuntimePort


class Flow(Workflow):
    """A declarative workflow, made by `loom.load`. It runs where Python workflows run, and gives the same handlers."""

    def __init__(
        self,
        program: Program,
        document: Document,
        limits: Limits,
        warnings: list[Problem],
        *,
        runtime: RuntimePort | None = None,
    ) -> None:
        super().__init__(timeout=None, disable_validation=True, workflow_name=program.name, runtime=runtime)
        self.program = program
        self.warnings = warnings
        """What `loom.load` had to say about the document, short of refusing it."""
        self._text = document_text(document, limits)

    @step
    async def _interpreted(self, _event: StartEvent) -> StopEvent:
        """A workflow has steps; those of a flow are in its document."""
        raise WorkflowRuntimeError(f"The flow {self.name!r} has no steps in Python.")

    @property
    def name(self) -> str:
        """The name that its runs are known by, unless it is registered under another one."""
        return self.program.name

    @property
    def digest(self) -> str:
        """Names this version of the document: the same text and limits have the same digest everywhere."""
        return self.program.digest

    @property
    def document(self) -> str:
        """The text that is stored with its runs."""
        return self._text

    @override
    def run(  # type: ignore[override]  # a flow begins with other things than a workflow in Python
        self,
        body: Any = None,
        *,
        parameters: dict[str, Any] | None = None,
        variables: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        run_id: str | None = None,
        start_event: StartEvent | None = None,
        ctx: Context[Any] | None = None,
    ) -> WorkflowHandler:
        """Begin a run. `body` is the trigger's body; `variables` are set before the first action runs.

        The handler gives a `FlowResult`. Needs a running event loop.
        """
        given = {"body": body, "parameters": parameters, "variables": variables, "headers": headers}
        event = start_event or self._start_event(
            None, {key: value for key, value in given.items() if value is not None}
        )
        return super().run(ctx, event, run_id=run_id)

    @override
    def run_sync(  # type: ignore[override]  # as above
        self,
        body: Any = None,
        *,
        parameters: dict[str, Any] | None = None,
        variables: dict[str, Any] | None = None,
        headers: dict[str, Any] | None = None,
        run_id: str | None = None,
        start_event: StartEvent | None = None,
        ctx: Context[Any] | None = None,
    ) -> FlowResult:
        """Run to the end and return the result, for code that is not asynchronous. Takes what `run` takes."""
        begin = partial(self.run, body, parameters=parameters, variables=variables, headers=headers)
        result: FlowResult = run_to_end(partial(begin, run_id=run_id, start_event=start_event, ctx=ctx))
        return result

    @override
    def _start_event(self, start_event: StartEvent | None, kwargs: dict[str, Any]) -> FlowStartEvent:
        """What a run begins with. Parameters are checked here: a run that cannot begin is not begun."""
        if isinstance(start_event, FlowStartEvent):
            kwargs = {name: getattr(start_event, name) for name in FlowStartEvent.model_fields}
        elif start_event is not None:
            kwargs = {"body": start_event.model_dump(mode="json")}
        known = set(FlowStartEvent.model_fields)
        unknown = sorted(set(kwargs) - known)
        if unknown:
            raise WorkflowRuntimeError(f"A flow begins with {', '.join(sorted(known))}, not with {unknown[0]!r}.")
        for key in ("parameters", "variables", "headers"):
            if not isinstance(kwargs.get(key, {}), dict):
                raise WorkflowRuntimeError(f"{key} must be a dict of values by name.")
        values = {key: _as_data(value, key) for key, value in kwargs.items()}
        problems = parameter_problems(self.program, values.get("parameters", {}))
        problems += body_problems(self.program, values.get("trigger", ""), values.get("body"))
        if problems:
            raise WorkflowRuntimeError(f"The flow {self.name!r} cannot begin: {' '.join(problems)}")
        values["parameters"] = {
            self.program.parameters[name.lower()].name: value for name, value in values.get("parameters", {}).items()
        }
        return FlowStartEvent(**values)

    @override
    def _config(self, *, stored: bool = False) -> BrokerConfig:
        del stored  # a flow has no timeout anywhere
        return flow_config(self.program)

    @override
    def _check_target(self, event: Event, step: str | None) -> None:
        """Events are for whoever waits for them."""
        del event
        if step is not None and self.program.find(step) is None:
            raise WorkflowRuntimeError(f"The flow {self.name!r} has no action {step!r}.")

    @override
    def __repr__(self) -> str:
        return f"<Flow {self.name!r}, {len(self.program.nodes)} actions, version {self.digest[:12]}>"


def _as_data(value: Any, key: str) -> Any:
    """What a run is given, as JSON data. Models, dataclasses and dates have a form in it; a ValueError for the rest."""
    try:
        return plain_value(value, key)
    except ValueError as error:
        try:
            return plain_value(plain(value), key)
        except NotPlainData:
            raise error from None


def seed_of(run_id: str) -> int:
    """The seed of a flow's run: what is random in it follows from its id, wherever it runs."""
    return int.from_bytes(sha256(run_id.encode()).digest()[:8])
