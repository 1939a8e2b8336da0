"""The way from an activity to the run that it works for: signals and queries. May import temporalio.

The run is addressed with its Temporal run id: what is said to an execution that has closed never reaches the next one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from temporalio.client import WorkflowQueryFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from loom.temporal.payloads import payload_of, value_of
from loom.temporal.query_client import ask, is_refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import msgspec
    from temporalio.api.common.v1 import Payload
    from temporalio.client import Client

T = TypeVar("T")

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
"""What may be over in a moment: the call is made again. A precondition is that a task of the run, which was lost with
its worker, is done."""


class RunGone(Exception):
    """The run has closed: nobody wants what its bodies do any more."""


class RunUnreachable(Exception):
    """The run could not be told or asked: the activity is tried again, here or elsewhere."""


class RunLink(Protocol):
    """What an activity says to its run and asks it."""

    async def signal(self, name: str, value: msgspec.Struct) -> None:
        """Tell the run something. It is durable when this returns; it may arrive twice."""
        ...

    async def query(self, name: str, value: msgspec.Struct | None, expected: type[T]) -> T:
        """Ask the run something. It has taken in all signals that were sent before."""
        ...


class ClientLink:
    """The link through a client of the cluster."""

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
        """The result of a call that is made again a few times if the server has trouble."""
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
