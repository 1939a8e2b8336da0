"""`workflows.context.serializers`. Re-exports only; may import every room below `compat`."""

from __future__ import annotations

from loom.steps.serializers import BaseSerializer, JsonPickleSerializer, JsonSerializer, PickleSerializer

__all__ = ["BaseSerializer", "JsonPickleSerializer", "JsonSerializer", "PickleSerializer"]
