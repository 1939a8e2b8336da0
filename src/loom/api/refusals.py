"""Events that a run was sent and refused, because they do not fit their class."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec


class RefusedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The last event that was refused, while the run waits for one that fits."""

    step: str
    """The step that the event was for."""
    waiter_id: str | None = None
    """The wait that goes on; None if the step takes such events as its input."""
    event_type: str
    """The short name of the event's class."""
    reason: str
    """Which fields do not fit and why. Values are left out."""
    at: Annotated[datetime, msgspec.Meta(tz=True)]
