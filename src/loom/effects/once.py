"""Results that are worked out once per work item: `ctx.once`. May import loom.core and effects.execution's types.

A result is recorded with its work item, and the body goes on when that is committed. Whatever runs the body again finds
the record and does not work the result out again.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from loom.core.body_effects import once_key
from loom.core.ticks import TickRecordResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.ticks import Source
    from loom.effects.execution import StepExecution


class Recorder:
    """The recorded results of one execution."""

    __slots__ = ("_execution", "_locks", "_records")

    def __init__(self, execution: StepExecution) -> None:
        self._execution = execution
        self._records: dict[str, Any] = dict(execution.command.records)
        self._locks: dict[str, asyncio.Lock] = {}

    async def result(self, source: Source, name: str, make: Callable[[], Any]) -> Any:
        """The recorded result, or the one that is worked out and recorded now. A failing `make` records nothing."""
        execution = self._execution
        earlier = execution.command.item.effects.get(source.ordinal)
        if earlier is not None and earlier != once_key(name):
            # The code has changed under the run, which the run shall say before anything is worked out.
            return await self._record(source, name, None)
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name not in self._records:
                # A process that slept past its lease finds the body where it left it; the run has another owner now.
                if (lease := execution.host.lease()) is not None:
                    await lease
                value = make()
                if inspect.isawaitable(value):
                    value = await value
                self._records[name] = await self._record(source, name, execution.host.convert.value(value))
        return execution.host.convert.read_value(self._records[name])

    async def _record(self, source: Source, name: str, value: Any) -> Any:
        """Tell the run, and go on when it has been committed."""
        execution = self._execution
        tick = TickRecordResult(at=execution.host.now(), source=source, name=name, value=value, writes=execution.writes)
        return (await execution.answer_to(tick, once_key(name))).value
