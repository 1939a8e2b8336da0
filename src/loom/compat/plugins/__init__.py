"""`workflows.plugins`. Re-exports only; may import every room below `compat`."""

from __future__ import annotations

from loom.runtime.basic import BasicRuntime, basic_runtime, get_current_runtime

__all__ = ["BasicRuntime", "basic_runtime", "get_current_runtime"]
