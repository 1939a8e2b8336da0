"""`workflows.handler`. Re-exports only; may import every room below `compat`."""

from __future__ import annotations

from loom.steps.handler import WorkflowHandler

__all__ = ["WorkflowHandler"]
