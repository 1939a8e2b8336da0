"""`workflows.types`. Re-exports only."""

from __future__ import annotations

from loom.steps.compat_names import RunResultT, StopEventT

__all__ = ["RunResultT", "StopEventT"]
