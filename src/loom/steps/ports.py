"""What contexts, handlers and workflows need of a runtime, how they reach one, and what a runtime needs of their code.

`loom.steps` is below the runtimes and never imports one: `loom/__init__` fills the port.

Authors own the namespace of their workflow classes: one may be a pydantic model with a field `name`, or keep something
of its own as `_config`. So runtimes, contexts and handlers never ask the workflow. They ask its definition, an object
beside it that `definition_of` gives. There are three: `StepsDefinition` for classes with steps, `FlowDefinition` for
flows, and `RemoteDefinition` for names whose code is in another process. A runtime makes planner, bodies and codec from
a definition, since what bodies do is above this package.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence

    from loom.core.records import EventRecord
    from loom.core.state import BrokerConfig, BrokerState
    from loom.steps.events import Event, StartEvent, StopEvent
    from loom.steps.retry import RetryInfo
    from loom.steps.serializers import BaseSerializer
    from loom.steps.state_store import InMemoryStateStore
    from loom.steps.step_config import StepConfig
    from loom.steps.workflow import Workflow


class RunPort(Protocol):
    """A run as seen from outside: by its handler and by the context of its caller."""

    run_id: str
    definition: Definition
    """What is known of the code that it runs."""

    @property
    def state(self) -> BrokerState:
        """The run as data, now."""
        ...

    @property
    def is_idle(self) -> bool:
        """Return whether only input from outside can move the run."""
        ...

    @property
    def status(self) -> str:
        """`running`, `completed`, `failed` or `cancelled`, as far as this process has heard."""
        ...

    def state_to_save(self) -> BrokerState:
        """Return the run as data, with the input that it has not reduced yet."""
        ...

    @property
    def store(self) -> InMemoryStateStore[Any]:
        """The run's store."""
        ...

    @property
    def is_done(self) -> bool:
        """Return whether the run has ended."""
        ...

    def now(self) -> float:
        """Return the runtime's time."""
        ...

    def send(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run."""
        ...

    async def send_durably(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run and return once it cannot be lost any more."""
        ...

    async def cancel(self, timeout_s: float | None, force: bool = False) -> None:
        """Ask the run to stop and wait for its end, at most `timeout_s` seconds; None waits without limit.

        With `force` it ends without its clean-up.
        """
        ...

    async def outcome(self) -> StopEvent:
        """Return the event that the run ended with, or the exception that it failed with."""
        ...

    def request_cancel(self) -> None:
        """Ask the run to stop, without waiting."""
        ...

    def ending(self) -> StopEvent | BaseException | None:
        """Return the outcome without waiting; None while the run goes on."""
        ...

    def read_stream(self, after: int, internal: bool) -> AsyncIterator[tuple[int, Event]]:
        """Read the stream from the first event after a cursor, until it ends. `internal` includes internal events."""
        ...


class ExecutionPort(Protocol):
    """One execution of a step, as its body's context uses it."""

    is_over: bool
    """Whether the body has ended."""

    @property
    def run(self) -> RunPort:
        """The run that it belongs to."""
        ...

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for every attempt at the same work."""
        ...

    def send(self, event: Event, step: str | None, waiter_id: str | None) -> None:
        """Send an event into the run."""
        ...

    def publish(self, event: Event) -> None:
        """Put an event on the stream."""
        ...

    def collect(self, event: Event, expected: Sequence[type[Event]], buffer_id: str) -> list[Event] | None:
        """Put an event aside until all expected ones are there."""
        ...

    def wait(
        self,
        event_type: type[Event],
        waiter_event: Event | None,
        waiter_id: str | None,
        requirements: dict[str, Any],
        timeout_s: float | None,
    ) -> Coroutine[Any, Any, Any]:
        """Wait for an event from outside."""
        ...

    def sleep(self, duration: float) -> Coroutine[Any, Any, Any]:
        """Wait for time to pass."""
        ...

    def once(self, name: str, make: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        """Work a result out and record it with the work item, or take the one that is recorded."""
        ...

    def child(
        self, workflow: Workflow | str, inputs: dict[str, Any], start_event: StartEvent | None
    ) -> Coroutine[Any, Any, Any]:
        """Run another workflow as a child of the run and wait for its result."""
        ...

    def retry_info(self) -> RetryInfo:
        """Tell how often the work was tried before, and what the last attempt raised."""
        ...


class RuntimePort(Protocol):
    """What a workflow needs of a runtime."""

    def start_run(
        self,
        workflow: Workflow,
        run_id: str | None,
        start_event: StartEvent | None,
        staged: InMemoryStateStore[Any] | None,
        resumed: BrokerState | None,
    ) -> RunPort:
        """Begin a run, or go on with a restored one."""
        ...

    def now(self) -> float:
        """Return the time that its runs would begin at."""
        ...

    def track_workflow(self, workflow: Workflow) -> None:
        """Note a new workflow that will use this runtime."""
        ...


class BodyMark:
    """Marks what a body starts: its tasks, callbacks and threads carry the mark in their contexts.

    Contexts outlive bodies. A timer on the event loop keeps the context that it was made in until it is due, even if
    it was canceled long ago. So a mark keeps only names. It refers to the execution, but does not keep it alive.
    """

    __slots__ = ("_execution", "is_secure", "run_id", "step", "workflow")

    def __init__(self, execution: ExecutionPort, run_id: str, workflow: str, step: str) -> None:
        self._execution = ref(execution)
        self.run_id = run_id
        self.workflow = workflow
        self.step = step
        """The step, or the action of a flow."""
        self.is_secure = False
        """Whether it is an action of a flow whose inputs or outputs must not be logged."""

    @property
    def execution(self) -> ExecutionPort | None:
        """The execution; None once it has ended and nothing else holds it."""
        return self._execution()

    @property
    def names(self) -> dict[str, str]:
        """The `extra` of a log line that comes from the body or from what it has started."""
        return {"run_id": self.run_id, "workflow": self.workflow, "step": self.step}


current_body: ContextVar[BodyMark | None] = ContextVar("loom_body", default=None)
"""The body that is running here, or that has started what is running here."""


def current_execution() -> ExecutionPort | None:
    """Return the execution of the body that is running here, or has started what is; None if it is gone."""
    mark = current_body.get()
    return None if mark is None else mark.execution


registering_runtime: ContextVar[RuntimePort | None] = ContextVar("loom_registering_runtime", default=None)
"""The runtime of an enclosing `with runtime.registering():`."""

_default: list[Callable[[], RuntimePort]] = []


def provide_default_runtime(make: Callable[[], RuntimePort]) -> None:
    """Set the runtime of workflows that were given none. Called once, by the package itself."""
    _default[:] = [make]


def default_runtime() -> RuntimePort:
    """Return the runtime for workflows that were given none."""
    if not _default:
        raise RuntimeError("No runtime was provided. Import `loom` rather than a part of it.")
    return _default[0]()


class Unasked(float):
    """A default. Compared by identity, it tells whether a caller gave a value; otherwise it is a number."""

    __slots__ = ()


RUN_TIMEOUT: Final = Unasked(45.0)
"""Seconds until a run in memory times out. A run in a store has no timeout unless one was asked for."""

WAIT_TIMEOUT: Final = Unasked(2000.0)
"""Seconds until `wait_for_event` raises `TimeoutError`."""


class UnaskedCount(int):
    """A default like `Unasked`, for a count."""

    __slots__ = ()


RUN_DEPTH: Final = UnaskedCount(10_000)
"""The longest chain of executions, each caused by the one before, in a run in a store. One in memory has no limit."""


def check_max_depth(limit: object) -> None:
    """Refuse a limit of the depth that is neither a positive integer nor None."""
    # `import loom` loads this file, so it imports neither at its head.
    from loom.steps.errors import WorkflowValidationError
    from loom.steps.step_config import is_count

    if limit is not None and not is_count(limit):
        raise WorkflowValidationError("max_depth must be an integer greater than 0 or None")


# Definitions: what the code of a workflow says to everything that runs it.


class RunLimits(NamedTuple):
    """Bounds that an author sets for the runs of a workflow."""

    timeout_s: float | None = None
    """Seconds that a run in memory may be alive; None means no bound."""
    keeps_timeout: bool = True
    """True if the author set no timeout: a stored run then keeps the one that it began with, or none."""
    concurrent_runs: int | None = None
    """Runs of one instance at the same time; further ones wait for their turn. None means no limit."""
    max_depth: int | None = None
    """The longest chain of executions that each was caused by the one before. None means no limit, and `RUN_DEPTH` that
    the author set none: stored runs then have that of their runtime."""


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

    def begun(self, event: EventRecord) -> EventRecord:
        """Return the start event with what belongs to the place of the code, such as the settings of a project."""
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
