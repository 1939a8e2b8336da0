"""A run's search attributes: since when it is idle and what it waits for, for clusters that have them.

They are not encrypted by any codec, so no value of a run goes into them: times and the names of event types only. May
import temporalio's messages and the names beside it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import Payload
from temporalio.bridge.proto.workflow_commands import workflow_commands_pb2 as messages

from loom.temporal.keywords import keywords
from loom.temporal.names import ATTRIBUTE_IDLE_SINCE, ATTRIBUTE_WAITING_FOR, PARKED, STUCK

if TYPE_CHECKING:
    from loom.temporal.hosted import HostedRun


class Attributes:
    """What the cluster knows of a run, told anew whenever it changes."""

    def __init__(self, *, is_new: bool) -> None:
        self._told: tuple[float | None, tuple[str, ...]] | None = (None, ()) if is_new else None
        """What was told last. A continued execution begins with what the one before has left, which nobody knows."""

    def changed(self, host: HostedRun) -> list[messages.WorkflowCommand]:
        """The command that brings them up to date, if they have changed."""
        if host.core.is_over and not host.is_parked:
            return []
        idle_since = host.core.look.idle_since
        waiting_for: tuple[str, ...] = ()
        if host.is_parked:
            waiting_for = (PARKED,)
        elif idle_since is not None:
            # Not whether it is paused: the word must change with `idle_since` alone, as recorded histories have it.
            waiting_for = host.head().waiting_for or (STUCK,)
        if self._told == (idle_since, waiting_for):
            return []
        self._told = (idle_since, waiting_for)
        built = messages.WorkflowCommand()
        moment = datetime.fromtimestamp(idle_since, tz=UTC).isoformat() if idle_since is not None else None
        attributes = built.upsert_workflow_search_attributes.search_attributes
        # Older versions of the SDK have a plain map here.
        fields: Any = getattr(attributes, "indexed_fields", attributes)
        fields[ATTRIBUTE_IDLE_SINCE].CopyFrom(attribute(moment, "Datetime"))
        fields[ATTRIBUTE_WAITING_FOR].CopyFrom(attribute(keywords(waiting_for), "KeywordList"))
        return [built]


def attribute(value: Any, kind: str) -> Payload:
    """The value of a search attribute as the server takes it; None takes it away."""
    return Payload(metadata={"encoding": b"json/plain", "type": kind.encode()}, data=json.dumps(value).encode())
