from __future__ import annotations

import asyncio
import threading
import time

import pytest

from loom import Context, Event, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.errors import WorkflowTimeoutError
from loom.steps.retry import retry_policy, stop_after_attempt, wait_exponential
from loom.testing import VIRTUAL_EPOCH, StalledError, VirtualClock, VirtualLoop, run_virtual

DAY = 24 * 3600.0


def since_start() -> float:
    return asyncio.get_running_loop().time() - VIRTUAL_EPOCH


def test_a_year_passes_at_once() -> None:
    async def main() -> float:
        await asyncio.sleep(365 * DAY)
        return since_start()

    began = time.monotonic()
    assert run_virtual(main()) == 365 * DAY
    assert time.monotonic() - began < 30


def test_time_stands_still_while_anything_can_run() -> None:
    async def main() -> float:
        for _ in range(100):
            await asyncio.sleep(0)
        return since_start()

    assert run_virtual(main()) == 0


def test_moments_come_in_exact_order_and_never_early() -> None:
    async def main() -> list[tuple[float, float]]:
        seen: list[tuple[float, float]] = []

        async def wake_after(delay: float) -> None:
            due = asyncio.get_running_loop().time() + delay
            await asyncio.sleep(delay)
            seen.append((due, asyncio.get_running_loop().time()))

        await asyncio.gather(*(wake_after(delay) for delay in (3600.0, 0.1, 0.30000000000000004, 0.3, 2e-7, 100 * DAY)))
        return seen

    seen = run_virtual(main())
    assert seen == sorted(seen)
    assert all(due == woken for due, woken in seen)


def test_time_begins_where_it_is_told_to() -> None:
    async def main() -> float:
        await asyncio.sleep(1.5)
        return asyncio.get_running_loop().time()

    assert run_virtual(main(), start=1e9) == 1e9 + 1.5


def test_time_waits_for_work_in_threads() -> None:
    gate = threading.Event()

    async def main() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        timer = asyncio.create_task(asyncio.sleep(DAY))
        work = loop.run_in_executor(None, gate.wait, 5)
        threading.Timer(0.02, gate.set).start()
        done, _ = await asyncio.wait({timer, work}, return_when=asyncio.FIRST_COMPLETED)
        timer.cancel()
        return ("thread" if work in done else "timer"), since_start()

    assert run_virtual(main()) == ("thread", 0.0)


def test_time_waits_while_it_is_held() -> None:
    async def main() -> tuple[bool, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        reached = asyncio.Event()
        threading.Timer(0.02, loop.call_soon_threadsafe, [reached.set]).start()
        with loop.hold():
            async with asyncio.timeout(1):
                await reached.wait()
        return reached.is_set(), since_start()

    assert run_virtual(main()) == (True, 0.0)


def test_timeouts_of_asyncio_follow() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await asyncio.sleep(3600)
        return since_start()

    assert run_virtual(main()) == 60


def test_a_program_that_waits_for_ever_is_told_so() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StalledError, match="no timer is set"):
        run_virtual(main(), patience_s=0.01)


class Pause(Event):
    hours: float


class Slept(Event):
    hours: float


class InOrder(Workflow):
    @step
    async def begin(self, ev: StartEvent) -> list[Pause]:
        return [Pause(hours=hours) for hours in ev.hours]

    @step(num_workers=100)
    async def pause(self, ctx: Context, ev: Pause) -> Slept:
        await ctx.sleep(ev.hours * 3600)
        return Slept(hours=ev.hours)

    @step
    async def end(self, evs: list[Slept]) -> StopEvent:
        return StopEvent(result=[ev.hours for ev in evs])


def test_sleeps_of_a_workflow_end_in_order_of_their_length() -> None:
    async def main() -> tuple[list[float], float]:
        return await InOrder(timeout=None).run(hours=[5, 1, 48, 3, 2]), since_start()

    assert run_virtual(main()) == ([1, 2, 3, 5, 48], 48 * 3600)


def test_workflow_made_before_the_loop_follows_it_too() -> None:
    workflow = InOrder(timeout=None)

    async def main() -> tuple[list[float], float]:
        return await workflow.run(hours=[1]), since_start()

    assert run_virtual(main()) == ([1], 3600)


class Flaky(Workflow):
    tries: list[float]

    @step(retry_policy=retry_policy(wait=wait_exponential(max=3600), stop=stop_after_attempt(5)))
    async def work(self, ev: StartEvent) -> StopEvent:
        self.tries.append(since_start())
        if len(self.tries) < 5:
            raise ValueError("not yet")
        return StopEvent(result=self.tries)


def test_delays_of_retries_pass_exactly() -> None:
    workflow = Flaky(timeout=None)
    workflow.tries = []

    async def main() -> list[float]:
        return await workflow.run()

    assert run_virtual(main()) == [0, 1, 3, 7, 15]


class Asking(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            await ctx.wait_for_event(HumanResponseEvent, timeout=ev.patience)
        except TimeoutError as error:
            return StopEvent(result=(str(error), since_start()))
        return StopEvent(result=("answered", since_start()))


def test_timeout_of_a_wait_passes_exactly() -> None:
    async def main() -> tuple[str, float]:
        return await Asking(timeout=None).run(patience=7 * DAY)

    assert run_virtual(main()) == ("Timed out waiting for HumanResponseEvent", 7 * DAY)


def test_answer_before_the_timeout_wins() -> None:
    async def main() -> tuple[str, float]:
        handler = Asking(timeout=None).run(patience=7 * DAY)
        asyncio.get_running_loop().call_later(6 * DAY, handler.ctx.send_event, HumanResponseEvent())
        return await handler

    assert run_virtual(main()) == ("answered", 6 * DAY)


def test_timeout_of_a_run_passes_exactly() -> None:
    async def main() -> float:
        with pytest.raises(WorkflowTimeoutError, match=r"Operation timed out after 3600\.0 seconds\. No steps active"):
            await Asking(timeout=3600.0).run(patience=None)
        return since_start()

    assert run_virtual(main()) == 3600


class Blocking(Workflow):
    @step
    def block(self, ev: StartEvent) -> StopEvent:
        time.sleep(0.02)
        return StopEvent(result=threading.current_thread() is not threading.main_thread())


def test_sync_step_in_a_thread_does_not_let_time_run_away() -> None:
    async def main() -> tuple[bool, float]:
        return await Blocking(timeout=0.001).run(), since_start()

    assert run_virtual(main()) == (True, 0.0)


def test_a_virtual_clock_goes_on_between_coroutines() -> None:
    done: list[float] = []

    async def later(clock: VirtualClock) -> None:
        await clock.sleep(60)
        done.append(clock.elapsed)

    async def begin(clock: VirtualClock) -> asyncio.Task[None]:
        return asyncio.ensure_future(later(clock))

    with VirtualClock() as clock:
        task = clock.run(begin(clock))
        assert clock.elapsed == 0
        clock.run(clock.sleep(3600))
        assert task.done()
        assert done == [60]
        assert (clock.elapsed, clock.time()) == (3600, VIRTUAL_EPOCH + 3600)
