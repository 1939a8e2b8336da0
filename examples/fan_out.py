"""Fan-out and join, with retries, and a handler for what fails for good."""

from __future__ import annotations

import asyncio

from loom import (
    Context,
    Event,
    StartEvent,
    StepFailedEvent,
    StopEvent,
    Workflow,
    catch_error,
    retry_if_exception_type,
    retry_policy,
    step,
    stop_after_attempt,
    wait_exponential,
)


class Opened(StartEvent):
    """A book, by the number of its pages."""

    pages: int


class Page(Event):
    """A page to be read."""

    number: int


class Text(Event):
    """What stands on a page."""

    number: int
    words: int


PATIENT = retry_policy(
    retry=retry_if_exception_type(ConnectionError),
    wait=wait_exponential(multiplier=0.01, max=1),
    stop=stop_after_attempt(4),
)


class Book(Workflow):
    """Reads many pages in parallel, over a line that often breaks."""

    @step
    async def open(self, ev: Opened) -> list[Page]:
        """Fan out: a returned list opens a stream."""
        return [Page(number=number) for number in range(1, ev.pages + 1)]

    @step(num_workers=8, retry_policy=PATIENT)
    async def read(self, ctx: Context, ev: Page) -> Text:
        """Every tenth page needs two attempts; page 13 is lost."""
        if ev.number == 13:
            raise FileNotFoundError("page 13 was torn out")
        if ev.number % 10 == 0 and ctx.retry_info().retry_number == 0:
            raise ConnectionError("the line broke")
        return Text(number=ev.number, words=100 + ev.number)

    @catch_error(for_steps=["read"], max_recoveries=1)
    async def mend(self, ev: StepFailedEvent) -> Text:
        """Take over when the attempts are used up: a lost page counts as empty."""
        print(f"{ev.step_name} gave up after {ev.attempts} attempt(s): {ev.exception}")
        assert isinstance(ev.input_event, Page)
        return Text(number=ev.input_event.number, words=0)

    @step
    async def count(self, texts: list[Text]) -> StopEvent:
        """Join: runs once, when all work of the stream is settled."""
        return StopEvent(result=sum(text.words for text in texts))


async def main() -> None:
    """Read a book."""
    print("words:", await Book(timeout=60).run(pages=100))


if __name__ == "__main__":
    asyncio.run(main())
