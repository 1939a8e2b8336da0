"""`workflows.plugins`. Re-exports only."""

from __future__ import annotations

from loom.runtime.memory import BasicRuntime, basic_runtime, get_current_runtime

__all__ = ["BasicRuntime", "basic_runtime", "get_current_runtime"]
