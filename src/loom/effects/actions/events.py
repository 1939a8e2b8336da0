"""The events between waiting actions and the world. May import loom.steps."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from loom.steps.event_base import HumanResponseEvent
from loom.steps.registry import framework_name


class CallbackEvent(HumanResponseEvent):
    """A service has called back."""

    key: str
    """The key of the action that waits for it, or its name."""
    body: Any = None
    headers: dict[str, Any] = Field(default_factory=dict)
    queries: dict[str, Any] = Field(default_factory=dict)


framework_name(CallbackEvent, "loom.flows.CallbackEvent")
