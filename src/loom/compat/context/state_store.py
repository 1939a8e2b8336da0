"""`workflows.context.state_store`. Re-exports only."""

from __future__ import annotations

from loom.steps.state_store import (
    MAX_DEPTH,
    DictState,
    InMemoryStateStore,
    StateCheckpoint,
    StateStore,
    UnserializableKeyWarning,
    apply_state_patch,
    copy_state_for_edit,
    get_by_path,
    infer_state_type,
    set_by_path,
)

__all__ = [
    "MAX_DEPTH",
    "DictState",
    "InMemoryStateStore",
    "StateCheckpoint",
    "StateStore",
    "UnserializableKeyWarning",
    "apply_state_patch",
    "copy_state_for_edit",
    "get_by_path",
    "infer_state_type",
    "set_by_path",
]
