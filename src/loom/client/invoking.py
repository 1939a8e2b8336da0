"""Flows of a server as endpoints: what they answer. May import the rest of loom.client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom.client.exchange import act, decoded, segment
from loom.client.models import Page, Run

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2

    from loom.client.exchange import Exchange

_ANSWERED_BY = "Loom-Run-ID"
_LONGEST_WAIT = 60.0


class Invoked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request to a flow: its answer, or the runs that have none (yet)."""

    status: int
    headers: dict[str, str]
    content: bytes
    run_id: str | None = None
    """The run that has answered; None if none has."""
    runs: list[Run] = []
    """Without an answer: the run, or those that the flow's `splitOn` has started."""

    @property
    def text(self) -> str:
        """The answer as text."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The answer as JSON; None if it is empty."""
        return msgspec.json.decode(self.content) if self.content else None


class InvokeCalls:
    """Flows of a server as endpoints."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def invoke(
        self,
        workflow: str,
        body: Any = None,
        *,
        path: str = "",
        queries: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        wait: float | None = None,
        idempotency_key: str | None = None,
    ) -> Invoked:
        """Fire the trigger of a flow, and get what its Response action answers, whatever its status is.

        `body` is any JSON, or bytes whose type is in `headers`. Without an answer within `wait` seconds, at most 60,
        there is the run to ask.
        """
        below = "".join(f"/{segment(part, 'part of a path')}" for part in path.strip("/").split("/") if part)
        call = act(
            f"/v1/definitions/{segment(workflow, 'name of a workflow')}/invoke{below}",
            key=idempotency_key,
            params={**(queries or {}), "wait": wait},
            wait=_LONGEST_WAIT if wait is None else wait,
            marked_by=_ANSWERED_BY,
        )
        call = msgspec.structs.replace(call, body=body, headers={**(headers or {}), **call.headers})
        response = await self._exchange.send(call)
        run_id = response.headers.get(_ANSWERED_BY)
        return Invoked(
            status=response.status_code,
            headers=dict(response.headers),
            content=response.content,
            run_id=run_id,
            runs=_runs(response) if run_id is None else [],
        )


def _runs(response: httpx2.Response) -> list[Run]:
    """The run that has not answered, or all those that one request has started."""
    found = decoded(response, dict[str, Any])
    return decoded(response, Page[Run]).items if "items" in found else [decoded(response, Run)]
