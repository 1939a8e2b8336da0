"""A flow that loops over an activity on Temporal, through many executions: 10,000 iterations by command.

    python tests/integration/temporal/temporal_loop.py --iterations 10000

The stream is read as a client would read it, and must have every iteration once and in order.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import loom
from loom.flows.limits import Limits

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from temporal_server import own_server


def loop_flow(iterations: int) -> loom.Flow:
    """A loop with an activity in it, which ends by its own condition."""
    loop: dict[str, Any] = {
        "type": "until",
        "expression": f"@equals(body('next'), {iterations})",
        "limit": {"count": iterations + 1, "timeout": "PT20H"},
        "actions": {
            "next": {"type": "activity", "inputs": {"activityType": "count", "input": "@iterationIndexes('loop')"}}
        },
    }
    limits = Limits(max_iterations=iterations + 1)
    return loom.load({"actions": {"loop": loop}, "outputs": {"last": {"value": "@body('next')"}}}, limits=limits)


async def looped(iterations: int, suggested: int) -> tuple[Any, list[int], int]:
    """Run it: its result, the iterations that its stream tells of, and the number of its executions."""

    @loom.activity("count")
    async def count(index: int) -> int:
        return index + 1

    with own_server(settings={"limit.historyCount.suggestContinueAsNew": suggested}) as server:
        async with loom.connect(server.fresh_url()) as runtime:
            runtime.register(loop_flow(iterations), name="loop")
            handler = await runtime.start("loop", run_id="a")
            result = await handler
            told = [e.iteration async for e in handler.stream_events() if isinstance(e, loom.LoopIterationEvent)]
            found = [each.run_id async for each in runtime.client.list_workflows("WorkflowId = 'a'")]
    return result, told, len(found)


def main() -> None:
    """Run the long form, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=10_000)
    parser.add_argument("--suggested", type=int, default=4_096, help="events after which the server suggests to go on")
    given = parser.parse_args()
    began = time.perf_counter()
    result, told, executions = asyncio.run(looped(given.iterations, given.suggested))
    taken = time.perf_counter() - began
    assert told == list(range(given.iterations)), f"the stream has {len(told)} iterations"
    sys.stdout.write(f"{result.status}: {len(told)} iterations in {executions} executions, {taken:.0f} s\n")


if __name__ == "__main__":
    main()
