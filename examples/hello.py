"""The smallest workflow: two steps and one event between them."""

from __future__ import annotations

import asyncio

from loom import Event, StartEvent, StopEvent, Workflow, step


class Topic(StartEvent):
    """What to write about."""

    topic: str


class Drafted(Event):
    """A text that is not finished."""

    text: str


class Article(Workflow):
    """Drafts a sentence and polishes it."""

    @step
    async def draft(self, ev: Topic) -> Drafted:
        """Take the `Topic` that `run(topic=...)` makes."""
        return Drafted(text=f"a few words on {ev.topic}")

    @step
    async def polish(self, ev: Drafted) -> StopEvent:
        """Take what `draft` returned; a `StopEvent` ends the run."""
        return StopEvent(result=ev.text.capitalize() + ".")


async def main() -> None:
    """Run it once."""
    print(await Article(timeout=60).run(topic="looms"))


if __name__ == "__main__":
    asyncio.run(main())
