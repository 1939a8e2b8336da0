"""What comes of a request to a flow that is an endpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from loom.api.answers import Page
from loom.api.runs import Run
from loom.client.exchange import ApiCall, act, decoded, refusal, segment

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2

ANSWERED_BY = "Loom-Run-ID"
"""The header with the run that a request to a flow has started."""
LONGEST_RESPONSE = 120.0
"""How long a server waits for a Response, in seconds, unless it was told otherwise."""

_NOT_ANSWERED = "Loom-Response"
_PARAMETERS = "Loom-Parameters"
_GATEWAY = (502, 504)


class Invoked(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a request to a flow: its answer, or the runs that have none (yet)."""

    status: int
    headers: dict[str, str]
    content: bytes
    run_id: str | None = None
    """The run that has answered; None if none has."""
    runs: list[Run] = []
    """Without an answer: the run, or all runs that the flow's `splitOn` has started."""

    @property
    def text(self) -> str:
        """The answer as text."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The answer as JSON; None if it is empty."""
        return msgspec.json.decode(self.content) if self.content else None


def invocation(  # noqa: PLR0913 - all by name
    address: str,
    body: Any,
    *,
    method: str,
    path: str,
    queries: Mapping[str, str] | None,
    headers: Mapping[str, str] | None,
    parameters: Mapping[str, Any] | None,
    wait: float | None,
    key: str | None,
) -> ApiCall:
    """Make the request that fires the trigger of a flow, at the address of the flow."""
    below = "".join(f"/{segment(part, 'part of a path')}" for part in path.strip("/").split("/") if part)
    call = act(
        f"{address}{below}",
        key=key,
        params={**(queries or {}), "wait": wait},
        wait=LONGEST_RESPONSE if wait is None else wait,
        marked_by=ANSWERED_BY,
    )
    given = {**(headers or {}), **call.headers}
    if parameters is not None:
        given[_PARAMETERS] = json.dumps(parameters)  # in ASCII, as headers are
    return msgspec.structs.replace(call, method=method.upper(), body=body, headers=given)


def invoked_from(response: httpx2.Response) -> Invoked:
    """Read what came of a request to a flow. What a server says in place of the flow is marked as such."""
    is_answer = ANSWERED_BY in response.headers and _NOT_ANSWERED not in response.headers
    if response.status_code in _GATEWAY and not is_answer:
        raise refusal(response, response.headers.get(ANSWERED_BY))
    return Invoked(
        status=response.status_code,
        headers=dict(response.headers),
        content=response.content,
        run_id=response.headers[ANSWERED_BY] if is_answer else None,
        runs=runs_in(response) if not is_answer and response.content else [],
    )


def runs_in(response: httpx2.Response) -> list[Run]:
    """Read the run that has not answered, or all runs that one request has started."""
    found = decoded(response, dict[str, Any])
    return decoded(response, Page[Run]).items if "items" in found else [decoded(response, Run)]
