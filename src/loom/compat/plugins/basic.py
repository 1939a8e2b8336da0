"""`workflows.plugins.basic`. Re-exports only; may import every room below `compat`."""

from __future__ import annotations

from loom.runtime.basic import BasicRuntime, JournalRecord, basic_runtime

__all__ = ["BasicRuntime", "JournalRecord", "basic_runtime"]
