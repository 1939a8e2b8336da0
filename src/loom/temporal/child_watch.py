"""Finds children that were ended from outside after their parent had gone on in a new execution.

A child tells its parent itself how it ended. One that was terminated cannot, and the server tells it only to the
execution that began the child. So a worker that has a later execution of the parent in memory asks the server now and
then how such children are, and tells the parent of one that was ended: a letter, as the child would have sent it. The
reducer drops what it knows, so it does no harm if several workers do so.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from temporalio.client import WorkflowExecutionStatus, WorkflowHistoryEventFilterType
from temporalio.service import RPCError, RPCStatusCode

from loom.core.ticks import TickChildEnded
from loom.temporal.closing import ended_from_outside
from loom.temporal.code_news import on_loop
from loom.temporal.link import ClientLink, RunGone, RunUnreachable
from loom.temporal.names import SIGNAL_MAIL
from loom.temporal.payloads import Letter
from loom.temporal.query_client import in_time
from loom.temporal.rows import how_closed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from temporalio.client import Client, WorkflowHandle

    from loom.temporal.runner import LoomRunner

_log = logging.getLogger("loom.temporal")

_PAUSE_S = 10.0
"""The time between two looks."""
_AT_ONCE = 200
"""How many children are asked for with one look. The others have their turn with the next ones."""
_CALLS = 10
"""How many questions are open at a time."""
_WATCHED = 10_000
"""How many children a worker has in mind. Above that it forgets those that it was told of first."""
_PATIENCE = timedelta(seconds=10)

_WITHOUT_A_WORD = frozenset({WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.TIMED_OUT})
"""How an execution closes that its run knows nothing of. All others have told their parent before they closed."""


class _Watched(NamedTuple):
    """A child, by the number under which its parent waits for it."""

    parent: str
    number: int


class ChildWatch:
    """The children that a worker watches, for parents that it has had in memory."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._children: dict[_Watched, str] = {}
        """The run ids of children, the one whose turn is next first."""
        self._looking: asyncio.Task[None] | None = None
        self._has_complained = False

    def listen(self, runner: LoomRunner) -> None:
        """Hear of children, from any thread; on the event loop that runs now."""
        loop = asyncio.get_running_loop()
        runner.on_children = lambda *told: on_loop(loop, self.add, *told)

    async def close(self) -> None:
        """Watch nothing any more."""
        looking, self._looking = self._looking, None
        self._children.clear()
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def add(self, parent: str, children: Mapping[int, str]) -> None:
        """Watch children of a run, by their numbers, until they have closed."""
        for number, run_id in children.items():
            self._children.setdefault(_Watched(parent, number), run_id)
        while len(self._children) > _WATCHED:
            del self._children[next(iter(self._children))]
            if not self._has_complained:
                self._has_complained = True
                _log.warning(
                    "More than %s child runs began before their parents went on in a new execution. If some of them "
                    "are terminated on Temporal, their parents may hear of it late.",
                    _WATCHED,
                )
        if self._children and (self._looking is None or self._looking.done()):
            self._looking = asyncio.get_running_loop().create_task(self._look_on(), name="loom children")

    async def _look_on(self) -> None:
        while self._children:
            await asyncio.sleep(_PAUSE_S)
            turn = dict(list(self._children.items())[:_AT_ONCE])
            for child in turn:
                del self._children[child]
            calls = asyncio.Semaphore(_CALLS)
            looks = await asyncio.gather(*(self._has_closed(child, run_id, calls) for child, run_id in turn.items()))
            for (child, run_id), has_closed in zip(turn.items(), looks, strict=True):
                if not has_closed:
                    self._children[child] = run_id  # behind those that wait for their turn

    async def _has_closed(self, child: _Watched, run_id: str, calls: asyncio.Semaphore) -> bool:
        """Look at one child, and tell its parent if it cannot do so itself. False: it is to be looked at again."""
        async with calls:
            try:
                return await self._look(child, run_id)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    _log.warning("Run %s waits for its child %s, which is not on the cluster.", child.parent, run_id)
                    return True
                _log.debug("The child run %s was not seen: %s", run_id, error)
            except RunGone:
                return True  # nobody wants to know
            except RunUnreachable as error:
                _log.debug("Run %s was not told of its child: %s", child.parent, error)
            except Exception:  # noqa: BLE001 - whatever it is, the log tells it, and the next look may be fine
                _log.exception("The child run %s could not be looked at, and will be again.", run_id)
        return False

    async def _look(self, child: _Watched, run_id: str) -> bool:
        client = self._client()
        handle = client.get_workflow_handle(run_id)
        status = (await in_time(handle.describe(rpc_timeout=_PATIENCE))).status
        if status is WorkflowExecutionStatus.RUNNING or status is WorkflowExecutionStatus.CONTINUED_AS_NEW:
            return False
        if status in _WITHOUT_A_WORD:
            failure = ended_from_outside(run_id, await _how(handle))
            tick = TickChildEnded(at=0.0, child=child.number, status="failed", failure=failure)
            await ClientLink(client, child.parent).signal(SIGNAL_MAIL, Letter(tick))
        return True


async def _how(handle: WorkflowHandle[object, object]) -> str:
    """Give the words for the event that closed an execution."""
    closing = WorkflowHistoryEventFilterType.CLOSE_EVENT
    event = await in_time(anext(handle.fetch_history_events(event_filter_type=closing, rpc_timeout=_PATIENCE), None))
    return "" if event is None else how_closed(event)
