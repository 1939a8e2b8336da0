"""A virtual clock for asyncio: hours of sleeping, retrying and timing out pass at once and in exact order.

    from loom.testing import run_virtual

    def test_reminder():
        result = run_virtual(main())        # a workflow that sleeps for two days ends in milliseconds

Inside, `asyncio.sleep`, timeouts, `ctx.sleep`, retry delays, wait timeouts and run timeouts follow the loop's own time.
It stands still while anything can run, and jumps to the next scheduled moment when nothing can. It also stands still
while work in an executor (a synchronous step, say) is under way, and while `hold` is in effect. `time.time()` is not
touched. May import the standard library.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from concurrent.futures import Executor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

VIRTUAL_EPOCH = 1_700_000_000.0
"""Where virtual time begins unless told otherwise: 2023-11-14 22:13:20 UTC.

A date rather than 0, because due times are dates; and so near to each other that their differences are exact.
"""

_PATIENCE_S = 5.0


class StalledError(RuntimeError):
    """Nothing is scheduled, nothing is under way and nothing has come from outside: the program waits for ever."""

    def __init__(self, patience_s: float) -> None:
        super().__init__(
            f"Everything waits, but no timer is set, no thread is at work, and nothing came in {patience_s} real s."
        )


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that lets virtual time pass where a real one would block."""

    def __init__(self) -> None:
        super().__init__()
        self.jump: Callable[[float], None]
        self.is_held: Callable[[], bool]
        self.patience_s = _PATIENCE_S

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready. Without it, jump by `timeout`, or block for real while somebody else is at work."""
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.is_held():
            return super().select(None)
        if timeout is not None:
            self.jump(timeout)
            return ready
        ready = super().select(self.patience_s)
        if not ready:
            raise StalledError(self.patience_s)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual. `wall_time` is the clock that Loom's runtimes read on it."""

    def __init__(self, start: float = VIRTUAL_EPOCH, patience_s: float = _PATIENCE_S) -> None:
        selector = _JumpingSelector()
        selector.jump, selector.is_held, selector.patience_s = self._jump, self._is_held, patience_s
        self._now = start
        self._holds = 0
        super().__init__(selector)
        self._jump(0.0)

    @override
    def time(self) -> float:
        """The virtual time, in seconds since the epoch."""
        return self._now

    def wall_time(self) -> float:
        """The same: on this loop dates and durations are read from one clock."""
        return self._now

    def _jump(self, seconds: float) -> None:
        if seconds > 0:
            # However short, a jump must move the clock, or the loop would ask for it for ever.
            self._now = max(self._now + seconds, math.nextafter(self._now, math.inf))
        # asyncio runs callbacks up to one resolution early. With the smallest step this clock can take, never.
        self._clock_resolution = math.ulp(self._now)

    def _is_held(self) -> bool:
        return self._holds > 0

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let time stand still while something real is awaited: a socket, a subprocess, a thread of one's own."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1

    @override
    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """See asyncio. Time stands still until the work is done or given up."""
        future = super().run_in_executor(executor, func, *args)
        self._holds += 1
        future.add_done_callback(self._released)
        return future

    def _released(self, _done: asyncio.Future[Any]) -> None:
        self._holds -= 1

    @override
    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """See asyncio. Its patience with busy threads is measured in real time."""
        with self.hold():
            await super().shutdown_default_executor(*args, **kwargs)


def run_virtual(main: Coroutine[Any, Any, T], *, start: float = VIRTUAL_EPOCH, patience_s: float = _PATIENCE_S) -> T:
    """Run a coroutine to its end under a virtual clock that begins at `start`.

    Every workflow that runs inside follows that clock, unless its runtime was given another one. If everything waits
    and nothing can ever happen, `StalledError` is raised after `patience_s` real seconds.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start, patience_s)) as runner:
        return runner.run(main)
