"""Definitions: what the code of a workflow says to everything that runs it.

Authors own the namespace of their workflow classes: one may be a pydantic model with a field `name`, or keep something
of its own as `_config`. So runtimes, contexts and handlers never ask the workflow. They ask its definition, an object
beside it that `definition_of` gives.

There are three: `StepsDefinition` here, for classes with steps; `FlowDefinition` for flows; and `RemoteDefinition` for
names whose code is in another process. A runtime makes planner, bodies and codec from a definition, since what bodies
do is above this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from typing_extensions import override

from loom.steps.errors import WorkflowRuntimeError
from loom.steps.events import StartEvent
from loom.steps.graph import event_types
from loom.steps.registry import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom.core.state import BrokerConfig
    from loom.steps.events import Event
    from loom.steps.ports import RuntimePort
    from loom.steps.resources import ResourceManager
    from loom.steps.serializers import BaseSerializer
    from loom.steps.step_config import StepConfig, StepFunction
    from loom.steps.workflow import Workflow


class RunLimits(NamedTuple):
    """Bounds that an author sets for the runs of a workflow."""

    timeout_s: float | None = None
    """Seconds that a run in memory may be alive; None means no bound."""
    keeps_timeout: bool = True
    """True if the author set no timeout: a stored run then keeps the one that it began with, or none."""
    concurrent_runs: int | None = None
    """Runs of one instance at the same time; further ones wait for their turn. None means no limit."""


class Definition(Protocol):
    """What runtimes, contexts and handlers ask of a workflow's code, whichever way it was written."""

    @property
    def name(self) -> str:
        """The name that its runs go by, unless it is registered under another one."""
        ...

    @property
    def instance(self) -> Any:
        """The `Workflow` or `Flow` that the author made: spans show it. None if the code is in another process."""
        ...

    @property
    def state_type(self) -> Any:
        """The type of its runs' store."""
        ...

    @property
    def serializer(self) -> BaseSerializer:
        """The serializer of context dicts and journals of its runs."""
        ...

    live_code: Any
    """What the runtime in memory has made of this version: see `loom.runtime.memory.live_code`. None until it has."""

    @property
    def version(self) -> int:
        """Changes when the code of this object does."""
        ...

    @property
    def steps(self) -> Mapping[str, StepConfig]:
        """The steps in Python by name; none for flows."""
        ...

    @property
    def limits(self) -> RunLimits:
        """The author's bounds for runs."""
        ...

    @property
    def is_verbose(self) -> bool:
        """Return whether the author wants each step of a run in memory printed."""
        ...

    @property
    def document(self) -> tuple[str, bytes] | None:
        """The digest and text that runs are stored with; None for workflows in Python."""
        ...

    def config(self, *, stored: bool = False) -> BrokerConfig:
        """Return the code as the reducer sees it. A run in a store has no timeout unless the author set one."""
        ...

    def start_event(self, given: StartEvent | None, inputs: dict[str, Any]) -> StartEvent:
        """Make the event that a run begins with, or check the given one. Raises for input that it refuses."""
        ...

    def check_target(self, event: Event, step: str | None) -> None:
        """Raise `WorkflowRuntimeError` for an event whose step does not exist or does not take it."""
        ...

    def seed(self, run_id: str) -> int:
        """Return the seed of chance in a run; 0 where the code has none of its own."""
        ...

    def prepare(self) -> None:
        """Validate the code if that was not done, and fix its name and runtime: runs begin from now on."""
        ...


def definition_of(workflow: Workflow) -> Definition:
    """Return the definition of a workflow or flow, made once per instance."""
    found = workflow._loom_definition
    # A copy of a workflow comes with the definition of the original.
    if found is None or found.instance is not workflow:
        found = workflow._loom_definition = workflow._make_definition()
    return found


def keep_runtime(workflow: Workflow, runtime: RuntimePort | None = None) -> None:
    """Fix a workflow's name and runtime: its runs begin. With `runtime`, only if that is the workflow's."""
    if runtime is None or workflow._runtime is runtime:
        workflow._lock()


class StepsDefinition:
    """The definition of a class whose methods are steps.

    What is worked out from the steps is remembered until any class gets another free function as a step.
    """

    __slots__ = ("_compiled", "_state_type", "instance", "live_code")

    document = None

    def __init__(self, workflow: Workflow) -> None:
        self.instance = workflow
        self.live_code: Any = None
        self._compiled: tuple[int, BrokerConfig, BrokerConfig] | None = None
        self._state_type: tuple[int, Any] | None = None

    @override
    def __repr__(self) -> str:
        return f"<StepsDefinition of {self.name}>"

    @property
    def name(self) -> str:
        """The name that the workflow was given, else its class's."""
        return self.instance.workflow_name

    @property
    def version(self) -> int:
        """The number of free functions that became steps in this process, of whatever class."""
        return type(self.instance)._steps_version

    @property
    def functions(self) -> dict[str, StepFunction[..., Any]]:
        """The bodies of its steps by name: bound methods, then the free functions of its class."""
        return self.instance._get_steps()

    @property
    def steps(self) -> dict[str, StepConfig]:
        """Return what the signatures and decorators of its steps say, by name."""
        return {name: function._step_config for name, function in self.functions.items()}

    @property
    def events(self) -> list[type[Event]]:
        """All event types that its steps take and return."""
        return event_types(self.steps)

    @property
    def resources(self) -> ResourceManager:
        """The manager of what its steps have injected."""
        if self.instance._resource_manager is None:
            from loom.steps.resources import ResourceManager

            self.instance._resource_manager = ResourceManager()
        return self.instance._resource_manager

    @property
    def limits(self) -> RunLimits:
        """The bounds that the workflow was made with."""
        workflow = self.instance
        return RunLimits(workflow._timeout, not workflow._asked_for_timeout, workflow._num_concurrent_runs)

    @property
    def is_verbose(self) -> bool:
        """Return whether the workflow was made with `verbose=True`."""
        return self.instance._verbose

    @property
    def own_serializer(self) -> BaseSerializer | None:
        """The serializer that the workflow was given, None for the default of the store that keeps its runs."""
        return self.instance._serializer

    @property
    def serializer(self) -> BaseSerializer:
        """The serializer that the workflow was given, or one that knows its events and its state."""
        if self.instance._serializer is not None:
            return self.instance._serializer
        from loom.steps.serializers import JsonSerializer

        return JsonSerializer().with_types(*self.events, self.state_type)

    @property
    def state_type(self) -> Any:
        """The type of its runs' store, from the annotations of its steps."""
        version = self.version
        if self._state_type is None or self._state_type[0] != version:
            from loom.steps.state_store import infer_state_type

            self._state_type = (version, infer_state_type(self.functions))
        return self._state_type[1]

    def config(self, *, stored: bool = False) -> BrokerConfig:
        """Return the code as the reducer sees it. A run in a store has no timeout unless the author set one."""
        version = self.version
        if self._compiled is None or self._compiled[0] != version:
            from loom.steps.graph import broker_config

            name, steps, limits = self.name, self.steps, self.limits
            config = broker_config(name, steps, limits.timeout_s)
            unbounded = broker_config(name, steps, None) if limits.keeps_timeout else config
            self._compiled = (version, config, unbounded)
        return self._compiled[2] if stored else self._compiled[1]

    def start_event(self, given: StartEvent | None, inputs: dict[str, Any]) -> StartEvent:
        """Make the event that a run begins with from keyword arguments, unless one is given."""
        if given is not None:
            if not isinstance(given, StartEvent):
                raise ValueError("The 'start_event' argument must be an instance of 'StartEvent'.")
            if inputs:
                import logging

                logging.getLogger("loom.workflow").warning(
                    "Keyword arguments are not supported when 'run()' is invoked with the 'start_event' parameter. "
                    "These keyword arguments will be ignored: %s",
                    inputs,
                )
            return given
        made = self.instance._start_event_class
        try:
            return made(**inputs)
        except ValueError as error:
            raise WorkflowRuntimeError(
                f"Failed creating a start event of type '{made.__name__}' with the keyword arguments: {inputs}: {error}"
            ) from error

    def check_target(self, event: Event, step: str | None) -> None:
        """Raise `WorkflowRuntimeError` for an event whose step does not exist or does not take it."""
        if step is None:
            return
        from loom.core.state import specs_of
        from loom.steps.planner import takes

        spec = specs_of(self.config()).get(step)
        if spec is None:
            raise WorkflowRuntimeError(f"Step {step} does not exist")
        if not takes(spec, spec.accepts, kind_of(type(event))):
            raise WorkflowRuntimeError(f"Step {step} does not accept event of type {type(event)}")

    def seed(self, run_id: str) -> int:
        """Steps draw their own chance: 0."""
        del run_id
        return 0

    def prepare(self) -> None:
        """Validate the graph of steps if that was not done, and fix the workflow's name and runtime."""
        self.instance._lock()
        self.instance._validate_once()
