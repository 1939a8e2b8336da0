"""What contexts, handlers and workflows need of a runtime, and how they reach one.

`loom.steps` stands below the runtimes and never imports one: `loom/__init__` fills the port. May import loom.core.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from loom.core.state import BrokerState
    from loom.steps.events import Event, StartEvent, StopEvent
    from loom.steps.retry import RetryInfo
    from loom.steps.state_store import InMemoryStateStore
    from loom.steps.workflow import Workflow


class RunPort(Protocol):
    """A run as seen from outside: by its handler and by the context of whoever started it."""

    run_id: str
    workflow: Workflow

    @property
    def state(self) -> BrokerState:
        """The run as data, now."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether only input from outside can move the run."""
        ...

    @property
    def status(self) -> str:
        """`running`, `completed`, `failed` or `cancelled`, as far as this process has heard."""
        ...

    def state_to_save(self) -> BrokerState:
        """The run as data, with all that it was told but has not come to yet."""
        ...

    @property
    def store(self) -> InMemoryStateStore[Any]:
        """The run's store."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether the run has ended."""
        ...

    def now(self) -> float:
        """The runtime's time."""
        ...

    def send(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run."""
        ...

    async def send_durably(self, event: Event, step: str | None = None, waiter_id: str | None = None) -> None:
        """Let an event reach the run and return once it cannot be lost any more."""
        ...

    async def cancel(self, timeout_s: float | None) -> None:
        """Ask the run to stop and wait for its end, at most so long."""
        ...

    async def outcome(self) -> StopEvent:
        """The event that the run ended with, or the exception that it failed with."""
        ...

    def request_cancel(self) -> None:
        """Ask the run to stop, without waiting."""
        ...

    def ending(self) -> StopEvent | BaseException | None:
        """The same, without waiting: None while the run goes on."""
        ...

    def read_stream(self, after: int, internal: bool) -> AsyncIterator[tuple[int, Event]]:
        """The stream from the first event behind a cursor, until it ends."""
        ...


class ExecutionPort(Protocol):
    """One execution of a step, as its body's context uses it."""

    @property
    def run(self) -> RunPort:
        """The run that it belongs to."""
        ...

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt at the same work."""
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
        """What earlier attempts left behind."""
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
        """The time that its runs would begin at."""
        ...

    def track_workflow(self, workflow: Workflow) -> None:
        """A workflow was made that will use this runtime."""
        ...


current_execution: ContextVar[ExecutionPort | None] = ContextVar("loom_execution", default=None)
"""The execution whose body is running here."""

registering_runtime: ContextVar[RuntimePort | None] = ContextVar("loom_registering_runtime", default=None)
"""The runtime of an enclosing `with runtime.registering():`."""

_default: list[Callable[[], RuntimePort]] = []


def provide_default_runtime(make: Callable[[], RuntimePort]) -> None:
    """Say which runtime workflows use that were given none. Called once, by the package itself."""
    _default[:] = [make]


def default_runtime() -> RuntimePort:
    """The runtime for workflows that were given none."""
    if not _default:
        raise RuntimeError("No runtime was provided. Import `loom` rather than a part of it.")
    return _default[0]()
