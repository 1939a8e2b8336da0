"""The life of a run in the log: one line each, with ids, and a failed attempt once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import loom
from loom import Context, HumanResponseEvent, StartEvent, StopEvent, Workflow, step
from loom.effects.actions.handlers import HANDLERS
from loom.runtime import lifecycle_log
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed
from loom.store.memory import MemoryDatabase, MemoryStore
from loom.testing import run_virtual


class Approval(HumanResponseEvent):
    """Lets the run go on."""


class Weak(Workflow):
    @step(retry_policy=retry_policy(wait=wait_fixed(60), stop=stop_after_attempt(2)))
    async def work(self, ev: StartEvent) -> StopEvent:
        raise ValueError("no\nluck")


class Asks(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> StopEvent:
        await ctx.wait_for_event(Approval, timeout=None)
        return StopEvent(result="approved")


def _lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "loom.run"]


@pytest.mark.parametrize("stored", [False, True], ids=["in memory", "stored"])
def test_each_failed_attempt_is_logged_once_with_the_next_one(caplog: pytest.LogCaptureFixture, stored: bool) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        if stored:
            async with loom.connect("memory://") as runtime:
                runtime.register(Weak(timeout=None), name="weak")
                handler = await runtime.start("weak", run_id="a")
                with pytest.raises(ValueError, match="no"):
                    await handler
        else:
            with pytest.raises(ValueError, match="no"):
                await Weak(timeout=None).run()

    run_virtual(main())
    lines = _lines(caplog)
    assert [level for level, _ in lines] == ["INFO", "WARNING", "WARNING", "INFO"]
    started, first, second, ended = (line for _, line in lines)
    assert started.endswith(" started")
    assert "attempt 1 of 2 at work failed: ValueError: no luck (" in first
    assert f"{__file__}, line " in first
    assert ", in work); the next attempt is at 20" in first
    assert "attempt 2 of 2 at work failed" in second
    assert second.endswith("; no other attempt follows")
    assert ended.endswith(" ended: failed")
    failed = next(record for record in caplog.records if record.levelname == "WARNING")
    assert (failed.step, failed.run_id.startswith("a") or not stored) == ("work", True)
    assert not [record for record in caplog.records if "no luck" in record.getMessage() and record.name != "loom.run"]


def test_a_run_that_waits_is_idle_released_and_recovered(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    database = MemoryDatabase()

    async def main() -> None:
        async with loom.connect(MemoryStore(database), idle_timeout=5) as runtime:
            runtime.register(Asks(timeout=None), name="asks")
            handler = await runtime.start("asks", run_id="a")
            await asyncio.sleep(60)
            await runtime.send_event("a", Approval())
            assert await handler == "approved"

    run_virtual(main())
    assert [line for _, line in _lines(caplog)] == [
        "Run a of asks started",
        "Run a of asks became idle, waiting for Approval",
        "Run a of asks was released from memory",
        "Run a of asks was recovered",
        "Run a of asks ended: completed",
    ]


def test_attempts_at_an_action_are_logged_with_the_next_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(given: Any) -> Any:
        return {}["zz"]

    monkeypatch.setitem(HANDLERS.activities, "look_up", look_up)
    policy = {"type": "fixed", "count": 1, "interval": "PT1M"}
    action = {"type": "activity", "inputs": {"activityType": "look_up"}, "retryPolicy": policy}
    flow = loom.load({"actions": {"look": action}}, name="looks")

    async def main() -> None:
        assert (await flow.run()).status == "Failed"

    run_virtual(main())
    first, second = (line for _, line in _lines(caplog))
    assert "of looks: attempt 1 of 2 at look failed: KeyError: 'zz' (" in first
    assert "in look_up); the next attempt is at 20" in first
    assert "attempt 2 of 2 at look failed" in second
    assert second.endswith("no other attempt follows")


def test_nothing_is_worked_out_for_a_level_that_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_given: Any) -> None:
        raise AssertionError("A line was made that nobody reads.")

    monkeypatch.setattr(lifecycle_log.LifecycleLog, "__init__", never)
    monkeypatch.setattr(lifecycle_log._log, "level", logging.ERROR)
    lifecycle_log._log.manager._clear_cache()  # type: ignore[attr-defined]  # levels are remembered

    async def main() -> None:
        with pytest.raises(ValueError, match="no"):
            await Weak(timeout=None).run()

    try:
        run_virtual(main())
    finally:
        monkeypatch.undo()
        lifecycle_log._log.manager._clear_cache()


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_the_life_of_runs_of_looms_own_is_told_at_debug(caplog: pytest.LogCaptureFixture, level: int) -> None:
    """A schedule wakes up and sleeps all day, and every notice is a run: neither is what an operator reads for."""
    caplog.set_level(level)

    async def main() -> None:
        async with loom.connect("memory://", idle_timeout=1.0) as runtime:
            runtime.register(Weak(timeout=None), name="weak")
            await runtime.schedule("weakly", "weak", every=600.0)
            await asyncio.sleep(650.0)

    run_virtual(main())
    own = {
        (level, line.partition(" of loom.schedule ")[2]) for level, line in _lines(caplog) if "loom.schedule" in line
    }
    told = {("DEBUG", "started"), ("DEBUG", "was released from memory"), ("DEBUG", "was recovered")}
    assert own == (told if level == logging.DEBUG else set())
    assert [line for _, line in _lines(caplog) if line.endswith("of weak started")]
