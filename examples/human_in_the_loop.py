"""Two questions at once, each with an answer of its own, and a body that runs only once per question."""

from __future__ import annotations

import asyncio

from loom import Context, Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent, Workflow, step


class Wishes(StartEvent):
    """What somebody wants, each with its price."""

    wishes: dict[str, int]


class Request(Event):
    """Somebody wants to spend money."""

    item: str
    price: int


class Question(InputRequiredEvent):
    """What a person is asked."""

    item: str
    text: str


class Answer(HumanResponseEvent):
    """What the person says, and about what."""

    item: str
    approved: bool


class Decided(Event):
    """A request with its answer."""

    item: str
    approved: bool


class Purchases(Workflow):
    """Asks a person about every large purchase."""

    @step
    async def begin(self, ev: Wishes) -> list[Request]:
        """Fan out: one request per item."""
        return [Request(item=item, price=price) for item, price in ev.wishes.items()]

    @step(num_workers=1)
    async def decide(self, ctx: Context, ev: Request) -> Decided:
        """Small sums pass. For others the body waits here, and holds no worker meanwhile: one worker is enough."""
        if ev.price < 100:
            return Decided(item=ev.item, approved=True)
        answer = await ctx.wait_for_event(
            Answer,
            waiter_event=Question(item=ev.item, text=f"Buy a {ev.item} for {ev.price}?"),
            requirements={"item": ev.item},
        )
        return Decided(item=ev.item, approved=answer.approved)

    @step
    async def end(self, decided: list[Decided]) -> StopEvent:
        """Join: runs when all are decided."""
        return StopEvent(result=sorted(d.item for d in decided if d.approved))


async def main() -> None:
    """Collect the questions, then answer them in another order than they were asked in."""
    handler = Purchases(timeout=60).run(wishes={"shuttle": 40, "loom": 900, "dye works": 20_000})
    questions: list[Question] = []
    async for event in handler.stream_events():
        if isinstance(event, Question):
            print("asked:   ", event.text)
            questions.append(event)
        if len(questions) == 2:
            for question in reversed(questions):
                print("answered:", question.text, "yes" if question.item == "loom" else "no")
                await handler.send_event(Answer(item=question.item, approved=question.item == "loom"))
            questions = []
    print("bought:  ", ", ".join(await handler))


if __name__ == "__main__":
    asyncio.run(main())
