"""Calls to runs on a cluster: deadlines, refused and lost queries, and the link of an activity to its run.

Workers refuse queries that would be answered from what may never be recorded (see `loom.temporal.workflow.queries`),
and drop the run from memory. Core loses queries then: of the tasks that waited for the run's turn only the first goes
on. The server gives the others out again after the sticky timeout, once. So a query is asked again within the caller's
patience, and no single call is given all of it.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from temporalio.client import WorkflowQueryFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from loom.temporal.names import ASK_AGAIN
from loom.temporal.payloads import payload_of, value_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    import msgspec
    from temporalio.api.common.v1 import Payload
    from temporalio.client import Client, WorkflowHandle
    from temporalio.common import QueryRejectCondition

T = TypeVar("T")

# -- calls and queries ------------------------------------------------------------------------------------------------

PATIENT_S = 10.0
"""Seconds that a call, or a query that must be answered, may take."""

_GRACE_S = 5.0
"""Seconds after its deadline at which a call is given up that the SDK has not ended."""
_CALL_S = 2.0
"""Seconds that the first call may take. Each further one may take twice as long: a worker may have much to replay."""
_PAUSE_S, _PAUSE_MAX_S = 0.02, 0.5
"""Pauses before a refused query is asked again: the task that the run waits for is under way as a rule."""
_TIMED_OUT = {RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED}


async def in_time(call: Awaitable[T], limit_s: float = PATIENT_S) -> T:
    """Await a call to the server, and give it up a while after its own deadline, which is `limit_s` seconds.

    If a server dies during a call, the SDK now and then neither fails the call nor ends it at its deadline: clients
    waited for ever for runs that had completed.
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
    """Ask a run until it answers or `patience_s` seconds are over; then raise the error of the last call."""
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
    caller never gets the answer to a query that had left before it asked, so it sees its own earlier writes.
    """

    def __init__(self) -> None:
        self._left: dict[Hashable, asyncio.Task[Payload]] = {}
        """Queries that are under way."""
        self._next: dict[Hashable, asyncio.Task[Payload]] = {}
        """Queries that leave when the one before them is answered."""

    async def ask(self, key: Hashable, call: Callable[[], Awaitable[Payload]]) -> Payload:
        """Ask, or share the query of a caller that asks the same. `key` names all that a call depends on."""
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
        """Cancel all queries."""
        for task in (*self._left.values(), *self._next.values()):
            task.cancel()
        self._left, self._next = {}, {}


def _see(task: asyncio.Task[Payload]) -> None:
    """Read the error of a query: its callers may be gone."""
    if not task.cancelled():
        task.exception()


def is_refusal(error: WorkflowQueryFailedError) -> bool:
    """Say whether a worker refused to answer from what may never be recorded."""
    return str(error).startswith(ASK_AGAIN)


# -- the link of an activity ------------------------------------------------------------------------------------------

_ATTEMPTS = 4
_FIRST_DELAY_S = 0.2
_PASSING = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.ABORTED,
        RPCStatusCode.INTERNAL,
        RPCStatusCode.UNKNOWN,
    }
)
"""Trouble that may be over in a moment: the call is made again. `FAILED_PRECONDITION` means that a task of the run was
lost with its worker and is not done again yet."""


class RunGone(Exception):
    """The run has closed: what its bodies do is not wanted any more."""


class RunUnreachable(Exception):
    """The run could not be told or asked: the cluster tries the activity again, on any worker."""


class RunLink(Protocol):
    """The way from an activity to the run that it works for.

    A link names the run's execution: what is sent to a closed execution never reaches the next one.
    """

    async def signal(self, name: str, value: msgspec.Struct) -> None:
        """Tell the run something. It is durable when this returns; it may arrive twice."""
        ...

    async def query(self, name: str, value: msgspec.Struct | None, expected: type[T]) -> T:
        """Ask the run something. It has taken in all signals that were sent before."""
        ...


class ClientLink:
    """The link through a client of the cluster. Without an execution it reaches the newest one."""

    def __init__(self, client: Client, run_id: str, execution: str | None = None) -> None:
        self._run_id = run_id
        self._handle = client.get_workflow_handle(run_id, run_id=execution)

    async def signal(self, name: str, value: msgspec.Struct) -> None:
        """Tell the run something."""
        content = RawValue(payload_of(value))
        await self._tried(f"be sent {name}", lambda: self._handle.signal(name, content))

    async def query(self, name: str, value: msgspec.Struct | None, expected: type[T]) -> T:
        """Ask the run something."""
        content = [] if value is None else [RawValue(payload_of(value))]
        answer: Payload = await self._tried(f"be asked {name}", lambda: ask(self._handle, name, content))
        return value_of(answer, expected)

    async def _tried(self, what: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call, and make it again a few times if the server has trouble."""
        delay = _FIRST_DELAY_S
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await call()
            except RPCError as error:
                if error.status == RPCStatusCode.NOT_FOUND:
                    raise RunGone(f"Run {self._run_id} cannot {what}: it has closed.") from error
                if error.status not in _PASSING or attempt == _ATTEMPTS:
                    raise RunUnreachable(f"Run {self._run_id} could not {what}: {error}") from error
            except WorkflowQueryFailedError as error:
                if not is_refusal(error) or attempt == _ATTEMPTS:
                    raise RunUnreachable(f"Run {self._run_id} could not {what}: {error}") from error
            await asyncio.sleep(delay)
            delay *= 2
        raise AssertionError("the last attempt returns or raises")
