"""Schedules of a server: recurring starts. May import the rest of loom.client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.client.exchange import Call, act, given, read, segment
from loom.client.models import Page, Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom.client.exchange import Exchange

_ALL = "/v1/schedules"


class ScheduleCalls:
    """What can be asked of a server about schedules."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def schedules(self) -> Sequence[Schedule]:
        """The recurring starts, by their names."""
        found: list[Schedule] = []
        cursor: str | None = None
        while True:
            page = await self._exchange.ask(read(_ALL, params={"cursor": cursor}), Page[Schedule])
            found += page.items
            if (cursor := page.next_cursor) is None:
                return found

    async def get_schedule(self, name: str) -> Schedule:
        """A recurring start by its name."""
        return await self._exchange.ask(read(_path(name)), Schedule)

    async def schedule(  # noqa: PLR0913 - all by name
        self,
        name: str,
        workflow: str,
        *,
        cron: str | None = None,
        every: float | None = None,
        recurrence: Mapping[str, Any] | None = None,
        time_zone: str | None = None,
        input: Any = None,  # noqa: A002 - what it is called elsewhere
        parameters: Mapping[str, Any] | None = None,
        variables: Mapping[str, Any] | None = None,
        tags: Mapping[str, str] | None = None,
        catch_up: bool | None = None,
        paused: bool | None = None,
    ) -> Schedule:
        """Start runs again and again: by `cron`, `every` so many seconds, or by a `recurrence`.

        The same again changes nothing; something else under the same name replaces what was there. Of occurrences
        that were missed, only the last one starts a run, unless it shall `catch_up`.
        """
        when = given(cron=cron, every=every, recurrence=recurrence, time_zone=time_zone, catch_up=catch_up)
        what = given(input=input, parameters=parameters, variables=variables, tags=tags, paused=paused)
        body = {"name": name, "workflow": workflow, **when, **what}
        return await self._exchange.ask(act(_ALL, body), Schedule)

    async def pause_schedule(self, name: str) -> Schedule:
        """Let a schedule start nothing for a while."""
        return await self._exchange.ask(act(f"{_path(name)}/pause"), Schedule)

    async def resume_schedule(self, name: str) -> Schedule:
        """Let a paused schedule go on."""
        return await self._exchange.ask(act(f"{_path(name)}/resume"), Schedule)

    async def delete_schedule(self, name: str) -> None:
        """End a schedule. What it has started goes on."""
        await self._exchange.send(Call(method="DELETE", path=_path(name)))


def _path(name: str) -> str:
    return f"{_ALL}/{segment(name, 'name of a schedule')}"
