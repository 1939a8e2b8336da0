"""A shop whose orders wait for an approval, and the command line in this process.

Commands are run one after another here; `until_idle` and `until_end` are the engine that works between them.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from loom.cli import main
from loom.cli.targets import named_workflow
from loom.runtime.connect import connect
from loom.runtime.durable.runtime import DurableRuntime

SHOP = '''
from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step


class Approval(HumanResponseEvent):
    amount: int
    note: str = ""


class Question(InputRequiredEvent):
    item: str


class Order(Workflow):
    """Waits for an approval, then ends; a negative amount fails it."""

    @step
    async def place(self, ctx: Context, ev: StartEvent) -> StopEvent:
        question = Question(item=ev.get("item", "?"))
        answer = await ctx.wait_for_event(Approval, waiter_event=question, timeout=3600)
        if answer.amount < 0:
            raise ValueError(f"{answer.amount} is negative")
        return StopEvent(result={"amount": answer.amount, "note": answer.note})


class Double(Workflow):
    @step
    async def double(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=ev.get("number", 0) * 2)


order = Order(timeout=None)
'''

ORDER = "Order=shop.py:order"
DOUBLE = "shop.py:Double"
STORE = "sqlite:///loom.db"


def loom(*arguments: str, text: str | None = None) -> Result:
    """A command, with what it printed and its exit code."""
    return CliRunner().invoke(main, arguments, input=text, catch_exceptions=False)


def good(*arguments: str, text: str | None = None) -> str:
    """What a command printed that must succeed."""
    result = loom(*arguments, text=text)
    assert result.exit_code == 0, result.output
    return result.stdout


def data(*arguments: str) -> Any:
    """What a command says with --json."""
    return json.loads(good(*arguments, "--json"))


def failure(code: int, *arguments: str) -> str:
    """The one line with which a command fails."""
    result = loom(*arguments)
    assert result.exit_code == code, result.output
    lines = result.stderr.splitlines()
    assert lines[-1].startswith("Error: "), result.output
    return lines[-1].removeprefix("Error: ")


def started(run_id: str, *arguments: str) -> None:
    """An order that waits for its approval, in a database that is there already or not."""
    good("db", "upgrade")
    good("workflow", "start", "Order", '{"item": "tea"}', "--run-id", run_id, *arguments)
    until_idle(run_id)


def until_idle(run_id: str) -> None:
    """Work for the shop until a run waits, and has nothing in its mail."""
    asyncio.run(_work(run_id, _is_at_rest))


def until_end(run_id: str) -> None:
    """Work for the shop until a run is over."""
    asyncio.run(_work(run_id, _is_over))


async def _is_at_rest(runtime: DurableRuntime, run_id: str) -> bool:
    # In this order: a run that was idle before it took its mail is at work after it.
    return not await runtime.store.inbox(run_id, 0) and (await runtime.get(run_id)).idle_since is not None


async def _is_over(runtime: DurableRuntime, run_id: str) -> bool:
    return (await runtime.get(run_id)).status != "running"


async def _work(run_id: str, is_enough: Callable[[DurableRuntime, str], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60), connect(STORE) as runtime:
        for target in (ORDER, DOUBLE):
            name, workflow = named_workflow(target)
            runtime.register(workflow, name=name)
        while not await is_enough(runtime, run_id):  # noqa: ASYNC110 - a store is asked, and tells nobody
            await asyncio.sleep(0.005)


def wait_for(event_type: str) -> None:
    """Look until the worker has taken a run to a wait for an event."""
    deadline = time.monotonic() + 60
    while not data("workflow", "list", "--waiting-for", event_type):
        assert time.monotonic() < deadline, good("workflow", "list")


@contextmanager
def working(place: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A worker in a process of its own."""
    command = [sys.executable, "-m", "loom", "worker", *arguments]
    with subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            first = process.stderr.readline()
            assert first.startswith("Working for "), first
            yield process
        finally:
            process.kill()
