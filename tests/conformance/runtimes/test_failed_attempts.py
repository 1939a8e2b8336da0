"""A failed attempt keeps where it failed, on every runtime, and a run that tries again tells so."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import pytest
from flow_samples import flow
from runtime_deployments import Deployment
from runtime_watching import Watched, Witness, failure, result, until, until_status

from loom import Context, StartEvent, StopEvent, step
from loom.core.ticks import TickStepResult
from loom.effects.actions.handlers import HANDLERS
from loom.runtime.durable.runtime import DurableRuntime
from loom.runtime.render import masking_for, rendered_run, rendered_state, rendered_tick
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed, wait_none

HOUR_S = 3600


class Divides(Watched):
    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(2)))
    async def divide(self, ev: StartEvent) -> StopEvent:
        local_value = "the value of a local " + "variable"
        return StopEvent(result=(1 / ev.n, local_value))


class Deep(Watched):
    """Fails with a long text: a chain of exceptions, each with frames and a message."""

    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
    async def dig(self, ev: StartEvent) -> StopEvent:
        error: Exception = ValueError("the deepest")
        for depth in range(20):
            try:
                raise RuntimeError(f"depth {depth}: " + "x" * 1500) from error
            except RuntimeError as caught:
                error = caught
        raise error


class Patient(Watched):
    @step(retry_policy=retry_policy(wait=wait_fixed(HOUR_S), stop=stop_after_attempt(3)))
    async def work(self, ctx: Context, ev: StartEvent) -> StopEvent:
        if self.witness.saw("work") < 2:
            raise ConnectionError("not yet")
        await self.witness.at("again")
        return StopEvent(result=ctx.retry_info().retry_number)


async def _failures(runtime: DurableRuntime, run_id: str) -> list[TickStepResult]:
    ticks = [entry.tick async for entry in runtime.history(run_id)]
    return [tick for tick in ticks if isinstance(tick, TickStepResult) and tick.failure is not None]


async def test_a_failed_attempt_keeps_the_line_that_failed(
    deployment: Deployment, witness: Witness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="loom.run")
    workflows: dict[str, Any] = {"divides": Divides(witness)}
    runtime = await deployment.open(workflows)
    handler = await runtime.start("divides", {"n": 0}, run_id="a")
    error = await failure(handler)
    assert isinstance(error, ZeroDivisionError)
    assert await failure(handler) is error  # awaiting again adds nothing
    [note] = error.__notes__
    await until_status(runtime, "a", "failed")
    assert "run_id='a', status='failed')" in repr(handler)
    lines = [record.getMessage() for record in caplog.records if record.name == "loom.run"]
    assert [line.partition(" failed: ")[0] for line in lines] == [
        "Run a of divides started",
        "Run a of divides: attempt 1 of 2 at divide",
        "Run a of divides: attempt 2 of 2 at divide",
        "Run a of divides ended: failed",
    ]

    ticks = await _failures(runtime, "a")
    assert [tick.max_attempts for tick in ticks] == [2, 2]
    for text in (note, *(tick.failure.traceback for tick in ticks if tick.failure is not None)):
        assert "ZeroDivisionError: division by zero" in text
        assert f'File "{__file__}"' in text
        assert "in divide\n    return StopEvent(result=(1 / ev.n, local_value))" in text
        assert "the value of a local variable" not in text
        assert "execution.py" not in text  # frames of the engine
    state = await runtime.state_at("a")
    assert state.outcome is not None
    assert state.outcome.failure is not None
    assert "in divide" in state.outcome.failure.traceback

    await deployment.crash(runtime)  # what another process reads
    reader = await deployment.open_reader(workflows)
    [again] = (await failure(await reader.handler("a"))).__notes__
    assert again == note
    shown = await rendered_run(reader, await reader.row("a"))
    assert shown.error is not None
    assert "1 / ev.n" in str(shown.error.traceback)


async def test_a_traceback_has_a_limit_and_a_state_keeps_the_newest(deployment: Deployment, witness: Witness) -> None:
    runtime = await deployment.open({"deep": Deep(witness)})
    await failure(await runtime.start("deep", run_id="a"))
    sizes = [len(t.failure.traceback.encode()) for t in await _failures(runtime, "a") if t.failure is not None]
    later = 4 if deployment.kind == "temporal" else 16
    assert 15 * 1024 < sizes[0] <= 16 * 1024
    assert (later - 1) * 1024 < sizes[1] <= later * 1024
    assert sizes[2] == sizes[1]


async def test_a_run_that_tries_again_tells_attempt_error_and_time(deployment: Deployment, witness: Witness) -> None:
    workflows: dict[str, Any] = {"patient": Patient(witness, timeout=None)}
    runtime = await deployment.open(workflows)
    before = datetime.now(UTC)
    await runtime.start("patient", run_id="a")

    async def has_failed() -> bool:
        return bool((await runtime.attempts("a")).failed)

    await until(has_failed)
    attempts = await runtime.attempts("a")
    [failed] = attempts.failed
    assert (failed.step, failed.attempt, failed.max_attempts) == ("work", 1, 3)
    assert (failed.type, failed.message) == ("builtins.ConnectionError", "not yet")
    assert failed.next_at is not None
    assert HOUR_S - 60 < (failed.next_at - before).total_seconds() < HOUR_S + 60
    assert 'raise ConnectionError("not yet")' in (failed.traceback or "")
    assert attempts.executing == []
    shown = await rendered_state(runtime, await runtime.row("a"))
    assert shown.failed_attempts[0].message == "not yet"
    await runtime.cancel("a")
    await until_status(runtime, "a", "cancelled")
    shown = await rendered_state(runtime, await runtime.row("a"))
    assert (shown.timers, shown.failed_attempts) == ([], [])


async def test_an_attempt_under_way_tells_since_when(deployment: Deployment, witness: Witness) -> None:
    class Hurried(Watched):
        @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(3)))
        async def work(self, ev: StartEvent) -> StopEvent:
            if self.witness.saw("work") == 1:
                raise ConnectionError("not yet")
            await self.witness.at("again")
            return StopEvent(result="done")

    witness.hold("again")
    runtime = await deployment.open({"hurried": Hurried(witness)})
    before = datetime.now(UTC)
    handler = await runtime.start("hurried", run_id="a")
    await witness.came("again")
    [executing] = (await runtime.attempts("a")).executing
    assert (executing.step, executing.attempt, executing.max_attempts) == ("work", 2, 3)
    assert executing.since is not None
    assert abs((executing.since - before).total_seconds()) < 60
    assert "run_id='a', status='running')" in repr(handler)
    witness.let("again")
    assert await result(handler) == "done"
    assert "status='completed')" in repr(handler)
    assert (await runtime.state_at("a")).last_traceback is None


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "secure"])
async def test_an_activity_keeps_the_line_that_failed(
    deployment: Deployment, witness: Witness, monkeypatch: pytest.MonkeyPatch, secure: bool
) -> None:
    def look_up(given: dict[str, Any]) -> Any:
        return {"known": 1}[given["key"]]

    monkeypatch.setitem(HANDLERS.activities, "look_up", look_up)
    action: dict[str, Any] = {"type": "activity", "inputs": {"activityType": "look_up", "input": {"key": "zz"}}}
    if secure:
        action["runtimeConfiguration"] = {"secureData": {"properties": ["inputs"]}}
    runtime = await deployment.open({"flow": flow({"look": action})})
    await until_failed(runtime)
    shown = await rendered_run(runtime, await runtime.row("a"))
    assert shown.error is not None
    masking = await masking_for(runtime, await runtime.row("a"))
    history = str([rendered_tick(entry, masking) async for entry in runtime.history("a")])
    stored = str([entry async for entry in runtime.history("a")])
    if secure:
        assert "'zz'" not in str(shown)
        assert "KeyError: 'zz'" not in stored + history
    else:
        assert shown.error.message == "KeyError: 'zz'"
        assert "in look_up" in str(shown.error.traceback)
        assert "in look_up" in history
    assert 'return {"known": 1}[given["key"]]' in stored
    plan = (await runtime.state_at("a")).plan
    assert "look_up" not in str(plan.frames)  # no record of an action keeps a traceback


async def until_failed(runtime: DurableRuntime) -> None:
    """Start the flow and wait for its end."""
    await runtime.start("flow", run_id="a")
    await until_status(runtime, "a", "failed")
