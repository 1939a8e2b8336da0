"""The workflow of the web applications beside this file: an order that is charged, and ships when it is approved."""

from __future__ import annotations

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step


class Ordered(StartEvent):
    """What is ordered."""

    item: str


class Charged(Event):
    """What the customer sees of it."""

    item: str


class Question(InputRequiredEvent):
    """What the run asks."""

    text: str


class Approval(HumanResponseEvent):
    """What a person says to it."""

    approved: bool


class Order(Workflow):
    """Charges, asks, ships."""

    @step
    async def decide(self, ctx: Context, ev: Ordered) -> StopEvent:
        """Charge once, however often the body runs."""
        receipt = await ctx.once("charge", lambda: f"receipt for {ev.item}")
        ctx.write_event_to_stream(Charged(item=ev.item))
        question = Question(text=f"Ship {ev.item}?")
        answer = await ctx.wait_for_event(Approval, waiter_event=question, timeout=None)
        return StopEvent(result=f"{receipt}, {'shipped' if answer.approved else 'kept'}")
