"""Resources that come to an end: factories that `yield`, and what is torn down together.

A factory with one `yield` sets its value up before the `yield` and tears it down after. The whole factory runs in one
task, its keeper, because cancel scopes and task groups must be left in the task that entered them.

A `Lifetime` is a stack of such values. It is closed when an execution ends, when a run leaves memory, or when the
runtime closes. Values are torn down in the reverse of the order in which they were set up, so that no value outlives
what it depends on. A teardown that raises or takes too long is logged with the factory's name; it changes no run.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import os
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from loom.steps.ports import current_body

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

_log = logging.getLogger("loom.resources")

TEARDOWN_LIMIT_S = 10.0
"""Seconds that one teardown may take, and that a lifetime waits for the bodies that still use its values."""
_GRACE_S = 1.0
"""Seconds that a teardown may take to end after it was cancelled."""
_numbers = itertools.count(1)
_keepers: dict[int, asyncio.Task[None]] = {}
"""All keepers by number: nothing else may hold the task of a value in use, and later ones are torn down first."""


_END = object()


class _Advance:
    """A generator of either kind, advanced to its `yield` and past it."""

    __slots__ = ("_advance", "_is_async", "_name")

    def __init__(self, name: str, generator: Generator[Any, None, None] | AsyncGenerator[Any, None]) -> None:
        self._name = name
        self._is_async = isinstance(generator, AsyncGenerator)
        self._advance: Callable[[], Any]
        self._advance = generator.__anext__ if isinstance(generator, AsyncGenerator) else generator.__next__

    async def _next(self) -> Any:
        try:
            made = self._advance()
            return await made if self._is_async else made
        except (StopIteration, StopAsyncIteration):
            return _END

    async def set_up(self) -> Any:
        """Run to the `yield` and return its value."""
        value = await self._next()
        if value is _END:
            raise RuntimeError(f"The resource factory '{self._name}' ended without a yield: it has made no value.")
        return value

    async def tear_down(self) -> None:
        """Run what stands after the `yield`."""
        if await self._next() is not _END:
            raise RuntimeError(f"The resource factory '{self._name}' has yielded twice: it may yield one value.")


class KeptValue:
    """A value that a factory has yielded, and its way to the end."""

    __slots__ = ("_asked", "_is_given", "_limit_s", "_loop", "_number", "_on_lost", "_task", "name", "pid", "value")

    def __init__(self, name: str, limit_s: float, on_lost: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        self.name = name
        self.pid = os.getpid()
        self.value: Any = None
        self._limit_s = limit_s
        self._on_lost = on_lost
        self._is_given = False
        self._number = next(_numbers)
        self._loop = asyncio.get_running_loop()
        self._asked: asyncio.Future[None] = self._loop.create_future()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, generator: Generator[Any, None, None] | AsyncGenerator[Any, None]) -> None:
        """Set the value up. Cancelling the caller cancels the factory too."""
        ready: asyncio.Future[Any] = self._loop.create_future()
        context = contextvars.copy_context()
        context.run(current_body.set, None)  # the value may outlive the execution that asks for it first
        keeper = self._keep(_Advance(self.name, generator), ready)
        self._task = task = self._loop.create_task(keeper, name=f"resource {self.name}", context=context)
        _keepers[self._number] = task
        task.add_done_callback(lambda _: _keepers.pop(self._number, None))
        try:
            self.value = await ready
            self._is_given = True
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _keep(self, steps: _Advance, ready: asyncio.Future[Any]) -> None:
        try:
            value = await steps.set_up()
        except asyncio.CancelledError:
            ready.cancel()
            raise
        except BaseException as error:  # noqa: BLE001 - it is for the caller, also one that asks the process to exit
            if not ready.done():
                ready.set_exception(error)
            return
        interrupted: asyncio.CancelledError | None = None
        try:
            if not ready.done():
                ready.set_result(value)
                await self._asked
        except asyncio.CancelledError as error:
            # The event loop ends, or the caller is gone. What was set up later may depend on this value.
            interrupted = error
            await self._outlast_later_ones()
            if self._is_given:
                self._on_lost(self._loop)
        await self._tear_down(steps)
        if interrupted is not None:
            raise interrupted

    async def _outlast_later_ones(self) -> None:
        later = {
            task
            for number, task in list(_keepers.items())
            if number > self._number and task.get_loop() is self._loop and task.cancelling()
        }
        if later:
            await asyncio.wait(later, timeout=self._limit_s + _GRACE_S)

    async def _tear_down(self, steps: _Advance) -> None:
        limit = asyncio.timeout(self._limit_s)
        try:
            async with limit:
                await steps.tear_down()
        except Exception as error:  # noqa: BLE001 - factories are foreign code; nothing waits for their end
            if isinstance(error, TimeoutError) and limit.expired():
                _log.error(
                    "The teardown of resource '%s' has not ended within %s s and was cancelled.",
                    self.name, self._limit_s,
                )  # fmt: skip
            else:
                _log.error("The teardown of resource '%s' has failed.", self.name, exc_info=error)
        except SystemExit:
            _log.error("The teardown of resource '%s' asked the process to exit, which is ignored.", self.name)

    async def end(self) -> None:
        """Tear the value down, on the event loop that it was set up on."""
        if self.pid != os.getpid() or self._task is None or self._task.done():
            return  # a forked process has only a copy of it
        if self._loop is asyncio.get_running_loop():
            await self._end()
        elif self._loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._end(), self._loop))
        else:
            _log.error("Resource '%s' cannot be torn down: the event loop that it was made on has ended.", self.name)

    async def _end(self) -> None:
        task = self._task
        assert task is not None
        if not self._asked.done():
            self._asked.set_result(None)
        _, pending = await asyncio.wait((task,), timeout=self._limit_s + _GRACE_S)
        if pending:
            _log.error("The teardown of resource '%s' does not end though it was cancelled: it is left.", self.name)


class Lifetime:
    """Values that are torn down together, in the reverse of the order in which they were set up."""

    __slots__ = ("_free", "_users", "kept")

    def __init__(self) -> None:
        self.kept: list[KeptValue] = []
        self._users = 0
        self._free: asyncio.Event | None = None

    def hold(self) -> None:
        """Count a body that uses the values."""
        self._users += 1

    def let_go(self) -> None:
        """Count a body less."""
        self._users -= 1
        if not self._users and self._free is not None:
            self._free.set()

    async def close(self) -> None:
        """Tear all values down once no body uses them, or when the bodies have had their time."""
        kept, self.kept = self.kept, []
        if not kept:
            return
        if self._users:
            self._free = asyncio.Event()
            try:
                async with asyncio.timeout(TEARDOWN_LIMIT_S):
                    await self._free.wait()
            except TimeoutError:
                names = ", ".join(f"'{each.name}'" for each in kept)
                _log.warning("Resources %s are torn down though a step still uses them.", names)
        for each in reversed(kept):
            await each.end()


_closing: set[asyncio.Task[None]] = set()


def close_soon(lifetime: Lifetime) -> asyncio.Task[None] | None:
    """Close a lifetime in a task of its own, which no cancellation of the caller reaches. None if it has no values."""
    if not lifetime.kept:
        return None
    task = asyncio.get_running_loop().create_task(lifetime.close(), name="teardown of resources")
    _closing.add(task)
    task.add_done_callback(_closing.discard)
    return task


async def close_resources(owners: Iterable[Any]) -> None:
    """Tear down what factories have yielded for workflows, of which the caller runs no step any more.

    An owner without a manager, such as a flow, has no resources.
    """
    managers = {id(manager): manager for manager in (getattr(each, "_resource_manager", None) for each in owners)}
    for manager in managers.values():
        if manager is not None:
            await manager.close()
