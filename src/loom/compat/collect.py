"""`workflows.collect`. Re-exports only; may import every room below `compat`."""

from __future__ import annotations

from loom.steps.collect import All, Cardinality, Collect, Take

__all__ = ["All", "Cardinality", "Collect", "Take"]
