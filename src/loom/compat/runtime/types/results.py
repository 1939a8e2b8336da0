"""`workflows.runtime.types.results`. Re-exports only; may import every room below `compat`."""

from __future__ import annotations

from loom.steps.compat_names import WaitingForEvent

__all__ = ["WaitingForEvent"]
