"""What people see of failed attempts: the line of code, which of how many, and when the next one is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cli_rig import STORE, data, good

import loom as author
from loom import StartEvent, StopEvent, Workflow, step
from loom.api.attempts import Attempts
from loom.cli.output import TextPage, table_lines
from loom.runtime.durable.runtime import DurableRuntime
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed

LINE = "return StopEvent(result=1 / ev.n)"


class Divides(Workflow):
    @step(retry_policy=retry_policy(wait=wait_fixed(3600), stop=stop_after_attempt(3)))
    async def divide(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=1 / ev.n)


class Fails(Workflow):
    @step
    async def fail(self, ev: StartEvent) -> StopEvent:
        raise ValueError("the first line\nthe second\x1b[31m line")


class Holds(Workflow):
    @step
    async def hold(self, ev: StartEvent) -> StopEvent:
        return await asyncio.Event().wait()  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOM_STORE", STORE)


def worked(start: Callable[[DurableRuntime], Awaitable[Any]]) -> None:
    """Let a worker do something with runs, and leave them in the store as they are then."""

    async def main() -> None:
        async with author.connect(STORE) as runtime:
            for workflow in (Divides(timeout=None), Fails(), Holds(timeout=None)):
                runtime.register(workflow, name=type(workflow).__name__)
            await start(runtime)

    asyncio.run(main())


async def _until(runtime: DurableRuntime, holds: Callable[[Attempts], Any]) -> None:
    async with asyncio.timeout(60):
        while not holds(await runtime.attempts("a")):  # noqa: ASYNC110 - a commit of another task ends it
            await asyncio.sleep(0.01)


async def _retrying(runtime: DurableRuntime) -> None:
    await runtime.start("Divides", {"n": 0}, run_id="a")
    await _until(runtime, lambda attempts: attempts.failed)


def test_a_run_that_tries_again_says_so_and_where_it_failed() -> None:
    worked(_retrying)
    lines = good("workflow", "status", "a").splitlines()
    row = lines[lines.index("Failed attempts") + 3]
    assert row.split()[:4] == ["divide", "1", "of", "3"]
    assert "in 59m" in row
    assert row.rstrip().endswith("ZeroDivisionError: division by zero")
    place = next(number for number, line in enumerate(lines) if f'File "{__file__}"' in line)
    assert lines[place].endswith(", in divide")
    assert lines[place + 1].strip() == LINE
    shown = data("workflow", "status", "a")
    (failed,) = shown["failed_attempts"]
    assert (failed["attempt"], failed["max_attempts"], failed["message"]) == (1, 3, "division by zero")
    assert (LINE in failed["traceback"], shown["executing"]) == (True, [])


def test_the_history_says_where_an_attempt_failed() -> None:
    worked(_retrying)
    _, tick, place, source = good("workflow", "history", "a").splitlines()
    assert "divide#1 failed in attempt 1 of 3: ZeroDivisionError: division by zero, again in 1h" in tick
    assert place.strip().startswith(f'File "{__file__}", line ')
    assert source.strip() == LINE
    assert LINE in data("workflow", "history", "a")[1]["tick"]["failure"]["traceback"]


def test_a_cancelled_run_has_no_timers() -> None:
    async def cancelled(runtime: DurableRuntime) -> None:
        await _retrying(runtime)
        await runtime.cancel("a")
        await _until(runtime, lambda attempts: not attempts.failed)

    worked(cancelled)
    assert "Timers" not in good("workflow", "status", "a")
    assert data("workflow", "status", "a")["timers"] == []


def test_an_error_of_several_lines_is_shown_as_lines() -> None:
    async def failed(runtime: DurableRuntime) -> None:
        with pytest.raises(ValueError, match="the first"):
            await (await runtime.start("Fails", run_id="a"))

    worked(failed)
    text = good("workflow", "status", "a")
    assert "error:       fail: ValueError: the first line\n             the second\\x1b[31m line\n" in text
    assert 'raise ValueError("the first line' in text


def test_an_executing_step_says_since_when() -> None:
    async def held(runtime: DurableRuntime) -> None:
        await runtime.start("Holds", run_id="a")
        await _until(runtime, lambda attempts: attempts.executing)

    worked(held)
    lines = good("workflow", "status", "a").splitlines()
    row = lines[lines.index("Executing") + 3]
    assert row.split()[:2] == ["hold", "1"]
    assert row.rstrip().endswith(" ago")


def test_lines_of_a_text_stay_lines_in_pages_and_tables() -> None:
    page = TextPage()
    page.lines("one\ntwo\x07", "a: ", "   ")
    assert [line for line, _ in page._lines(None)] == ["a: one", "   two\\x07"]
    head, below = table_lines(["what", "why"], [["a", "first\nsecond"]], 40)
    assert head == ["what   why   "]
    assert [line.rstrip() for line in below[1:]] == ["a      first", "       second"]
