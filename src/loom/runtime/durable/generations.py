"""Generations of a run that a name has: what stands under the name is replaced by another run, which is the next one.

Schedules and the listeners of triggers are such runs. The newest generation counts. Older ones are cancelled, and look
for their successor themselves if that was lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from loom.core.ticks import TickCancelRun, TickContinueRun, TickPauseRun
from loom.effects.flow_codec import AnyEventCodec
from loom.runtime.durable import history
from loom.store import codec
from loom.store.operations import PostMessage, Started, StartRun
from loom.store.records import RunQuery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from loom.runtime.durable.run_client import RunClient
    from loom.store.records import RunRow

_PAGE = 200
_ATTEMPTS = 20


class Generation(NamedTuple):
    """One run of a name, as it was found."""

    number: int
    row: RunRow
    is_alive: bool = False
    """It runs, and nobody has cancelled it."""
    is_paused: bool = False


class Generations:
    """Makes, finds and ends the runs of names, in one store."""

    def __init__(
        self, runs: RunClient, tag: str, run_id_of: Callable[[str, int], str], *, cleans_up: bool = False
    ) -> None:
        self._runs = runs
        self._cleans_up = cleans_up
        """Whether the runs have a clean-up step: then a look at a running one needs its state."""
        self._tag = tag
        """The tag of such a run that holds its name."""
        self._run_id_of = run_id_of

    def identity(self, row: RunRow) -> tuple[str, int]:
        """Return the name and the number of the generation that a run is."""
        name = row.tags.get(self._tag, "")
        rest = row.run_id.removeprefix(self._run_id_of(name, 1)).removeprefix(":")
        return name, int(rest) if rest.isdecimal() else 1

    # -- making -------------------------------------------------------------------------------------------------------

    async def keep(
        self,
        name: str,
        workflow: str,
        fields_of: Callable[[int], dict[str, Any]],
        tags: dict[str, str],
        *,
        ends: bool = True,
    ) -> None:
        """Make sure that a run is there that begins with these fields, which depend on its generation.

        If it `ends`, a run that has come to its end counts as there: it has nothing to do any more.
        """
        for _ in range(_ATTEMPTS):
            found = await self.of(name, workflow)
            number = found[0].number if found else 1
            is_over = bool(found) and ends and found[0].row.head.status == "completed"
            stays = not found or found[0].is_alive or is_over
            if stays and await self._is_stored(name, workflow, number, fields_of(number), tags):
                break
            if found and await self._is_stored(name, workflow, number + 1, fields_of(number + 1), tags):
                if found[0].is_alive and found[0].is_paused:
                    await self._ask(self._run_id_of(name, number + 1), TickPauseRun(at=self._runs.now()))
                break
            # Another process was quicker: what it has stored is replaced.
        else:
            raise ValueError(f"The run_id {self._run_id_of(name, 1)!r} belongs to another run: choose another name.")
        await self.cancel((await self.of(name, workflow))[1:])

    async def _is_stored(
        self, name: str, workflow: str, number: int, fields: dict[str, Any], tags: dict[str, str]
    ) -> bool:
        """Store one generation. False if this generation is another one."""
        start = codec.encode_start(codec.StartSpec(inputs=AnyEventCodec().value(fields)))
        operation = StartRun(
            self._run_id_of(name, number),
            workflow,
            start,
            self._runs.now(),
            tags={**tags, self._tag: name},
            downtime=await self._runs.downtime(),
        )
        started = await self._runs.committer.submit(self._runs.signed_start(operation))
        assert isinstance(started, Started)
        return started.created or (started.workflow == workflow and started.start == start)

    async def cancel(self, generations: Sequence[Generation]) -> None:
        """Cancel those that are alive."""
        for generation in generations:
            if generation.is_alive:
                await self._ask(generation.row.run_id, TickCancelRun(at=self._runs.now()))

    async def _ask(self, run_id: str, tick: TickCancelRun | TickPauseRun) -> None:
        """Ask something of a generation. One that has ended since refuses it, and that is as good."""
        await self._runs.committer.submit(PostMessage(run_id, codec.encode_tick(tick), tick.at))

    # -- finding ------------------------------------------------------------------------------------------------------

    async def rows(self, workflow: str, tags: dict[str, str], *, running: bool = False) -> list[RunRow]:
        """List the rows of all generations of all names that have these tags."""
        query = RunQuery(workflow=workflow, tags=tags, status="running" if running else None, limit=_PAGE)
        rows: list[RunRow] = []
        while found := await self._runs.store.find(query):
            # Forks have the tags of their source, and another id.
            rows += [row for row in found if row.run_id == self._run_id_of(*self.identity(row))]
            query = msgspec.structs.replace(query, after=(found[-1].created_at, found[-1].run_id))
        return rows

    async def of(self, name: str, workflow: str) -> list[Generation]:
        """List all generations of a name that are stored, newest first."""
        rows = {self.identity(row)[1]: row for row in await self.rows(workflow, {self._tag: name})}
        # Not every store lists at once what another process has stored just now; by its id it is there.
        number = max(rows, default=0) + 1
        while (row := await self.row(name, workflow, number)) is not None:
            rows[number] = row
            number += 1
        return [await self.seen(number, rows[number]) for number in sorted(rows, reverse=True)]

    async def row(self, name: str, workflow: str, number: int) -> RunRow | None:
        """Return the row of one generation; None if it is not stored."""
        row = await self._runs.store.get(self._run_id_of(name, number))
        return row if row is not None and row.workflow == workflow else None

    async def is_replaced(self, name: str, workflow: str, number: int) -> bool:
        """Tell whether there is a newer generation."""
        return await self.row(name, workflow, number + 1) is not None

    async def seen(self, number: int, row: RunRow) -> Generation:
        """Return a generation as it is now. What it was asked for counts, whether its run has done it yet or not."""
        if row.head.status != "running":
            return Generation(number, row)
        # In this order: an owner that takes a cancellation from the inbox ends the run in the same transaction, or has
        # begun its clean-up.
        messages = await self._runs.store.inbox(row.run_id, 0)
        latest = await self._runs.store.get(row.run_id) or row
        asked = [codec.decode_tick(item.data, row.run_id) for item in messages]
        is_cancelled = any(isinstance(tick, TickCancelRun) for tick in asked) or await self._is_at_cleanup(latest)
        turns = [tick for tick in asked if isinstance(tick, TickPauseRun | TickContinueRun)]
        is_paused = isinstance(turns[-1], TickPauseRun) if turns else latest.head.paused
        return Generation(number, latest, latest.head.status == "running" and not is_cancelled, is_paused)

    async def _is_at_cleanup(self, row: RunRow) -> bool:
        """Tell whether a run was cancelled, and is not through with its clean-up."""
        if not self._cleans_up or row.head.status != "running":
            return False
        return (await history.state_at(self._runs.store, row, AnyEventCodec().field, None)).cleanup is not None
