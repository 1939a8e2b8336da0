"""`workflows.testing`. Re-exports only."""

from __future__ import annotations

from loom.testing.runner import WorkflowTestRunner

__all__ = ["WorkflowTestRunner"]
