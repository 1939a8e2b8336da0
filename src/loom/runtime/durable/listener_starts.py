"""Starts of runs for the items that a trigger was fired with: each once, whatever dies in between."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from loom.effects.flow_codec import FlowStartEvent
from loom.runtime.durable.listener_firings import firing
from loom.runtime.durable.stored_definitions import DefinitionNotFound
from loom.store.errors import RunExists, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom.runtime.durable.registration import Registration
    from loom.runtime.durable.worker import WorkerRuntime

_log = logging.getLogger("loom.durable")

STARTED_TAG = "loom.trigger"
"""The tag with a trigger's name, of the runs that its listener has started."""

_AT_ONCE = 128
"""How many starts are under way at once. They share transactions, and what follows on one leaves others their turn."""


class StartedItems(NamedTuple):
    """What became of the items."""

    run_ids: dict[int, str]
    """The ids of the runs by the index of their item."""
    problems: list[str]

    def firing(self, at: float, *, by_hand: bool = False) -> dict[str, Any]:
        """Say it as a firing."""
        more = f" And {len(self.problems) - 1} more." if len(self.problems) > 1 else ""
        return firing(
            at,
            "failed" if self.problems else "data",
            "StartRefused" if self.problems else "OK",
            f"{self.problems[0]}{more}" if self.problems else "",
            by_hand=by_hand,
            runs=len(self.run_ids),
            run_id=self.run_ids[min(self.run_ids)] if self.run_ids else "",
        )


class ItemStarts:
    """Starts the runs of one firing. Their ids follow from the firing and the item, so a repetition finds its runs."""

    def __init__(self, worker: WorkerRuntime, flow: str, trigger: str, firing_id: str) -> None:
        self._worker = worker
        self._flow = flow
        self._trigger = trigger
        self._firing_id = firing_id
        self._run_ids: dict[int, str] = {}
        self._problems: list[str] = []

    async def start(self, items: Sequence[Any], outputs: dict[str, Any]) -> StartedItems:
        """Start a run for each item, some at a time. All that can be stored are stored when this returns."""
        try:
            code = await self._worker.definitions.code_for(self._flow)
        except DefinitionNotFound as error:
            return StartedItems({}, [str(error)])
        headers = outputs.get("headers")
        event = FlowStartEvent(
            headers=headers if isinstance(headers, dict) else {},
            trigger=self._trigger,
            outputs={key: value for key, value in outputs.items() if key != "headers"},
        )
        waiting = iter(range(len(items)))

        async def work() -> None:
            for index in waiting:
                await self._start(index, event.model_copy(update={"body": items[index]}), code)

        # All of them are waited for: none is under way any more when this is repeated.
        for failed in await asyncio.gather(*(work() for _ in range(min(len(items), _AT_ONCE))), return_exceptions=True):
            if failed is not None:
                raise failed
        if self._problems:
            _log.error("The trigger %s of %s could not start a run: %s", self._trigger, self._flow, self._problems[0])
        return StartedItems(self._run_ids, self._problems)

    async def _start(self, index: int, event: FlowStartEvent, code: Registration | None) -> None:
        run_id = f"{self._firing_id}:{index}"
        try:
            tags = {STARTED_TAG: self._trigger}
            await self._worker.starter.begin(self._flow, event, run_id=run_id, tags=tags, code=code)
        except RunExists as error:
            if (await self._worker.row(run_id)).workflow != self._flow:
                self._problems.append(f"Item {index}: {error}")
                return  # else it was started before a crash, where the flow was another one
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever this start is refused for, the others may be fine
            self._problems.append(f"Item {index}: {type(error).__name__}: {error}")
            return
        self._run_ids[index] = run_id
