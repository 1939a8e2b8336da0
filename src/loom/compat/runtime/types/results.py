"""`workflows.runtime.types.results`. Re-exports only."""

from __future__ import annotations

from loom.steps.compat_names import WaitingForEvent

__all__ = ["WaitingForEvent"]
