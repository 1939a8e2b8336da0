"""`workflows.workflow`. Re-exports only; may import every room below `compat`."""

from __future__ import annotations

from loom.steps.workflow import Workflow, WorkflowMeta

__all__ = ["Workflow", "WorkflowMeta"]
