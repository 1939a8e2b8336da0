"""`workflows.testing.runner`. Re-exports only."""

from __future__ import annotations

from loom.testing.runner import WorkflowTestResult, WorkflowTestRunner

__all__ = ["WorkflowTestResult", "WorkflowTestRunner"]
