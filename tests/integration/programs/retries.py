"""Retry policies, what a step learns of earlier attempts, and handlers of what still fails."""

# ruff: noqa: T201 - what a program prints is what it is judged by

import asyncio

from workflows import Context, Workflow, catch_error, step
from workflows.events import Event, StartEvent, StepFailedEvent, StopEvent
from workflows.retry_policy import (
    retry_if_exception_type,
    retry_policy,
    stop_after_attempt,
    wait_exponential,
    wait_fixed,
    wait_none,
)


class Flaky(Workflow):
    attempts = 0

    @step(retry_policy=retry_policy(wait=wait_fixed(0.01), stop=stop_after_attempt(4)))
    async def go(self, ctx: Context, ev: StartEvent) -> StopEvent:
        type(self).attempts += 1
        info = ctx.retry_info()
        if info.retry_number < 2:
            raise ConnectionError(f"attempt {info.retry_number}")
        return StopEvent(result=(self.attempts, info.retry_number, repr(info.last_exception)))


class Hopeless(Workflow):
    attempts = 0

    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
    async def go(self, ev: StartEvent) -> StopEvent:
        type(self).attempts += 1
        raise ConnectionError(f"attempt {self.attempts}")


class Picky(Workflow):
    attempts = 0

    @step(retry_policy=retry_policy(retry=retry_if_exception_type(ConnectionError), wait=wait_none()))
    async def go(self, ev: StartEvent) -> StopEvent:
        type(self).attempts += 1
        raise ValueError("no use to try again")


class Recovered(Event):
    why: str


class Caught(Workflow):
    @step
    async def go(self, ev: StartEvent) -> StopEvent:
        raise ValueError("broken")

    @catch_error
    async def rescue(self, ev: StepFailedEvent) -> Recovered:
        return Recovered(why=f"{ev.step_name}: {ev.exception} after {ev.attempts}")

    @step
    async def finish(self, ev: Recovered) -> StopEvent:
        return StopEvent(result=ev.why)


async def main() -> None:
    print(await Flaky(timeout=10).run())
    for workflow in (Hopeless(timeout=10), Picky(timeout=10)):
        try:
            await workflow.run()
        except (ConnectionError, ValueError) as error:
            print(type(error).__name__, error, workflow.attempts)
    print(await Caught(timeout=10).run())
    policy = retry_policy(wait=wait_exponential(multiplier=2, max=30), stop=stop_after_attempt(8))
    print([policy.next(0.0, failures, ConnectionError()) for failures in range(1, 9)])


asyncio.run(main())
