"""A virtual clock for asyncio: hours of sleeping, retrying and timing out pass at once and in exact order.

    from loom.testing import run_virtual

    def test_reminder():
        result = run_virtual(main())        # a workflow that sleeps for two days ends in milliseconds

Inside, `asyncio.sleep`, timeouts, `ctx.sleep`, retry delays, wait timeouts and run timeouts follow the loop's own time.
It stands still while anything can run, and jumps to the next scheduled moment when nothing can. It also stands still
while work in an executor (a synchronous step, say) is under way, and while `hold` is in effect. `time.time()` is not
touched.
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
    from contextlib import AbstractContextManager

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

VIRTUAL_EPOCH = 1_700_000_000.0
"""Start of virtual time unless told otherwise: 2023-11-14 22:13:20 UTC, in seconds since 1970.

A date rather than 0, because due times are dates. They are so near to each other that their differences are exact.
"""

_PATIENCE_S = 5.0


class StalledError(RuntimeError):
    """Raised if the program waits for ever: nothing is scheduled or under way, and nothing comes from outside."""

    def __init__(self, patience_s: float) -> None:
        super().__init__(
            f"Everything waits, but no timer is set, no thread is at work, and nothing came in {patience_s} real s."
        )


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that lets virtual time pass where a real one would block."""

    def __init__(self) -> None:
        super().__init__()
        self.pass_time: Callable[[float | None], bool]
        self.is_held: Callable[[], bool]
        self.stir: Callable[[], None]
        self.patience_s = _PATIENCE_S

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready. Else let `timeout` pass, or block for real while something real is under way."""
        ready = super().select(0)
        if ready and not self.is_held():
            self.stir()
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.is_held():
            return super().select(None)
        if self.pass_time(timeout):
            return ready
        ready = super().select(self.patience_s)
        if not ready:
            raise StalledError(self.patience_s)
        self.stir()
        return ready


class _Look:
    """A recurring look that is due: see `VirtualLoop.look_later`."""

    __slots__ = ("callback", "due", "period_s", "seen")

    def __init__(self, seen: int, due: float, period_s: float, callback: Callable[[], object]) -> None:
        self.seen = seen
        """Count of stirs that the look before this one has seen."""
        self.due = due
        self.period_s = period_s
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Cancel the call back."""
        self.callback = None

    def skip_to(self, moment: float) -> None:
        """Leave out the looks that are due before a moment, except for the last one."""
        if self.due < moment:
            self.due += (math.ceil((moment - self.due) / self.period_s) - 1) * self.period_s


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is virtual. `loom.store.loop_time` says what Loom's runtimes ask of it.

    `skips_looks=False` lets every look at a store be made, however long the stretch in which they find nothing.
    """

    def __init__(
        self, start: float = VIRTUAL_EPOCH, patience_s: float = _PATIENCE_S, *, skips_looks: bool = True
    ) -> None:
        selector = _JumpingSelector()
        selector.pass_time, selector.is_held, selector.stir = self._pass_time, self._is_held, self._stir
        selector.patience_s = patience_s
        self._now = self._began_at = start
        self._stirs = 0
        """Count of due timers and of input from outside. Their changes are looked at before any skip.

        A count, not a time: a look is made when nothing else can run, so it sees also what a timer has done just now.
        """
        self._holds = 0
        self._looks: list[_Look] = []
        """Looks that are due. They are few: one for each runtime, and one for each reader of a run."""
        self._looks_until = start
        self._skips_looks = skips_looks
        self.skipped_s = 0.0
        """Seconds that were jumped over so far, with the looks that were due in them."""
        super().__init__(selector)
        self._jump(0.0)

    @override
    def time(self) -> float:
        """Return the virtual time, in seconds since 1970."""
        return self._now

    @property
    def elapsed(self) -> float:
        """Seconds of virtual time since the loop was made."""
        return self._now - self._began_at

    def wall_time(self) -> float:
        """Return the virtual time: on this loop dates and durations are read from one clock."""
        return self._now

    def _jump(self, seconds: float) -> None:
        if seconds > 0:
            # However short, a jump must move the clock, or the loop would ask for it for ever.
            self._now = max(self._now + seconds, math.nextafter(self._now, math.inf))
        # asyncio runs callbacks up to one resolution early. With the smallest step this clock can take, never.
        self._clock_resolution = math.ulp(self._now)

    def _pass_time(self, timeout: float | None) -> bool:
        """Jump to the next moment: of a timer, which is due in `timeout` seconds if there is one, or of a look.

        False if nothing will ever happen: there is no timer, and looks find nothing any more.
        """
        self._looks = [look for look in self._looks if look.callback is not None]
        timer_at = self._now + timeout if timeout is not None else math.inf
        if self._skips_looks and self._now >= self._looks_until:
            # After something has happened, each look is made once more. Only then can it be left out.
            idle = [look for look in self._looks if look.seen == self._stirs]
            moment = min([timer_at, *(look.due for look in self._looks if look not in idle)])
            if moment == math.inf:
                return False
            self._skip(idle, moment)
        look = min(self._looks, key=_due, default=None)
        if look is not None and look.due < timer_at:
            self._jump(look.due - self._now)
            self._make(look)
        elif timeout is not None:
            self._jump(timeout)
            self._stir()
        return look is not None or timeout is not None

    def _stir(self) -> None:
        self._stirs += 1

    def _skip(self, looks: list[_Look], moment: float) -> None:
        """Leave out the looks before a moment, except for the last of each: none of them would find anything."""
        before = min((look.due for look in looks), default=0.0)
        for look in looks:
            look.skip_to(moment)
        self.skipped_s += min((look.due for look in looks), default=0.0) - before

    def _make(self, look: _Look) -> None:
        self._looks.remove(look)
        if look.callback is not None:
            self.call_soon(look.callback)

    def look_later(self, seconds: float, callback: Callable[[], object]) -> _Look:
        """Call back in `seconds`, to look at something that also notifies of its changes.

        Each look asks for the next one. When nothing else is due for a longer stretch, the looks within it are left
        out, except for the last, and unless `keep_looking` has asked for them.
        """
        look = _Look(self._stirs, self._now + seconds, seconds, callback)
        self._looks.append(look)
        return look

    def keep_looking(self, seconds: float) -> None:
        """Leave out no look for this many seconds from now."""
        self._looks_until = max(self._looks_until, self._now + seconds)

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

    def hold_until(self, future: asyncio.Future[Any]) -> None:
        """Let time stand still until a future is done or given up: its work is under way outside of this loop."""
        self._holds += 1
        future.add_done_callback(self._released)

    def _released(self, _done: asyncio.Future[Any]) -> None:
        self._holds -= 1

    calls_in_place = True
    """The engine does long work (`loom.effects.off_loop`) at once, so that its order is always the same."""

    @override
    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """See asyncio. Time stands still until the work is done or given up."""
        future = super().run_in_executor(executor, func, *args)
        self.hold_until(future)
        return future

    @override
    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """See asyncio. Its patience with busy threads is measured in real time."""
        with self.hold():
            await super().shutdown_default_executor(*args, **kwargs)


def _due(look: _Look) -> float:
    return look.due


def run_virtual(main: Coroutine[Any, Any, T], *, start: float = VIRTUAL_EPOCH, patience_s: float = _PATIENCE_S) -> T:
    """Run a coroutine to its end under a virtual clock that begins at `start`.

    Every workflow that runs inside follows that clock, unless its runtime was given another one. If everything waits
    and nothing can ever happen, `StalledError` is raised after `patience_s` real seconds.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(start, patience_s)) as runner:
        return runner.run(main)


class VirtualClock:
    """A virtual clock for several coroutines, one after another: `with VirtualClock() as clock: clock.run(main())`.

    Between two of them time stands still, and what they left running goes on with the next one.
    """

    def __init__(self, start: float = VIRTUAL_EPOCH, *, patience_s: float = _PATIENCE_S) -> None:
        self.loop = VirtualLoop(start, patience_s)
        self._runner = asyncio.Runner(loop_factory=lambda: self.loop)

    def __enter__(self) -> VirtualClock:
        self._runner.__enter__()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._runner.close()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return its result."""
        return self._runner.run(main)

    def time(self) -> float:
        """Return the virtual time, in seconds since 1970."""
        return self.loop.time()

    @property
    def elapsed(self) -> float:
        """Seconds of virtual time since the clock was made."""
        return self.loop.elapsed

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass. All that is due within it is done."""
        await asyncio.sleep(seconds)

    def hold(self) -> AbstractContextManager[None]:
        """Let time stand still while something real is awaited: a socket, a subprocess, a thread of one's own."""
        return self.loop.hold()
