"""What one writes without Loom: workflows and activities of temporalio, as its documentation shows them."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity, workflow

_A_MINUTE = timedelta(minutes=1)


@dataclass
class Link:
    """What an activity hands on to the next one."""

    n: int
    text: str


@activity.defn
async def go_on(link: Link) -> Link:
    return Link(link.n + 1, link.text)


@workflow.defn
class Chain:
    """Activities one after the other."""

    @workflow.run
    async def run(self, steps: int, text: str) -> int:
        link = Link(0, text)
        while link.n < steps:
            link = await workflow.execute_activity(go_on, link, start_to_close_timeout=_A_MINUTE)
        return link.n


@workflow.defn
class Inbox:
    """An activity for every signal."""

    def __init__(self) -> None:
        self._links: list[Link] = []

    @workflow.run
    async def run(self) -> None:
        while True:
            await workflow.wait_condition(lambda: bool(self._links))
            await workflow.execute_activity(go_on, self._links.pop(0), start_to_close_timeout=_A_MINUTE)

    @workflow.signal
    def add(self, link: Link) -> None:
        self._links.append(link)
