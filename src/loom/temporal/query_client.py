"""Asks runs on a cluster. A query that a worker refuses, or loses, is asked again within the caller's patience.

Workers refuse queries that would be answered from what may never be recorded (`history_shield`), and drop the run from
memory. Core loses queries then: of the tasks that waited for the run's turn only the first goes on. The server gives
the others out again after the sticky timeout, once. So no single call is given all of the caller's patience.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from temporalio.client import WorkflowQueryFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from loom.temporal.history_shield import ASK_AGAIN

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from temporalio.api.common.v1 import Payload
    from temporalio.client import WorkflowHandle
    from temporalio.common import QueryRejectCondition

T = TypeVar("T")

PATIENT_S = 10.0
"""How long a call, or a query that must be answered, may take."""

_GRACE_S = 5.0
"""How long after its deadline a call is given up that the SDK has not ended."""
_CALL_S = 2.0
"""How long the first call may take. Each further one may take twice as long: a worker may have much to replay."""
_PAUSE_S, _PAUSE_MAX_S = 0.02, 0.5
"""The pauses before a refused query is asked again: the task that the run waits for is under way as a rule."""
_TIMED_OUT = {RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED}


async def in_time(call: Awaitable[T], limit_s: float = PATIENT_S) -> T:
    """Await a call to the server, and give it up a while after its own deadline, which is `limit_s`.

    If a server dies while a call is under way, the SDK now and then neither fails the call nor ends it at its deadline:
    clients waited for ever for runs that had completed.
    """
    try:
        async with asyncio.timeout(limit_s + _GRACE_S):
            return await call
    except TimeoutError as error:
        message = "the server has not answered, and the call did not end at its deadline"
        raise RPCError(message, RPCStatusCode.DEADLINE_EXCEEDED, b"") from error


async def ask(
    handle: WorkflowHandle[Any, Any],
    name: str,
    arguments: list[RawValue],
    *,
    patience_s: float = PATIENT_S,
    reject: QueryRejectCondition | None = None,
) -> Payload:
    """Ask a run until it answers or `patience_s` is over; then the error of the last call is raised."""
    now = asyncio.get_running_loop().time
    ends_at = now() + patience_s
    call_s, pause_s = min(_CALL_S, patience_s / 2), _PAUSE_S
    while True:
        limit_s = max(min(call_s, ends_at - now()), _PAUSE_S)
        try:
            query = handle.query(
                name,
                args=arguments,
                result_type=RawValue,
                reject_condition=reject,
                rpc_timeout=timedelta(seconds=limit_s),
            )
            answer: RawValue = await in_time(query, limit_s)
            return answer.payload
        except RPCError as error:
            if error.status not in _TIMED_OUT or now() >= ends_at:
                raise
            call_s *= 2
        except WorkflowQueryFailedError as error:
            if not is_refusal(error) or now() + pause_s >= ends_at:
                raise
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _PAUSE_MAX_S)


class SharedQueries:
    """Lets callers that ask a run the same thing at the same time share one query.

    The server keeps one query of a run that is at work and refuses others, which the SDK repeats after a second. A
    caller never gets the answer to a query that had left before it asked: it has what the caller did before.
    """

    def __init__(self) -> None:
        self._left: dict[Hashable, asyncio.Task[Payload]] = {}
        """Queries that are under way."""
        self._next: dict[Hashable, asyncio.Task[Payload]] = {}
        """Queries that leave when the one before them is answered."""

    async def ask(self, key: Hashable, call: Callable[[], Awaitable[Payload]]) -> Payload:
        """Ask, or share the query of a caller that asks the same. `key` tells all that a call depends on."""
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = asyncio.create_task(self._take_turn(key, call))
            task.add_done_callback(_see)
        return await asyncio.shield(task)

    async def _take_turn(self, key: Hashable, call: Callable[[], Awaitable[Payload]]) -> Payload:
        before = self._left.get(key)
        if before is not None:
            await asyncio.wait([before])
        task = self._left[key] = self._next.pop(key)
        try:
            return await call()
        finally:
            if self._left.get(key) is task:
                del self._left[key]

    def close(self) -> None:
        """End what nobody waits for any more."""
        for task in (*self._left.values(), *self._next.values()):
            task.cancel()
        self._left, self._next = {}, {}


def _see(task: asyncio.Task[Payload]) -> None:
    """Look at the error of a query: if its callers are gone, nobody else does."""
    if not task.cancelled():
        task.exception()


def is_refusal(error: WorkflowQueryFailedError) -> bool:
    """Say whether a worker refused to answer from what may never be recorded."""
    return str(error).startswith(ASK_AGAIN)
