"""The state store of a run: a model that steps read and write by dotted paths or edit as a whole."""

from __future__ import annotations

from loom.steps.state_store.edits import StoreEdit
from loom.steps.state_store.payload import StateCheckpoint, UnserializableKeyWarning, apply_state_patch
from loom.steps.state_store.state import (
    MAX_DEPTH,
    MODEL_T,
    DictState,
    copy_state_for_edit,
    get_by_path,
    infer_state_type,
    set_by_path,
)
from loom.steps.state_store.store import InMemoryStateStore, StateStore

__all__ = [
    "MAX_DEPTH",
    "MODEL_T",
    "DictState",
    "InMemoryStateStore",
    "StateCheckpoint",
    "StateStore",
    "StoreEdit",
    "UnserializableKeyWarning",
    "apply_state_patch",
    "copy_state_for_edit",
    "get_by_path",
    "infer_state_type",
    "set_by_path",
]
