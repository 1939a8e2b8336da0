"""Checkpoints: references to a committed state, and the patches between them.

May import pydantic, `loom.steps.serializers` and the payloads and patches beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.steps.state_store.dict_state import DictState
from loom.steps.state_store.patch import Operation, diff_members, diff_trees
from loom.steps.state_store.payload import encode_tree, encode_tree_item

if TYPE_CHECKING:
    from pydantic import BaseModel

    from loom.steps.serializers import JsonSerializer


class StateCheckpoint:
    """A committed state at one point in time. It costs a reference: writes make a new state and leave this one.

    A value that was mutated in place, without a write to the store, changes in every checkpoint that shares it.
    """

    __slots__ = ("_serializer", "_state")

    def __init__(self, state: BaseModel, serializer: JsonSerializer) -> None:
        self._state = state
        self._serializer = serializer

    @property
    def state(self) -> BaseModel:
        """The state itself, not to be mutated; the same object in two checkpoints means no write between them."""
        return self._state

    def to_dict(self) -> dict[str, Any]:
        """Encode the state for the `state` part of a context dict, as a tree that patches can address."""
        return encode_tree(self._state, self._serializer)

    def diff(self, since: StateCheckpoint) -> list[Operation]:
        """Give the JSON Patch that turns `since.to_dict()` into `self.to_dict()`."""
        old, new = since._state, self._state
        if old is new:
            return []
        if type(old) is DictState and type(new) is DictState:
            return self._diff_items(old, new)
        before, after = since.to_dict(), self.to_dict()
        if type(old) is type(new):
            return diff_members(before["state_data"], after["state_data"], "/state_data")
        return diff_trees(before, after)

    def _diff_items(self, old: DictState, new: DictState) -> list[Operation]:
        """Compare item by item, so that what both share costs nothing."""
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for key in {**old._data, **new._data}:
            if key in old and key in new and old[key] is new[key]:
                continue
            for state, tree in ((old, before), (new, after)):
                if key in state:
                    tree.update(encode_tree_item(key, state[key], self._serializer))
        return diff_members(before, after, "/state_data/_data")
