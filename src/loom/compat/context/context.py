"""`workflows.context.context`. Re-exports only."""

from __future__ import annotations

from loom.steps.context import Context
from loom.steps.serializers import BaseSerializer, JsonSerializer, PickleSerializer

__all__ = ["BaseSerializer", "Context", "JsonSerializer", "PickleSerializer"]
