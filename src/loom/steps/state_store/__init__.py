"""The state store of a run: a model that steps read and write by dotted paths or edit as a whole.

May import pydantic, `loom.steps.dict_like`, `loom.steps.registry` and `loom.steps.serializers`.
"""

from __future__ import annotations

from loom.steps.state_store.checkpoint import StateCheckpoint
from loom.steps.state_store.copying import copy_state_for_edit
from loom.steps.state_store.dict_state import MODEL_T, DictState
from loom.steps.state_store.edits import StoreEdit
from loom.steps.state_store.inference import infer_state_type
from loom.steps.state_store.patch import apply_state_patch
from loom.steps.state_store.paths import MAX_DEPTH, get_by_path, set_by_path
from loom.steps.state_store.payload import UnserializableKeyWarning
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
