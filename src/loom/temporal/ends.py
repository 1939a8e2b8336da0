"""Who waits for the end of runs on a cluster: the server is asked to tell it at once.

May import temporalio's client, and who waits in loom.runtime.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING
from weakref import WeakSet

from temporalio.client import WorkflowHistoryEventFilterType
from temporalio.service import RPCError, RPCStatusCode
from typing_extensions import override

from loom.runtime.durable.watching import Watchers

if TYPE_CHECKING:
    from collections.abc import Callable

    from temporalio.client import Client

    from loom.runtime.durable.watching import News

_ASKED_S = 20.0
"""A question is open for so long; then it is seen whether somebody still wants to know."""
_AGAIN_S = 1.0
"""After so long a cluster is asked again that could not answer."""


class Endings(Watchers):
    """Futures by run, as everywhere. While somebody waits for a run, one question to the server is open."""

    __slots__ = ("_asking", "_client", "_given")

    def __init__(self, client: Callable[[], Client]) -> None:
        super().__init__()
        self._client = client
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._given: WeakSet[News] = WeakSet()

    @override
    def subscribe(self, run_id: str) -> News:
        future = super().subscribe(run_id)
        self._given.add(future)
        if run_id not in self._asking:
            self._asking[run_id] = asyncio.get_running_loop().create_task(self._ask(run_id), name=f"end of {run_id}")
        return future

    def __contains__(self, future: News) -> bool:
        """Whether a future was given here: then the server tells, and there is no need to look."""
        return future in self._given

    async def _ask(self, run_id: str) -> None:
        """Wait until an execution of the run is closed, for as long as somebody wants to know."""
        try:
            while run_id in self._waiting and not await self._is_closed(run_id):
                pass
        finally:
            self._asking.pop(run_id, None)
        self.wake(run_id)  # whoever sees that the run goes on in another execution asks again

    async def _is_closed(self, run_id: str) -> bool:
        try:
            async with asyncio.timeout(_ASKED_S):
                return await self._has_close_event(run_id)
        except TimeoutError:
            return False
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                await asyncio.sleep(_AGAIN_S)
            return True  # whoever waits looks, and is told what is wrong

    async def _has_close_event(self, run_id: str) -> bool:
        async for _event in (
            self._client()
            .get_workflow_handle(run_id)
            .fetch_history_events(
                wait_new_event=True,
                event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT,
                skip_archival=True,
                rpc_timeout=timedelta(seconds=2 * _ASKED_S),
            )
        ):
            return True
        return False

    async def close(self) -> None:
        """Ask no more, and let go of all who wait."""
        asking = list(self._asking.values())
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        self.wake_all()
