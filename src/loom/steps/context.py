"""The context: one class with three faces, before a run, outside of it (its handler) and inside of it (a step)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, overload

from pydantic import BaseModel
from typing_extensions import TypeVar

from loom.steps import ports
from loom.steps.errors import ContextStateError, WorkflowRuntimeError, warn_once
from loom.steps.ports import WAIT_TIMEOUT, definition_of
from loom.steps.state_store import DictState

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence

    from loom.core.state import BrokerState
    from loom.steps.events import Event, StartEvent, StopEvent
    from loom.steps.handler import WorkflowHandler
    from loom.steps.ports import Definition, ExecutionPort, RunPort
    from loom.steps.retry import RetryInfo
    from loom.steps.serializers import BaseSerializer
    from loom.steps.state_store import InMemoryStateStore
    from loom.steps.workflow import Workflow

StateT = TypeVar("StateT", bound=BaseModel, default=DictState)
EventT = TypeVar("EventT", bound="Event")
ResultT = TypeVar("ResultT")
StartT = TypeVar("StartT", bound="StartEvent")
StopT = TypeVar("StopT", bound="StopEvent")


class Context(Generic[StateT]):
    """State and services of a run.

    Steps get one by asking for a parameter of this type. Outside, `handler.ctx` is the run's; a context can also be
    made before a run to prepare its store, or restored with `from_dict` to go on with a run that was saved.
    """

    def __init__(
        self,
        workflow: Workflow,
        previous_context: dict[str, Any] | None = None,
        serializer: BaseSerializer | None = None,
    ) -> None:
        self._definition: Definition = definition_of(workflow)
        self._serializer = serializer
        self._run: RunPort | None = None
        self._execution: ExecutionPort | None = None
        self._staged: InMemoryStateStore[Any] | None = None
        self._restored: BrokerState | None = None
        if previous_context is not None:
            from loom.steps.context_dict import restore

            self._restored, self._staged = restore(workflow, previous_context, self._get_serializer())

    @classmethod
    def _of_run(cls, run: RunPort, execution: ExecutionPort | None = None) -> Context[Any]:
        """The face that a handler of a run sees, or the one that a step sees in its execution."""
        context: Context[Any] = cls.__new__(cls)
        context._definition = run.definition
        context._serializer = None
        context._run = run
        context._execution = execution
        context._staged = context._restored = None
        return context

    def _get_serializer(self) -> BaseSerializer:
        return self._serializer if self._serializer is not None else self._definition.serializer

    def _begin(self, workflow: Workflow, event: StartEvent | None, run_id: str | None) -> WorkflowHandler:
        """Start a run that belongs to this context from now on."""
        from loom.steps.handler import WorkflowHandler

        if self._execution is not None:
            raise ContextStateError("run is only available from handler code, not from within steps.")
        # Of a run that had ended only the store is left; the new run begins with its start event.
        resumed = self._restored if self._restored is not None and self._restored.is_running else None
        staged = self._staged
        if self._run is not None:
            if not self._run.is_done:
                raise ContextStateError(
                    "Cannot start a new run while context is already running. Wait for its end or use a new context."
                )
            resumed, staged = None, self._run.store
        self._run = workflow.runtime.start_run(workflow, run_id, event, staged, resumed)
        self._restored = self._staged = None
        return WorkflowHandler(self, self._run)

    def _inner(self, what: str) -> ExecutionPort:
        if self._execution is not None:
            return self._execution
        if self._run is None:
            raise ContextStateError(f"{what} requires a running workflow. Call workflow.run() first.")
        raise ContextStateError(f"{what} is only available from within step functions.")

    def _outer(self, what: str) -> RunPort:
        if self._execution is not None:
            raise ContextStateError(f"{what} is only available from handler code, not from within steps.")
        if self._run is None:
            raise ContextStateError(f"{what} requires a running workflow. Call workflow.run() first.")
        return self._run

    @staticmethod
    def get_step_context() -> Context[Any]:
        """Return the context of the step whose body is running here."""
        execution = ports.current_execution()
        if execution is None or execution.is_over:
            raise WorkflowRuntimeError("get_step_context() is only available from within step functions.")
        return Context._of_run(execution.run, execution)

    @property
    def is_running(self) -> bool:
        """Return whether the run goes on; of a restored context, whether it had been under way."""
        if self._execution is not None:
            warn_once("Context.is_running is always True within a step.")
            return True
        if self._run is not None:
            return not self._run.is_done
        return self._restored is not None and self._restored.is_running

    @property
    def is_idle(self) -> bool:
        """Return whether only input from outside can move the run; for a restored context, when it was saved."""
        if self._run is not None:
            return self._run.is_idle
        return self._restored is not None and self._restored.is_idle()

    @property
    def store(self) -> InMemoryStateStore[StateT]:
        """The run's state; before the run, a store that the run takes over."""
        if self._run is not None:
            return self._run.store
        if self._staged is None:
            from loom.steps.state_store import InMemoryStateStore

            self._staged = InMemoryStateStore(state_type=self._definition.state_type)
        return self._staged

    def to_dict(self, serializer: BaseSerializer | None = None, *, include_state: bool = True) -> dict[str, Any]:
        """Return the run as a JSON-able dict, from which `from_dict` goes on."""
        from loom.steps.context_dict import save

        if self._execution is not None:
            raise ContextStateError("to_dict is only available from handler code, not from within steps.")
        used = serializer if serializer is not None else self._get_serializer()
        state = self._run.state_to_save() if self._run is not None else self._restored
        store = self.store if include_state else None
        return save(state, store, used, self._run.now() if self._run is not None else None)

    @classmethod
    def from_dict(
        cls,
        workflow: Workflow,
        data: dict[str, Any],
        serializer: BaseSerializer | None = None,
        *,
        renames: Mapping[str, str] | None = None,
    ) -> Context[StateT]:
        """Return a context restored from `to_dict`. What cannot be read is a `ContextSerdeError` at once.

        `renames` maps the names that steps had when the dict was written to their names now.
        """
        from loom.steps.context_dict import restore

        context = cls(workflow, serializer=serializer)
        context._restored, context._staged = restore(workflow, data, context._get_serializer(), renames=renames)
        return context

    def send_event(self, message: Event, step: str | None = None, *, waiter_id: str | None = None) -> None:
        """Send an event into the run. `step` aims it at one step, `waiter_id` at the waiters of one id."""
        if self._execution is not None:
            self._execution.send(message, step, waiter_id)
        elif self._run is not None:
            self._run.send(message, step, waiter_id)
        else:
            raise ContextStateError("send_event() called before workflow started. Call workflow.run() first.")

    def collect_events(
        self, ev: Event, expected: Sequence[type[Event]], buffer_id: str | None = None
    ) -> list[Event] | None:
        """Put an event aside; once all expected ones are there, get them in the order of `expected`."""
        return self._inner("collect_events").collect(ev, expected, buffer_id or "default")

    def wait_for_event(
        self,
        event_type: type[EventT],
        waiter_event: Event | None = None,
        waiter_id: str | None = None,
        requirements: dict[str, Any] | None = None,
        timeout: float | None = WAIT_TIMEOUT,
    ) -> Coroutine[Any, Any, EventT]:
        """Wait until an event of this type with these field values arrives, and get it.

        The body is suspended, and others get its worker. `waiter_event` is put on the stream, once. After `timeout`
        seconds `TimeoutError` is raised; None means that it waits for as long as it takes.
        """
        execution = self._inner("wait_for_event")
        return execution.wait(event_type, waiter_event, waiter_id, requirements or {}, timeout)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Let time pass. The sleep is a timer of the run: it survives what the process does not."""
        return self._inner("sleep").sleep(seconds)

    @overload
    def once(self, name: str, fn: Callable[[], Awaitable[ResultT]]) -> Coroutine[Any, Any, ResultT]: ...
    @overload
    def once(self, name: str, fn: Callable[[], ResultT]) -> Coroutine[Any, Any, ResultT]: ...
    def once(self, name: str, fn: Callable[[], Any]) -> Coroutine[Any, Any, Any]:
        """Call `fn`, which may be async, and record its result with this piece of work under a name.

        Whatever runs the body again, a retry, a crash or a release, gets the recorded result, and `fn` is not called.
        The body goes on when the record is safe. If `fn` fails, nothing is recorded.
        """
        return self._inner("once").once(name, fn)

    @overload
    def run_child(
        self, workflow: Workflow[StartT, StopEvent] | str, *, start_event: StartT | None = None, **inputs: Any
    ) -> Coroutine[Any, Any, Any]: ...
    @overload
    def run_child(
        self, workflow: Workflow[StartT, StopT], *, start_event: StartT | None = None, **inputs: Any
    ) -> Coroutine[Any, Any, StopT]: ...
    def run_child(
        self, workflow: Workflow | str, *, start_event: StartEvent | None = None, **inputs: Any
    ) -> Coroutine[Any, Any, Any]:
        """Run another workflow, given itself or by its registered name, as a child of this run; get its result.

        The child is a run of its own with an id that derives from this run's, and it is cancelled when this run ends.
        A child that fails raises `ChildRunFailed` here, one that was cancelled `ChildRunCancelled`.
        """
        return self._inner("run_child").child(workflow, inputs, start_event)

    @property
    def idempotency_key(self) -> str:
        """A name for this piece of work, the same for every attempt at it."""
        return self._inner("idempotency_key").idempotency_key

    def retry_info(self) -> RetryInfo:
        """Return how often this work was tried before, and what came of it."""
        return self._inner("retry_info").retry_info()

    def write_event_to_stream(self, ev: Event | None) -> None:
        """Put an event on the stream."""
        execution = self._inner("write_event_to_stream")
        if ev is not None:
            execution.publish(ev)

    async def running_steps(self) -> list[str]:
        """Return the steps that have an execution under way."""
        return list(self._outer("running_steps").state.active_steps())

    def stream_events(self) -> AsyncGenerator[Event, None]:
        """Return all of the run's events from the beginning, the internal ones too, until it ends."""
        return _all_events(self._outer("stream_events"))

    def get_result(self) -> Any:
        """Return the result of an ended run. Deprecated: await the handler."""
        from loom.steps.handler import plain_result

        warn_once("Context.get_result() is deprecated: await the handler instead.")
        ending = self._outer("get_result").ending()
        if isinstance(ending, BaseException):
            raise ending
        return None if ending is None else plain_result(ending)

    @property
    def streaming_queue(self) -> Any:
        """A queue that the run's events are put into. Deprecated: `stream_events()`."""
        warn_once("Context.streaming_queue is deprecated: use handler.stream_events().")
        return _stream_into_queue(self._outer("streaming_queue"))


async def _all_events(run: RunPort) -> AsyncGenerator[Event, None]:
    async for _, event in run.read_stream(-1, internal=True):
        yield event


_pumps: set[asyncio.Task[None]] = set()


def _stream_into_queue(run: RunPort) -> asyncio.Queue[Event]:
    """Make a queue that gets all events of a run, for programs that still read them that way."""
    import asyncio

    queue: asyncio.Queue[Event] = asyncio.Queue()

    async def pump() -> None:
        async for _, event in run.read_stream(-1, internal=True):
            queue.put_nowait(event)

    task = asyncio.get_running_loop().create_task(pump())
    # The event loop keeps only weak references to its tasks.
    _pumps.add(task)
    task.add_done_callback(_pumps.discard)
    return queue
