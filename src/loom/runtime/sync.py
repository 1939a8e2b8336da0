"""`loom.connect_sync(url)`: a runtime for code that is not asynchronous, such as scripts, Django, Flask and notebooks.

It is the runtime of `loom.connect`, on an event loop in a thread of its own. See docs/adr/0046.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, overload

from typing_extensions import TypeVar, override

from loom.runtime.connect import connect
from loom.runtime.durable.worker import WorkerRuntime
from loom.steps.handler import WorkflowHandler
from loom.steps.loop_thread import LoopThread, SyncFace, calls, iterates

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import TracebackType

    from typing_extensions import Unpack

    from loom.api.workers import Role
    from loom.runtime.durable.connect_options import ConnectOptions
    from loom.steps.events import Event, StopEvent
    from loom.steps.workflow import Workflow
    from loom.store.keyring import Keyring
    from loom.store.ports import Store

P = ParamSpec("P")
StopT = TypeVar("StopT", bound="StopEvent", default=Any)


class SyncHandler(SyncFace, Generic[StopT]):
    """A run of a `SyncRuntime`: wait for its result, read its stream, send it events, cancel it.

    The parameter is that of `WorkflowHandler`: the class of the event that ends the run.
    """

    def __init__(self, handler: WorkflowHandler[StopT], loop_thread: LoopThread) -> None:
        self._inner: WorkflowHandler[StopT] = handler
        self._loop_thread = loop_thread
        self.run_id = handler.run_id

    send_event = calls(WorkflowHandler.send_event)
    cancel_run = calls(WorkflowHandler.cancel_run)

    def stop_event_result(self) -> StopT:
        """Wait for the event that the run ended with, whatever its class."""
        return self._loop_thread.run(self._inner.stop_event_result())

    @overload
    def result(self: SyncHandler[StopEvent], timeout: float | None = None) -> Any: ...
    @overload
    def result(self, timeout: float | None = None) -> StopT: ...
    def result(self, timeout: float | None = None) -> Any:
        """Wait for the run's result, or raise what it failed with: what `await handler` does.

        After `timeout` seconds a `TimeoutError` is raised, and the run goes on.
        """
        return self._loop_thread.run(_result(self._inner, timeout))

    def stream_events(self, expose_internal: bool = False, *, after: int | None = None) -> Iterator[Event]:
        """Give the run's events as they come, until it ends. See `WorkflowHandler.stream_events`."""
        return self._loop_thread.items(self._inner.stream_events(expose_internal, after=after))

    def stream_with_cursors(self, expose_internal: bool = False, *, after: int = -1) -> Iterator[tuple[int, Event]]:
        """Give the run's events with their cursors as they come. See `WorkflowHandler.stream_with_cursors`."""
        return self._loop_thread.items(self._inner.stream_with_cursors(expose_internal, after=after))

    def is_done(self) -> bool:
        """Say whether the run has ended, as far as this process has seen."""
        return self._inner.is_done()

    @property
    def is_running(self) -> bool:
        """Say whether the run goes on, as far as this process has seen."""
        return self._inner.ctx.is_running

    @property
    def is_idle(self) -> bool:
        """Say whether only input from outside can move the run, as far as this process has seen."""
        return self._inner.ctx.is_idle

    def get_stop_event(self) -> StopEvent | None:
        """The event that the run ended with; None while it goes on, and if it failed."""
        return self._inner.get_stop_event()

    @override
    def __repr__(self) -> str:
        return repr(self._inner).replace(type(self._inner).__name__, type(self).__name__, 1)


async def _result(handler: WorkflowHandler, timeout_s: float | None) -> Any:
    async with asyncio.timeout(timeout_s):
        return await handler


def _starts(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, WorkflowHandler]],
) -> Callable[Concatenate[Any, P], SyncHandler]:
    """A method of the runtime that gives a handler, as one that gives a sync handler."""

    @functools.wraps(method)
    def start(self: SyncRuntime, /, *args: P.args, **kwargs: P.kwargs) -> SyncHandler:
        thread = self._loop_thread
        return SyncHandler(thread.run(getattr(self._inner, method.__name__)(*args, **kwargs)), thread)

    return start


class SyncRuntime(SyncFace):
    """A runtime without `await`: the calls of the runtime that `loom.connect` gives, with the same arguments.

    ::

        with loom.connect_sync("sqlite:///runs.db") as runtime:
            runtime.register(MyWorkflow(), name="my")
            print(runtime.start("my", {"topic": "x"}).result())

    Steps that are `async` run on its thread, other steps in a pool of threads. Several threads may use it. So may a
    program that has a running event loop; a call blocks that loop until it returns.
    """

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._inner: WorkerRuntime = runtime
        runtime.opened_by = "with loom.connect_sync(...)"
        self._opened: LoopThread | None = None

    start = _starts(WorkerRuntime.start)
    start_with_event = _starts(WorkerRuntime.start_with_event)
    handler = _starts(WorkerRuntime.handler)
    fork = _starts(WorkerRuntime.fork)

    get = calls(WorkerRuntime.get)
    list = iterates(WorkerRuntime.list)
    counts = calls(WorkerRuntime.counts)
    changes = iterates(WorkerRuntime.changes)
    history = iterates(WorkerRuntime.history)
    state_at = calls(WorkerRuntime.state_at)
    attempts = calls(WorkerRuntime.attempts)
    why = calls(WorkerRuntime.why)
    run_graph = calls(WorkerRuntime.run_graph)
    timeline = calls(WorkerRuntime.timeline)
    read_store = calls(WorkerRuntime.read_store)
    waiters = calls(WorkerRuntime.waiters)
    send_event = calls(WorkerRuntime.send_event)
    cancel = calls(WorkerRuntime.cancel)
    pause = calls(WorkerRuntime.pause)
    resume = calls(WorkerRuntime.resume)
    skip = calls(WorkerRuntime.skip)
    set_tags = calls(WorkerRuntime.set_tags)
    retry = calls(WorkerRuntime.retry)
    bulk = iterates(WorkerRuntime.bulk)
    purge = calls(WorkerRuntime.purge)
    export_run = calls(WorkerRuntime.export_run)
    import_run = calls(WorkerRuntime.import_run)
    schedule = calls(WorkerRuntime.schedule)
    schedules = calls(WorkerRuntime.schedules)
    get_schedule = calls(WorkerRuntime.get_schedule)
    unschedule = calls(WorkerRuntime.unschedule)
    workers = calls(WorkerRuntime.workers)
    flows = calls(WorkerRuntime.flows)
    flow_status = calls(WorkerRuntime.flow_status)
    enable_flow = calls(WorkerRuntime.enable_flow)
    disable_flow = calls(WorkerRuntime.disable_flow)
    trigger_history = calls(WorkerRuntime.trigger_history)
    fire_trigger = calls(WorkerRuntime.fire_trigger)
    flow_address = calls(WorkerRuntime.flow_address)
    ready = calls(WorkerRuntime.ready)

    def register(self, workflow: Workflow | type[Workflow], name: str | None = None, *, schedules: bool = True) -> None:
        """Work for a workflow from now on. See the runtime of `loom.connect`."""
        if self._opened is None:
            self._inner.register(workflow, name, schedules=schedules)
        else:
            self._opened.run(self._register(workflow, name, schedules))

    async def _register(self, workflow: Workflow | type[Workflow], name: str | None, schedules: bool) -> None:
        self._inner.register(workflow, name, schedules=schedules)
        await self._inner.check_place()

    @property
    def role(self) -> Role:
        """What this process does now: `worker`, `client` or `standby`. See `when_locked` of `loom.connect`."""
        return self._inner.role

    @property
    def figures(self) -> dict[str, int]:
        """Tell how many runs are in memory here, and how many were released and brought back so far."""
        return self._inner.figures

    @property
    @override
    def _loop_thread(self) -> LoopThread:  # type: ignore[override]
        if self._opened is None:
            raise RuntimeError("The runtime is not open: use it inside of `with loom.connect_sync(...) as runtime:`.")
        return self._opened

    def open(self) -> Self:
        """Open the store and begin to work, as `with` does. The end of the process closes a runtime left open."""
        if self._opened is not None:
            self._opened.check_here()
            if self._opened.is_open:
                raise RuntimeError("The runtime is open already.")
        thread = LoopThread("loom-runtime", "The runtime", "`loom.connect_sync(...)`")
        try:
            thread.run(self._inner.__aenter__())
        except BaseException:
            thread.close(self._inner.close)
            raise
        self._opened = thread
        atexit.register(self.close)
        return self

    def close(self) -> None:
        """Stop working, and end the thread. Unfinished runs stay in the store."""
        if self._opened is not None:
            self._opened.close(self._inner.close, first=True)
            atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def connect_sync(
    url: str | Store = "memory://",
    *,
    clock: Callable[[], float] | None = None,
    encryption_keys: Keyring | str | None = None,
    payloads: str | None = None,
    payloads_above: int | None = None,
    **options: Unpack[ConnectOptions],
) -> SyncRuntime:
    """Make a runtime for `with`, over the store that a URL names. It takes the arguments of `loom.connect`."""
    runtime = connect(
        url,
        clock=clock,
        encryption_keys=encryption_keys,
        payloads=payloads,
        payloads_above=payloads_above,
        **options,
    )
    return SyncRuntime(runtime)
