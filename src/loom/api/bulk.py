"""Acts on many runs at once: what is asked, and how far it is."""

from __future__ import annotations

from typing import Any, Literal

from loom.api.answers import Answer, Id, promises
from loom.api.requests import Request

BulkAction = Literal["cancel", "retry", "resume", "pause", "delete"]


class BulkRequest(Request):
    """An act on all runs that pass the filter: names and values as in the query of `GET /v1/runs`."""

    action: BulkAction
    filter: dict[str, Any]
    dry_run: bool = False
    reason: str | None = None


@promises(run_id=Id)
class BulkFailure(Answer, frozen=True, kw_only=True):
    """A run for which the act failed, and why."""

    run_id: str
    code: str
    message: str


class Bulk(Answer, frozen=True, kw_only=True):
    """How far an act on many runs is."""

    action: BulkAction
    dry_run: bool
    matched: int
    """How many runs passed the filter when it began; runs that were started later are not touched."""
    done: int = 0
    failed: list[BulkFailure] = []
    """The first 100."""
    failed_count: int = 0
    sample: list[str] = []
    """The ids of the first 20 runs that passed the filter."""
    finished: bool = False
    """False in the last message: it was stopped, and what is done stays done."""
