"""What the cluster itself knows of a run, as the rows of a store: from its memo, its first event and its close event.

May import temporalio, loom.store and the payloads beside it.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from temporalio.common import RawValue

from loom.store import codec
from loom.store.records import RunHead, RunRow
from loom.temporal.names import MEMO_RUN
from loom.temporal.payloads import Card, Ending, Opening, value_of

if TYPE_CHECKING:
    from temporalio.api.common.v1 import Payload
    from temporalio.api.history.v1 import HistoryEvent
    from temporalio.client import WorkflowExecution

    from loom.store.operations import StartRun
    from loom.temporal.store_cluster import Cluster

MEMO_ENDING = f"{MEMO_RUN}.end"
"""Where a cancelled run has its ending: not every version of the SDK can put it into the close event."""

_CLOSED_OTHERWISE = {
    "workflow_execution_terminated_event_attributes": "It was terminated on Temporal",
    "workflow_execution_timed_out_event_attributes": "It was timed out by Temporal",
    "workflow_execution_failed_event_attributes": "It has failed on Temporal",
}
_CLOSING = frozenset(
    [
        *_CLOSED_OTHERWISE,
        "workflow_execution_completed_event_attributes",
        "workflow_execution_canceled_event_attributes",
    ]
)


def is_closing(event: HistoryEvent) -> bool:
    """Whether an execution was closed by an event."""
    return event.WhichOneof("attributes") in _CLOSING


def start_digest(start: bytes) -> str:
    """Tells what runs were started with from each other."""
    return blake2b(start, digest_size=16).hexdigest()


def card_of_start(asked: StartRun, attributes: bool) -> Card:
    """The card of a run that is to be started."""
    return Card(
        asked.run_id,
        asked.workflow,
        asked.created_at,
        tags=dict(asked.tags),
        parent=asked.parent,
        parent_ref=asked.parent_ref,
        document=asked.document[0] if asked.document is not None else None,
        attributes=attributes,
        start=start_digest(asked.start),
    )


def card_of_row(row: RunRow, start: bytes, attributes: bool) -> Card:
    """The card of a run that comes from elsewhere, or goes on."""
    return Card(
        row.run_id,
        row.workflow,
        row.created_at,
        tags=dict(row.tags),
        parent=row.parent,
        parent_ref=row.parent_ref,
        forked_from=row.forked_from,
        document=row.document,
        attributes=attributes,
        start=start_digest(start),
    )


async def card_in_memo(execution: WorkflowExecution) -> Card | None:
    """The card of an execution; None if it is none of Loom's."""
    found = await execution.memo_value(MEMO_RUN, None, type_hint=RawValue)
    if found is None:
        return None
    try:
        return value_of(found.payload, Card)
    except ValueError:
        return None  # a memo of somebody else's, by the same name


def row_of_card(card: Card, head: RunHead | None = None, ended_at: float | None = None) -> RunRow:
    """A run of which only its card is known, and perhaps how it is."""
    return RunRow(
        card.run_id,
        card.workflow,
        card.created_at,
        head if head is not None else RunHead("running", 0, 0, card.created_at),
        tags=card.tags,
        ended_at=ended_at,
        parent=card.parent,
        parent_ref=card.parent_ref,
        forked_from=card.forked_from,
        document=card.document,
    )


def row_unanswered(card: Card, why: str) -> RunRow:
    """A run that goes on, but nobody who works for it answers."""
    return row_of_card(card, RunHead("running", 0, 0, card.created_at, error=why))


def how_closed(event: HistoryEvent) -> str:
    """Say in words how an execution was closed that did not end by itself."""
    kind = event.WhichOneof("attributes") or ""
    failure = event.workflow_execution_failed_event_attributes.failure
    reason = failure.message or (getattr(getattr(event, kind), "reason", "") if kind else "")
    words = _CLOSED_OTHERWISE.get(kind, "Its execution on Temporal was closed, and does not say how the run ended")
    return f"{words}: {reason}" if reason else f"{words}."


def row_closed_otherwise(card: Card, event: HistoryEvent) -> RunRow:
    """A run whose execution did not end by itself."""
    error = how_closed(event)
    at = event.event_time.ToMicroseconds() / 1_000_000
    return row_of_card(card, RunHead("failed", 0, 0, at, needs_worker=False, error=error), ended_at=at)


def ending_payload(event: HistoryEvent) -> Payload | None:
    """Where a close event has the run's ending, if it has one."""
    attributes: Any
    match event.WhichOneof("attributes"):
        case "workflow_execution_completed_event_attributes":
            found = event.workflow_execution_completed_event_attributes.result.payloads
        case "workflow_execution_failed_event_attributes":
            attributes = event.workflow_execution_failed_event_attributes
            found = attributes.failure.application_failure_info.details.payloads
        case "workflow_execution_canceled_event_attributes":
            found = event.workflow_execution_canceled_event_attributes.details.payloads
        case _:
            return None
    return found[0] if found else None


async def ending_in(cluster: Cluster, event: HistoryEvent) -> Ending | None:
    """How a run ended, by its close event; None if that does not say it."""
    payload = ending_payload(event)
    if payload is None:
        return None
    try:
        return value_of(await cluster.plain(payload), Ending)
    except ValueError:
        return None  # the result of a workflow that is none of Loom's


class Origin:
    """What an execution was opened with, and which executions there were before."""

    def __init__(self, opening: Opening | None, event: HistoryEvent) -> None:
        started = event.workflow_execution_started_event_attributes
        self.opening = opening
        """None if it is none of Loom's."""
        self.workflow = started.workflow_type.name
        self.execution = started.original_execution_run_id
        self.first = started.first_execution_run_id
        self.previous = started.continued_execution_run_id or (opening.previous if opening is not None else "")

    @property
    def start(self) -> bytes:
        """What the run began with; that of an empty start, if this execution does not know it."""
        opening = self.opening
        if opening is not None and opening.start is not None:
            return opening.start.encode()
        if opening is not None and opening.stored is not None:
            return opening.stored.start
        return codec.encode_start(codec.StartSpec())

    @property
    def document(self) -> bytes | None:
        """The text of the flow."""
        opening = self.opening
        if opening is None:
            return None
        if opening.document is not None:
            return opening.document.encode()
        return opening.stored.document if opening.stored is not None else None


async def origin_of(cluster: Cluster, run_id: str, execution: str = "") -> Origin:
    """What an execution was opened with, by its history: no worker is needed. `NotThere`."""
    event = await cluster.first_event(run_id, execution)
    given = event.workflow_execution_started_event_attributes.input.payloads
    opening = None
    if given:
        try:
            opening = value_of(await cluster.plain(given[0]), Opening)
        except ValueError:
            opening = None  # the argument of a workflow that is none of Loom's
    return Origin(opening, event)
