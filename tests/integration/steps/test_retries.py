"""Retry policies as a run applies them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from steps_rig import outcome_of, step_states, streamed

from loom import Context, Event, StartEvent, StopEvent, Workflow, step
from loom.steps.events import WorkflowFailedEvent, WorkflowIdleEvent
from loom.steps.retry import (
    retry_if_exception_type,
    retry_policy,
    stop_after_attempt,
    stop_never,
    wait_fixed,
    wait_none,
)


class Job(Event):
    n: int = 0


def flaky(policy: object, failures: int, error: type[Exception] = ValueError) -> Workflow:
    class Flaky(Workflow):
        calls = 0
        infos: list[object]

        @step(retry_policy=policy)
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            self.calls += 1
            self.infos.append(ctx.retry_info())
            if self.calls <= failures:
                raise error(f"failure {self.calls}")
            return StopEvent(result=self.calls)

    workflow = Flaky(timeout=5)
    workflow.infos = []
    return workflow


async def test_step_without_a_policy_runs_once():
    workflow = flaky(None, failures=1)
    with pytest.raises(ValueError, match="failure 1"):
        await workflow.run()
    assert workflow.calls == 1


async def test_stop_after_attempt_counts_executions():
    workflow = flaky(retry_policy(wait=wait_none(), stop=stop_after_attempt(3)), failures=9)
    with pytest.raises(ValueError, match="failure 3"):
        await workflow.run()
    assert workflow.calls == 3


async def test_run_goes_on_when_an_attempt_succeeds():
    assert await flaky(retry_policy(wait=wait_none(), stop=stop_after_attempt(3)), failures=2).run() == 3


async def test_error_that_is_not_to_be_retried_ends_the_run():
    policy = retry_policy(retry=retry_if_exception_type(KeyError), wait=wait_none(), stop=stop_after_attempt(5))
    workflow = flaky(policy, failures=9)
    with pytest.raises(ValueError, match="failure 1"):
        await workflow.run()


async def test_retry_info_tells_what_went_before():
    workflow = flaky(retry_policy(wait=wait_none(), stop=stop_after_attempt(3)), failures=2)
    before = datetime.now(tz=UTC)
    await workflow.run()
    first, second, third = workflow.infos
    assert first.retry_number == 0
    assert first.last_exception is None
    assert first.last_failed_at is None
    assert second.retry_number == 1
    assert str(second.last_exception) == "failure 1"
    assert third.retry_number == 2
    assert str(third.last_exception) == "failure 2"
    assert third.last_failed_at >= before
    assert third.elapsed_seconds >= 0


async def test_failed_event_on_the_stream_tells_attempts_and_time():
    handler = flaky(retry_policy(wait=wait_none(), stop=stop_after_attempt(2)), failures=9).run()
    events = await streamed(handler)
    await outcome_of(handler)
    failed = events[-1]
    assert type(failed) is WorkflowFailedEvent
    assert failed.step_name == "work"
    assert str(failed.exception) == "failure 2"
    assert failed.attempts == 2
    assert failed.elapsed_seconds >= 0


async def test_every_attempt_shows_on_the_stream():
    handler = flaky(retry_policy(wait=wait_none(), stop=stop_after_attempt(2)), failures=1).run()
    states = [state for _, state, _ in step_states(await streamed(handler, internal=True))]
    assert [s for s in states if s != "preparing"] == ["running", "not_running"] * 2


class Custom:
    """A policy with only the old signature."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []

    def next(self, elapsed_time: float, attempts: int, error: Exception) -> float | None:
        self.asked.append((attempts, str(error)))
        return 0 if attempts < 3 else None


async def test_any_object_with_next_is_a_policy_and_needs_no_seed():
    policy = Custom()
    assert await flaky(policy, failures=2).run() == 3
    assert policy.asked == [(1, "failure 1"), (2, "failure 2")]


class Seeded:
    def __init__(self) -> None:
        self.seeds: list[int] = []

    def next(self, elapsed_time: float, attempts: int, error: Exception, *, seed: int | None = None) -> float | None:
        self.seeds.append(seed)
        return 0 if attempts < 3 else None


async def test_seed_comes_from_run_step_and_failures():
    from hashlib import sha256

    policy = Seeded()
    await flaky(policy, failures=2).run(run_id="run-7")
    expected = [int.from_bytes(sha256(f"run-7:work:{n}".encode()).digest(), "big") & 0xFFFFFFFF for n in (1, 2)]
    assert policy.seeds == expected


async def test_policy_that_raises_ends_the_retries_with_its_own_error():
    class Broken:
        def next(self, elapsed_time: float, attempts: int, error: Exception) -> float | None:
            raise LookupError("the policy is broken")

    error = await outcome_of(flaky(Broken(), failures=1).run())
    assert type(error) is LookupError
    assert str(error.__cause__) == "failure 1"


async def test_delayed_retry_waits_at_least_its_delay():
    workflow = flaky(retry_policy(wait=wait_fixed(0.03), stop=stop_after_attempt(2)), failures=1)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert await workflow.run() == 2
    assert loop.time() - begun >= 0.03


class Delayed(Workflow):
    seen: list[str]

    @step
    async def start(self, ctx: Context, ev: StartEvent) -> Job | None:
        ctx.send_event(Job(n=0))
        ctx.send_event(Job(n=1))
        return None

    @step(num_workers=1, retry_policy=retry_policy(wait=wait_fixed(0.03), stop=stop_after_attempt(2)))
    async def work(self, ctx: Context, ev: Job) -> StopEvent | None:
        self.seen.append(f"{ev.n}.{ctx.retry_info().retry_number}")
        if ev.n == 0 and ctx.retry_info().retry_number == 0:
            raise ValueError("once")
        return StopEvent(result=self.seen) if ev.n == 0 else None


async def test_delayed_retry_holds_no_worker_and_keeps_the_run_from_being_idle():
    workflow = Delayed(timeout=5)
    workflow.seen = []
    handler = workflow.run()
    events = await streamed(handler, internal=True)
    assert await handler == ["0.0", "1.0", "0.1"]
    assert not [e for e in events if isinstance(e, WorkflowIdleEvent)]


async def test_effects_of_a_failed_attempt_stay_and_apply_again_with_the_next():
    class Writes(Workflow):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
        async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
            number = ctx.retry_info().retry_number
            ctx.write_event_to_stream(Job(n=number))
            async with ctx.store.edit_state() as state:
                state.count = state.get("count", 0) + 1
            if number == 0:
                raise ValueError("once")
            return StopEvent(result=await ctx.store.get("count"))

    handler = Writes(timeout=5).run()
    events = await streamed(handler)
    assert await handler == 2
    assert [e.n for e in events if type(e) is Job] == [0, 1]


async def test_timeout_of_the_run_ends_a_retry_that_never_stops():
    workflow = flaky(retry_policy(wait=wait_fixed(0.01), stop=stop_never()), failures=10**9)
    workflow._timeout = 0.1
    error = await outcome_of(workflow.run())
    assert "timed out after 0.1 seconds" in str(error)
