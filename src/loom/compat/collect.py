"""`workflows.collect`. Re-exports only."""

from __future__ import annotations

from loom.steps.step_config import All, Cardinality, Collect, Take

__all__ = ["All", "Cardinality", "Collect", "Take"]
