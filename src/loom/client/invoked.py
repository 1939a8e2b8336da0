"""What comes of a request to a flow that is an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from loom.api.answers import Page
from loom.api.runs import Run
from loom.client.exchange import decoded

if TYPE_CHECKING:
    import httpx2


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


def runs_in(response: httpx2.Response) -> list[Run]:
    """Read the run that has not answered, or all runs that one request has started."""
    found = decoded(response, dict[str, Any])
    return decoded(response, Page[Run]).items if "items" in found else [decoded(response, Run)]
