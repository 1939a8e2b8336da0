"""`workflows.context`. Re-exports only; may import every room below `compat`."""

from __future__ import annotations

from loom.steps.context import Context
from loom.steps.serializers import BaseSerializer, JsonSerializer, PickleSerializer

__all__ = ["BaseSerializer", "Context", "JsonSerializer", "PickleSerializer"]
