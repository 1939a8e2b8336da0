"""`workflows.workflow`. Re-exports only."""

from __future__ import annotations

from loom.steps.workflow import Workflow, WorkflowMeta

__all__ = ["Workflow", "WorkflowMeta"]
