"""Asks runs on a cluster. A query that a worker refuses, or loses, is asked again within the caller's patience.

Workers refuse queries that would be answered from what may never be recorded (`history_shield`), and drop the run from
memory. Core loses queries then: of the tasks that waited for the run's turn only the first goes on. The server gives
the others out again after the sticky timeout, once. So no single call is given all of the caller's patience.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio.client import WorkflowQueryFailedError
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from loom.temporal.history_shield import ASK_AGAIN

if TYPE_CHECKING:
    from temporalio.api.common.v1 import Payload
    from temporalio.client import WorkflowHandle
    from temporalio.common import QueryRejectCondition

PATIENT_S = 10.0
"""How long a call, or a query that must be answered, may take."""

_CALL_S = 2.0
"""How long the first call may take. Each further one may take twice as long: a worker may have much to replay."""
_PAUSE_S, _PAUSE_MAX_S = 0.02, 0.5
"""The pauses before a refused query is asked again: the task that the run waits for is under way as a rule."""
_TIMED_OUT = {RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED}


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
            answer: RawValue = await handle.query(
                name,
                args=arguments,
                result_type=RawValue,
                reject_condition=reject,
                rpc_timeout=timedelta(seconds=limit_s),
            )
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


def is_refusal(error: WorkflowQueryFailedError) -> bool:
    """Say whether a worker refused to answer from what may never be recorded."""
    return str(error).startswith(ASK_AGAIN)
