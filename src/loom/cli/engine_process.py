"""Run a process that works on runs, for `worker`, `run` and `serve`: take work, log, and stop in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import click
from typing_extensions import override

from loom.cli.problems import Problem, Stopped, WrongUse, told
from loom.cli.session import opened, store_at
from loom.effects.exceptions import is_signal
from loom.runtime.control_loop import at_work
from loom.runtime.logs import JsonLines, configure_logs
from loom.steps.errors import WorkflowConfigurationError, WorkflowValidationError, described
from loom.steps.ports import current_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping

    from loom.runtime.durable.worker import WorkerRuntime
    from loom.steps.workflow import Workflow


T = TypeVar("T")

_log = logging.getLogger("loom.cli")

_BODY = "loom-body"
_KEPT_RECORDS = 10_000
"""Log records that a starting process keeps; with more, the log begins before it has started."""
_BROKEN = 70
"""The exit code of a process whose event loop a body has stopped: an internal error, as `sysexits.h` has it."""
_SWITCH_S = 0.001
"""After so long a thread lets another one work, if one wants to. With Python's 5 ms, a few threads that evaluate
expressions or decode answers would let the event loop wait for tens of milliseconds at each of its steps."""
STOP_SIGNALS: tuple[int, ...] = (
    signal.SIGTERM,
    signal.SIGINT,
    *(
        [signal.SIGBREAK] if hasattr(signal, "SIGBREAK") else []
    ),  # Ctrl-Break: what one process can send another on Windows
)
"""The signals that ask a process to stop in order."""
_NAMED = 10
"""Steps at work that a process names when it ends, at most."""


@asynccontextmanager
async def engine(
    url: str, workflows: Mapping[str, Workflow], logs: Logs, given: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[tuple[WorkerRuntime, asyncio.Event]]:
    """A process that works for workflows, and the event that SIGTERM and SIGINT set.

    `given` are the options of its command, if the process may have a health port.
    """
    stopped = stop_on_signals()
    with ExitStack() as at_end:
        async with opened(store_at(url, upgrade=True), **settings) as runtime:
            let_out = at_end.enter_context(logs.written())  # to the end, also of the runtime
            if given is not None:
                at_end.enter_context(health_port(runtime, given))
            await work_for(runtime, workflows)
            let_out()
            try:
                yield runtime, stopped
            except asyncio.CancelledError:
                end_at_once(asyncio.get_running_loop(), "a body has cancelled every task")


class Bodies:
    """The bodies of this process. One in a thread cannot be stopped, and one that is async may refuse to be: it would
    keep a process that is done.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(thread_name_prefix=_BODY)
        asyncio.get_running_loop().set_default_executor(self._threads)

    async def end(self, problem: Stopped | None = None, grace: float = 1.0) -> None:
        """Let the process end. If bodies are left after a moment, it ends under them: they run again with the next."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + grace
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        bodies = [thread for thread in threading.enumerate() if thread.name.startswith(_BODY)]
        for thread in bodies:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in bodies) or not all(task.done() for task in tasks):
            if problem is not None:
                problem.show()
            _end_process(problem.exit_code if problem is not None else 0)


def host(work: Coroutine[Any, Any, T], loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> T:
    """Do work in which bodies run; what goes wrong with stores and runs is told in one line.

    A task that a body has begun may ask to exit: that ends the task, as it does a body, and never this process. Only
    signals do, which the event loop takes. An event loop that was stopped is another matter: see `end_at_once`.
    """
    sys.setswitchinterval(_SWITCH_S)
    with told(), asyncio.Runner(loop_factory=loop_factory) as runner:
        loop = runner.get_loop()
        _note_who_stops(loop)
        task = _Main(work, loop=loop)
        while True:
            try:
                return loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt) as error:
                if task.done() or (isinstance(error, KeyboardInterrupt) and is_signal(error)):
                    raise
                _log.error("A task that a body has begun ended with %s: this process goes on.", described(error))
            except RuntimeError:
                if task.done():
                    raise
                end_at_once(loop, "a body has stopped the event loop", _stoppers.get(loop))


def end_at_once(loop: asyncio.AbstractEventLoop, reason: str, culprit: str | None = None) -> NoReturn:
    """End the process as it is: a body has taken the event loop from under all others.

    It does not leave in order, so that the store counts the death: a run that does so each time is parked. `culprit`
    is the step whose body did it; None if it is not known.
    """
    names = at_work(loop)
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    _log.critical(
        "The process ends: %s. It was %s. At work: %s.",
        reason,
        culprit or "no step that is known",
        ", ".join([*names[:_NAMED], *more]) or "no step",
    )
    _end_process(_BROKEN)


_stoppers: WeakKeyDictionary[asyncio.AbstractEventLoop, str] = WeakKeyDictionary()
"""The step whose body was the first to stop an event loop. Others may still run until the loop has stopped."""


class _Main(asyncio.Task[T]):
    """The task that a process lives by. A body that cancels it ends the process, whatever the task is at.

    Else a process that is still starting would leave in order, and the store would not count its death.
    """

    @override
    def cancel(self, msg: Any | None = None) -> bool:
        if (culprit := _step_here()) is not None:
            end_at_once(self.get_loop(), "a body has cancelled every task", culprit)
        return super().cancel(msg)


def _note_who_stops(loop: asyncio.AbstractEventLoop) -> None:
    stop = loop.stop

    def noted() -> None:
        if (culprit := _step_here()) is not None:
            _stoppers.setdefault(loop, culprit)
        stop()

    loop.stop = noted  # type: ignore[method-assign]


def _step_here() -> str | None:
    """Name the step that runs here, or has begun what runs here: tasks, callbacks and threads keep its context."""
    mark = current_body.get()
    return None if mark is None else f"step '{mark.step}' of run {mark.run_id}"


def _end_process(code: int) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def until_told(stopped: asyncio.Event) -> None:
    """Wait for the signal to stop. Nothing else shall end this: a body that cancels every task ends the process."""
    try:
        await stopped.wait()
    except asyncio.CancelledError:
        end_at_once(asyncio.get_running_loop(), "a body has cancelled every task")


async def until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Do work in which bodies run. If a signal stops the process, it ends, whatever the bodies do."""
    bodies = Bodies()
    try:
        return await work
    except Stopped as problem:
        await bodies.end(problem)
        raise


class _KeptRecords(logging.Handler):
    """Keeps records for another handler until they are let out, one is critical, or they are too many.

    The standard library has such a handler in a module that imports sockets and pickle, which cost a command 3 ms.
    """

    def __init__(self, target: logging.Handler) -> None:
        super().__init__()
        self._target = target
        self._records: list[logging.LogRecord] = []
        self._most = _KEPT_RECORDS

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._records.append(record)
        if record.levelno >= logging.CRITICAL or len(self._records) >= self._most:
            self.flush()

    @override
    def flush(self) -> None:
        """Hand over what was kept."""
        with self.lock or nullcontext():
            records, self._records = self._records, []
            for record in records:
                self._target.handle(record)

    def let_out(self) -> None:
        """Hand over what was kept, and from now on every record at once."""
        self._most = 1
        self.flush()


class Logs(NamedTuple):
    """What a process logs to stderr, and how."""

    level: str = "warning"
    format: Literal["text", "json"] = "text"

    def tell(self, words: str) -> None:
        """Say what becomes of the process: for people as it is, for programs as one more line of the log."""
        if self.format == "json":
            fields = {"name": "loom.cli", "levelno": logging.INFO, "levelname": "INFO", "msg": words}
            words = JsonLines().format(logging.makeLogRecord(fields))
        click.echo(words, err=True)

    @contextmanager
    def written(self) -> Iterator[Callable[[], None]]:
        """Write logs in the block, from the call of what it gives on; until then they are kept.

        A process that starts keeps them until it has said where it works. If it cannot start, that is raised, and
        what led to it is not told twice.
        """
        root = logging.getLogger()
        level, handler = root.level, configure_logs(self.format, self.level)
        # What ends a process that starts is told at once, with all that led to it.
        kept = _KeptRecords(handler)
        for each in handler.filters:
            kept.addFilter(each)  # they read the context, which is another one later
        root.removeHandler(handler)
        root.addHandler(kept)

        def let_out() -> None:
            kept.let_out()
            # In one move: threads that log meet one of the two handlers, never both or none.
            root.handlers[root.handlers.index(kept)] = handler

        try:
            yield let_out
        finally:
            root.removeHandler(handler)
            root.removeHandler(kept)
            kept.close()
            root.setLevel(level)


async def work_for(runtime: WorkerRuntime, workflows: Mapping[str, Workflow]) -> None:
    """Take up the runs of workflows; one that cannot be run is told by its name."""
    for name, workflow in workflows.items():
        with named_problems(name):
            runtime.register(workflow, name=name)
    await runtime.ready()


@contextmanager
def named_problems(name: str) -> Iterator[None]:
    """Tell what keeps a workflow from being run, by its name."""
    try:
        yield
    except (WorkflowValidationError, WorkflowConfigurationError) as error:
        raise WrongUse(f"{name} cannot be run: {error}") from error


@contextmanager
def health_port(
    runtime: WorkerRuntime, given: Mapping[str, Any], is_draining: Callable[[], bool] = bool
) -> Iterator[None]:
    """Answer on the health port in the block, if there is to be one."""
    if given["health_port"] is None:
        yield
        return
    from loom.runtime.watchdog import watchdog
    from loom.server.health_answers import opened_port

    try:
        port = opened_port(runtime, given["health_host"], given["health_port"], is_draining)
    except OSError as error:
        where, why = f"{given['health_host']}:{given['health_port']}", (error.strerror or str(error)).partition(" (")[0]
        raise Problem(f"The health port {where} cannot be used: {why}.") from error
    runtime.watch_always()
    watchdog().open(port)
    try:
        yield
    finally:
        watchdog().close(port)


def stop_on_signals() -> asyncio.Event:
    """Let signals be told to the event loop, so that what is under way can be put down in order."""
    logging.getLogger("loom").addHandler(logging.NullHandler())  # until there are logs, nothing else shall print them
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        try:
            loop.add_signal_handler(number, stopped.set)
        except NotImplementedError:  # event loops on Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopped.set))
    return stopped
