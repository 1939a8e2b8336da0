"""What the killed workers of a Temporal cluster work on, and such a worker: `python temporal_kill_work.py URL WITNESS`.

Beside the workflows of the other sweeps there are two that grow long histories, so that they go on in new executions
while processes are killed: one that counts votes under contention, and a flow that loops over an activity.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from kill_workload import WORKFLOWS, Spun, Thread, Vote, mark, witness

import loom
from loom import Context, StartEvent, StopEvent, Workflow, step
from loom.store.errors import StoreUnavailable

VOTES = 12
THREADS = 3
ROUNDS = 15

OPTIONS: dict[str, Any] = {"heartbeat_timeout": 2.0, "sticky_timeout": 1.0, "retry_interval": 0.2, "probation": 0.05}
"""Dead workers are found out soon, and a step that outlived many of them is not suspected for long."""


class Tally(Workflow):
    """Counts votes, several at a time, in the store that all of them write; threads are sent by a body beside them."""

    @step
    async def begin(self, ctx: Context, ev: StartEvent) -> Thread | Spun:
        for number in range(THREADS):
            ctx.send_event(Thread(number=number))
            ctx.write_event_to_stream(Spun(number=number))
            await asyncio.sleep(0.06)
        await mark(ctx, "begin")
        return Spun(number=10_000)

    @step(num_workers=4)
    async def count(self, ctx: Context, ev: Vote) -> Spun:
        await mark(ctx, f"vote {ev.token}")
        return Spun(number=1)

    @step(num_workers=2)
    async def spin(self, ctx: Context, ev: Thread) -> Spun:
        await ctx.sleep(0.05)
        await mark(ctx, f"spin {ev.number}")
        return Spun(number=100)

    @step
    async def end(self, ctx: Context, ev: Spun) -> StopEvent | None:
        spun = ctx.collect_events(ev, [Spun] * (1 + VOTES + THREADS))
        return None if spun is None else StopEvent(result=sum(each.number for each in spun))


LOOP: dict[str, Any] = {
    "actions": {
        "init": {"type": "initializeVariable", "inputs": {"variables": [{"name": "n", "type": "integer", "value": 0}]}},
        "loop": {
            "type": "until",
            "expression": f"@greaterOrEquals(variables('n'), {ROUNDS})",
            "limit": {"count": ROUNDS + 1},
            "actions": {
                "turn": {"type": "activity", "inputs": {"activityType": "kill-turn", "input": "@variables('n')"}},
                "count": {
                    "type": "incrementVariable",
                    "inputs": {"name": "n", "value": "@outputs('turn')"},
                    "runAfter": {"turn": ["Succeeded"]},
                },
            },
            "runAfter": {"init": ["Succeeded"]},
        },
    }
}


@loom.activity("kill-turn")
async def turn(number: int) -> int:
    """One iteration."""
    witness.note("turn", number=number)
    return 1


STEPS: dict[str, Workflow] = {
    **{kind: type(workflow)(timeout=None) for kind, workflow in WORKFLOWS.items()},
    "tally": Tally(timeout=None),
}
KINDS = (*STEPS, "loop")


async def connected(url: str) -> Any:
    """A runtime, once the server is there: it may be dead just now."""
    runtime = loom.connect(url, **OPTIONS)
    while True:
        try:
            return await runtime.__aenter__()
        except StoreUnavailable:
            await asyncio.sleep(0.05)


async def main(url: str, side: Path) -> None:
    """Work until SIGTERM, or a kill."""
    witness.open(side)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with AsyncExitStack() as stack:
        runtime = await connected(url)
        stack.push_async_callback(runtime.close)
        for kind, workflow in STEPS.items():
            runtime.register(workflow, name=kind)
        runtime.register(loom.load(LOOP), name="loop")
        await runtime.ready()
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
