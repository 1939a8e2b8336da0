"""Runs whose event loop ends before them: no hang, no warning, nothing left behind. Each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, gc, logging, sys

logging.basicConfig(level=logging.ERROR)  # failed attempts are warnings
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.runtime.basic import basic_runtime
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed

again_at_once = retry_policy(stop=stop_after_attempt(9), wait=wait_fixed(0))
again_later = retry_policy(stop=stop_after_attempt(9), wait=wait_fixed(1000))


class Busy(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(1000)


class Retried(Workflow):
    @step(retry_policy=again_at_once)
    async def work(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(1000)


class Delayed(Workflow):
    @step(retry_policy=again_later)
    async def work(self, ev: StartEvent) -> StopEvent:
        raise ValueError("not yet")


class Waiting(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(HumanResponseEvent)


class Sleeping(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.sleep(1000)


class Tidying(Workflow):
    @step
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        try:
            await asyncio.sleep(1000)
        finally:
            ctx.send_event(StartEvent())
            await asyncio.sleep(0.001)


workflow = globals()[sys.argv[1]](timeout=None, num_concurrent_runs=int(sys.argv[2]) or None)


async def main(seconds):
    asyncio.get_running_loop().slow_callback_duration = 60  # the machine may be busy: that is no warning
    for number in range(6):
        workflow.run(run_id=str(number))
    await asyncio.sleep(seconds)


for seconds in (0.02, 0, 0.02):
    asyncio.run(main(seconds))
assert not basic_runtime._runs
assert not basic_runtime._guards
assert not basic_runtime._turns
gc.collect()
"""


@pytest.mark.parametrize("limit", [0, 2])
@pytest.mark.parametrize("kind", ["Busy", "Retried", "Delayed", "Waiting", "Sleeping", "Tidying"])
def test_loop_that_ends_takes_its_runs_with_it(kind: str, limit: int) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM, kind, str(limit)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


CLEANING_UP = """
import asyncio

from loom import StartEvent, StopEvent, Workflow, step
from loom.runtime.basic import basic_runtime


class Quick(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(0)
        return StopEvent(result="cleaned up")


class Long(Workflow):
    @step
    async def work(self, ev: StartEvent) -> StopEvent:
        await asyncio.sleep(1000)


results = []


async def beside():
    try:
        await asyncio.sleep(1000)
    finally:
        results.append(await Quick().run())


async def main():
    asyncio.get_running_loop().slow_callback_duration = 60
    task = asyncio.create_task(beside())
    Long().run()
    await asyncio.sleep(0.01)
    return task


asyncio.run(main())
assert results == ["cleaned up"], results
assert not basic_runtime._guards
"""


def test_run_that_begins_while_the_loop_ends_is_not_hindered() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", CLEANING_UP]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


WITHOUT_A_WORD = """
import asyncio

from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step


class Asking(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        answer = await ctx.wait_for_event(HumanResponseEvent)
        return StopEvent(result=answer.get("text"))


workflow = Asking(timeout=None, num_concurrent_runs=1)


async def begin():
    workflow.run(run_id="a")
    workflow.run(run_id="b")
    await asyncio.sleep(0.01)


async def again():
    handler = workflow.run(run_id="a")
    handler.ctx.send_event(HumanResponseEvent(text="x"))
    async with asyncio.timeout(5):
        return await handler


lost = asyncio.new_event_loop()
lost.run_until_complete(begin())
lost.close()
assert asyncio.run(again()) == "x"
"""


def test_loop_that_was_closed_without_a_word_holds_no_turn_and_no_name() -> None:
    command = [sys.executable, "-c", WITHOUT_A_WORD]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 0, ended.stderr
