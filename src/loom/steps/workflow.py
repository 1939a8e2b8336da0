"""Workflows, which are classes whose methods are steps, and what they say to runtimes.

A workflow reaches its runtime through `ports`. What a runtime needs of a workflow is on its definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, overload

from typing_extensions import TypeVar, override

from loom.steps import ports
from loom.steps.errors import WorkflowRuntimeError, WorkflowValidationError
from loom.steps.events import StartEvent, StopEvent
from loom.steps.graph import event_types
from loom.steps.ports import RUN_DEPTH, RUN_TIMEOUT, RunLimits, check_max_depth, definition_of
from loom.steps.registry import kind_of
from loom.steps.signature import get_steps_from_class, get_steps_from_instance
from loom.steps.validate import (
    check_graph_check_names,
    check_num_concurrent_runs,
    check_timeout,
    ensure_start_event_class,
    ensure_stop_event_class,
    validate_workflow_graph,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Generic

    from loom.core.records import EventRecord
    from loom.core.state import BrokerConfig
    from loom.steps.context import Context
    from loom.steps.events import Event
    from loom.steps.handler import WorkflowHandler
    from loom.steps.ports import Definition, RuntimePort
    from loom.steps.resources import ResourceManager
    from loom.steps.serializers import BaseSerializer
    from loom.steps.step_config import StepConfig, StepFunction, WorkflowGraphCheck


StartT = TypeVar("StartT", bound=StartEvent, default=Any)
StopT = TypeVar("StopT", bound=StopEvent, default=Any)

if TYPE_CHECKING:

    class _Parameters(Generic[StartT, StopT]):
        """The parameters of `Workflow`."""

else:

    class _Parameters:
        """Takes the parameters of `Workflow` and forgets them.

        With `Generic` in its place, a class that is a pydantic model too would warn of a base that is generic.
        """

        __slots__ = ()

        def __class_getitem__(cls, parameters: Any) -> Any:
            """Return what a base further on makes of parameters, such as `Generic` or pydantic, else the class."""
            further = getattr(super(), "__class_getitem__", None)
            return cls if further is None else further(parameters)


class WorkflowMeta(type):
    """Gives each workflow class its own steps made of free functions. It can be combined with other metaclasses."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(name, bases, namespace, **kwargs)
        cls._step_functions: dict[str, StepFunction[..., Any]] = {}


class Workflow(_Parameters[StartT, StopT], metaclass=WorkflowMeta):
    """A set of steps and the events between them.

    A class derives from it and marks methods with `@step`. An instance can be run any number of times, also at once:

        result = await MyWorkflow(timeout=60).run(topic="x")

    `class MyWorkflow(Workflow[Begin, Answer])` tells type checkers which events begin and end a run: then the result is
    an `Answer` to them. At run time only the annotations of the steps count.

    `timeout` bounds a run in seconds of its being alive; None means no bound. Without it, runs in memory have 45 s and
    runs in a store no bound. `num_concurrent_runs` holds back further runs of this instance until others have ended.

    `max_depth` bounds the longest chain of executions, each caused by the one before, since something last came from
    outside or a timer fired; None means no bound. Without it, runs in memory have none and runs in a store 10,000, or
    what `loom.connect` was told. A stored run that reaches it is parked, one in memory fails.
    """

    _step_functions: dict[str, StepFunction[..., Any]]
    # Counts the changes of any class's free functions, so that instances notice them.
    _steps_version: int = 0

    def __init__(  # noqa: PLR0913, PLR0917 - the signature is a public contract
        self,
        timeout: float | None = RUN_TIMEOUT,
        disable_validation: bool = False,
        verbose: bool = False,
        resource_manager: ResourceManager | None = None,
        num_concurrent_runs: int | None = None,
        runtime: RuntimePort | None = None,
        workflow_name: str | None = None,
        skip_graph_checks: set[WorkflowGraphCheck] | None = None,
        serializer: BaseSerializer | None = None,
        *,
        max_depth: int | None = RUN_DEPTH,
    ) -> None:
        check_timeout(timeout)
        check_num_concurrent_runs(num_concurrent_runs)
        check_max_depth(max_depth)
        self._asked_for_timeout = timeout is not RUN_TIMEOUT
        self._timeout = timeout if self._asked_for_timeout else float(RUN_TIMEOUT)
        self._verbose = verbose
        self._disable_validation = disable_validation
        self._num_concurrent_runs = num_concurrent_runs
        self._max_depth = max_depth
        self._workflow_name = workflow_name
        self._serializer = serializer
        self._resource_manager = resource_manager
        self._start_event_class, self._stop_event_class = self._find_bounds()
        self._skip_graph_checks = check_graph_check_names(skip_graph_checks)
        self._locked = False
        self._validated: tuple[int, bool] | None = None
        self._loom_definition: Definition | None = None
        self._runtime = runtime if runtime is not None else ports.registering_runtime.get()
        if self._runtime is not None:
            self._runtime.track_workflow(self)

    @property
    def workflow_name(self) -> str:
        """The name it was given, else its class's."""
        cls = type(self)
        return self._workflow_name if self._workflow_name is not None else f"{cls.__module__}.{cls.__qualname__}"

    @property
    def runtime(self) -> RuntimePort:
        """Tell where its runs live."""
        if self._runtime is None:
            self._runtime = ports.default_runtime()
        return self._runtime

    @property
    def serializer(self) -> BaseSerializer | None:
        """The serializer it was given, None for the default."""
        return self._serializer

    @property
    def start_event_class(self) -> type[StartT]:
        """The event that begins a run."""
        return cast("type[StartT]", self._start_event_class)

    @property
    def stop_event_class(self) -> type[StopT]:
        """The event that ends a run."""
        return cast("type[StopT]", self._stop_event_class)

    @property
    def events(self) -> list[type[Event]]:
        """All event types that its steps take and return."""
        return event_types(self._step_configs())

    @classmethod
    def add_step(cls, func: StepFunction[..., Any]) -> None:
        """Make a function with a `@step` decorator a step of this class."""
        if getattr(func, "_step_config", None) is None:
            raise WorkflowValidationError(f"Step function {func.__name__} is missing the `@step` decorator.")
        if func.__name__ in {**get_steps_from_class(cls), **cls._step_functions}:
            raise WorkflowValidationError(
                f"A step {func.__name__} is already part of this workflow, please choose another name."
            )
        cls._step_functions[func.__name__] = func
        Workflow._steps_version += 1

    @classmethod
    def _get_steps_from_class(cls) -> dict[str, StepFunction[..., Any]]:
        return {**get_steps_from_class(cls), **cls._step_functions}

    def _get_steps(self) -> dict[str, StepFunction[..., Any]]:
        """All steps by name: the bound methods, then the free functions of exactly this class."""
        return {**get_steps_from_instance(self), **type(self)._step_functions}

    def _step_configs(self) -> dict[str, StepConfig]:
        return {name: function._step_config for name, function in self._get_steps().items()}

    def _find_bounds(self) -> tuple[type[StartEvent], type[StopEvent]]:
        """The events that begin and end a run; an error if the steps have none, or more than one."""
        steps, name = self._step_configs(), type(self).__name__
        return ensure_start_event_class(steps, name), ensure_stop_event_class(steps, name)

    def _make_definition(self) -> Definition:
        """Make the definition of this instance, see `definition_of`."""
        return StepsDefinition(self)

    def _switch_runtime(self, new_runtime: RuntimePort) -> None:
        if new_runtime is self._runtime:
            return
        if self._locked:
            raise RuntimeError("Cannot reassign runtime after workflow has been launched")
        self._runtime = new_runtime
        new_runtime.track_workflow(self)

    def _switch_workflow_name(self, name: str) -> None:
        if name == self._workflow_name:
            return
        if self._locked:
            raise RuntimeError("Cannot change workflow_name after workflow has been launched")
        self._workflow_name = name
        self._loom_definition = None

    def _lock(self) -> None:
        """From the first run or launch on, the runtime and the name stay."""
        self._locked = True

    def validate(self, *, validate_resource_configs: bool = True, validate_resources: bool = False) -> bool:
        """Check the graph of steps and events. Returns whether a human is in the loop; raises what is wrong with it."""
        configs = self._step_configs()
        human = validate_workflow_graph(configs, type(self).__name__, self._skip_graph_checks)
        self._start_event_class, self._stop_event_class = self._find_bounds()
        if validate_resource_configs and any(config.resources for config in configs.values()):
            from loom.steps.resource_checks import check_resource_configs

            _refuse("Resource config validation failed:", check_resource_configs(configs))
        if validate_resources:
            from loom.steps.resource_checks import try_resources

            _refuse("Resource validation failed:", try_resources(configs, StepsDefinition(self).resources))
        self._validated = (Workflow._steps_version, human)
        return human

    def _validate_once(self) -> None:
        if self._disable_validation or (self._validated is not None and self._validated[0] == Workflow._steps_version):
            return
        # Not the public name: a class that is a pydantic model too may have pydantic's method under it.
        Workflow.validate(self)

    def run(
        self, ctx: Context[Any] | None = None, start_event: StartT | None = None, **kwargs: Any
    ) -> WorkflowHandler[StopT]:
        """Begin a run, or go on with the one that `ctx` was restored from. Needs a running event loop.

        Keyword arguments build the start event, unless one is given. `run_id` names the run.
        """
        from loom.steps.context import Context

        definition = definition_of(self)
        definition.prepare()
        _ = definition.state_type  # steps whose states do not fit together are an error of this call
        run_id = kwargs.pop("run_id", None)
        context: Context[Any] = Context(self) if ctx is None else ctx
        event = None if context.is_running else definition.start_event(start_event, kwargs)
        return context._begin(self, event, run_id)

    @overload
    def run_sync(
        self: Workflow[StartT, StopEvent],
        ctx: Context[Any] | None = None,
        start_event: StartT | None = None,
        **kwargs: Any,
    ) -> Any: ...
    @overload
    def run_sync(self, ctx: Context[Any] | None = None, start_event: StartT | None = None, **kwargs: Any) -> StopT: ...
    def run_sync(self, ctx: Context[Any] | None = None, start_event: StartT | None = None, **kwargs: Any) -> Any:
        """Run to the end and return the result, for code that is not asynchronous. Takes what `run` takes.

        The run is on the event loop of a thread that all such runs share, so that it also works in a notebook. An
        interrupt from the keyboard cancels it.
        """
        from loom.steps.loop_thread import run_to_end

        return run_to_end(lambda: self.run(ctx, start_event, **kwargs))


def _refuse(title: str, problems: list[str]) -> None:
    if problems:
        raise WorkflowValidationError("\n".join([title, *(f"  - {problem}" for problem in problems)]))


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
        asked = workflow._asked_for_timeout
        return RunLimits(workflow._timeout, not asked, workflow._num_concurrent_runs, workflow._max_depth)

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
        """Return the code as the reducer sees it. A run in a store has no timeout unless the author set one.

        A run in memory has no limit of its depth unless the author set one.
        """
        version = self.version
        if self._compiled is None or self._compiled[0] != version:
            from loom.steps.graph import broker_config

            name, steps, limits = self.name, self.steps, self.limits
            depth = limits.max_depth
            config = broker_config(name, steps, limits.timeout_s, None if depth is RUN_DEPTH else depth)
            stored_timeout_s = None if limits.keeps_timeout else limits.timeout_s
            self._compiled = (version, config, broker_config(name, steps, stored_timeout_s, depth))
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
                + _typos(inputs, made.model_fields)
            ) from error

    def begun(self, event: EventRecord) -> EventRecord:
        """Return the event as it is: steps read the world themselves."""
        return event

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


def _typos(given: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    """Say which given name may mean which missing field, each on a line of its own."""
    from difflib import get_close_matches  # only for an error

    missing = [name for name in fields if name not in given]
    near = [(name, get_close_matches(name, missing, n=1, cutoff=0.7)) for name in given if name not in fields]
    return "".join(f"\nThere is no field {name!r}: did you mean {found[0]!r}?" for name, found in near if found)
