"""`workflows.handler`. Re-exports only."""

from __future__ import annotations

from loom.steps.handler import WorkflowHandler

__all__ = ["WorkflowHandler"]
