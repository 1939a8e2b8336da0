"""`workflows.context.serializers`. Re-exports only."""

from __future__ import annotations

from loom.steps.serializers import BaseSerializer, JsonPickleSerializer, JsonSerializer, PickleSerializer

__all__ = ["BaseSerializer", "JsonPickleSerializer", "JsonSerializer", "PickleSerializer"]
