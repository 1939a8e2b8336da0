"""`workflows.plugins.basic`. Re-exports only."""

from __future__ import annotations

from loom.runtime.memory import BasicRuntime, JournalRecord, basic_runtime

__all__ = ["BasicRuntime", "JournalRecord", "basic_runtime"]
