"""A run that outlives its process: the first start asks for an approval, the second one finds it and goes on.

`python examples/durable.py` does both in a temporary file. With a store of your own, each start does its part:
`python examples/durable.py orders.db`, then again with `--approve`. A store is a file, or the URL of any other, such as
`temporal://localhost:7233`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

import loom
from loom import Context, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step

RUN = "order-17"


class Question(InputRequiredEvent):
    """What the run asks."""

    text: str


class Approval(HumanResponseEvent):
    """What a person says to it."""

    approved: bool


def charge(item: str) -> str:
    """Something that must not happen twice."""
    print(f"  charging for {item}")
    return f"receipt for {item}"


class Ordered(StartEvent):
    """What is ordered."""

    item: str


class Order(Workflow):
    """Charges, asks, ships."""

    @step
    async def decide(self, ctx: Context, ev: Ordered) -> StopEvent:
        """The body runs again in the next process; the charge does not."""
        receipt = await ctx.once("charge", lambda: charge(ev.item))
        question = Question(text=f"Ship {ev.item}?")
        answer = await ctx.wait_for_event(Approval, waiter_event=question, timeout=None)
        return StopEvent(result=f"{receipt}, {'shipped' if answer.approved else 'kept'}")


async def ask(url: str) -> None:
    """Start the run, or find it, and wait until it has its question."""
    async with loom.connect(url) as runtime:
        runtime.register(Order(timeout=None), name="order")
        handler = await runtime.start("order", {"item": "tea"}, run_id=RUN)
        async for event in handler.stream_events():
            if isinstance(event, Question):
                print(f"  {event.text} The process may end now.")
                return


async def approve(url: str) -> None:
    """Answer the question, and see how the run ends."""
    async with loom.connect(url) as runtime:
        runtime.register(Order(timeout=None), name="order")
        await runtime.send_event(RUN, Approval(approved=True), event_id="first-click")
        print(f"  {await (await runtime.handler(RUN))}")


def main() -> None:
    """Do the part that was asked for, or both."""
    parser = argparse.ArgumentParser(description="A run that outlives its process.")
    parser.add_argument("store", nargs="?", help="a SQLite file or the URL of a store; without it, a temporary file")
    parser.add_argument("--approve", action="store_true", help="answer the question of an earlier start")
    arguments = parser.parse_args()
    if arguments.store is not None:
        part = approve if arguments.approve else ask
        asyncio.run(
            part(arguments.store if "://" in arguments.store else f"sqlite:///{Path(arguments.store).resolve()}")
        )
        return
    with tempfile.TemporaryDirectory(prefix="loom-") as folder:
        for part in (ask, approve):
            print(f"{part.__name__}:")
            asyncio.run(part(f"sqlite:///{folder}/orders.db"))


if __name__ == "__main__":
    main()
