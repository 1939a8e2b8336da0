"""`workflows.testing`. Re-exports only; may import every room below `compat`."""

from __future__ import annotations

from loom.testing.runner import WorkflowTestRunner

__all__ = ["WorkflowTestRunner"]
