"""A short tour: fan-out and join, a retry, and a question that suspends a step. Run it with `make demo`."""

from __future__ import annotations

import asyncio

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step
from loom.steps.retry import retry_policy, stop_after_attempt, wait_fixed


class Thread(Event):
    """One thread to be spun."""

    colour: str


class Spun(Event):
    """A thread that is ready."""

    colour: str


class Cloth(Event):
    """What the threads became."""

    pattern: str


class Note(Event):
    """A line for whoever watches."""

    text: str


class Question(InputRequiredEvent):
    """What the weaver asks."""

    text: str


class Answer(HumanResponseEvent):
    """What a person says to it."""

    accepted: bool


class Weaver(Workflow):
    """Spins threads in parallel, weaves them, and asks whether the cloth is good."""

    @step
    async def plan(self, ev: StartEvent) -> list[Thread]:
        """Fan out: one event per thread."""
        return [Thread(colour=colour) for colour in ev.colours]

    @step(num_workers=2, retry_policy=retry_policy(wait=wait_fixed(0.1), stop=stop_after_attempt(3)))
    async def spin(self, ctx: Context, ev: Thread) -> Spun:
        """Spin one thread; red ones break at the first attempt."""
        attempt = ctx.retry_info().retry_number + 1
        ctx.write_event_to_stream(Note(text=f"spinning {ev.colour}, attempt {attempt}"))
        if ev.colour == "red" and attempt == 1:
            raise RuntimeError("the thread broke")
        return Spun(colour=ev.colour)

    @step
    async def weave(self, spun: list[Spun]) -> Cloth:
        """Join: runs once, when all threads are ready."""
        return Cloth(pattern=" and ".join(sorted(thread.colour for thread in spun)))

    @step
    async def show(self, ctx: Context, ev: Cloth) -> StopEvent:
        """Ask a person. The body is suspended here, and goes on in the next line."""
        question = Question(text=f"A cloth of {ev.pattern}: shall it be sold?")
        answer = await ctx.wait_for_event(Answer, waiter_event=question)
        return StopEvent(result=f"{ev.pattern}: {'sold' if answer.accepted else 'kept'}")


async def main() -> None:
    """Run the weaver, show its stream, and answer its question."""
    handler = Weaver(timeout=30).run(colours=["red", "green", "blue"])
    async for event in handler.stream_events():
        if isinstance(event, Note):
            print("  ", event.text)
        elif isinstance(event, Question):
            print("  ", event.text, "-> yes")
            await handler.send_event(Answer(accepted=True))
    print("Result:", await handler)


if __name__ == "__main__":
    asyncio.run(main())
