from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from loom.steps.serializers import JsonSerializer
from loom.steps.state_store import (
    DictState,
    InMemoryStateStore,
    StateCheckpoint,
    UnserializableKeyWarning,
    apply_state_patch,
)


class Inner(BaseModel):
    tags: list[str] = []


class Typed(BaseModel):
    n: int = 0
    inner: Inner = Inner()
    values: Any = None


def checkpoint(state: BaseModel) -> StateCheckpoint:
    return StateCheckpoint(state, JsonSerializer())


def patch_between(old: BaseModel, new: BaseModel) -> list[dict[str, Any]]:
    return checkpoint(new).diff(checkpoint(old))


async def test_a_checkpoint_keeps_the_state_of_its_time() -> None:
    store = InMemoryStateStore(DictState(a={"b": 1}))
    before = store.checkpoint()
    same = store.checkpoint()
    await store.set("a.b", 2)

    assert same.state is before.state
    assert before.to_dict()["state_data"] == {"_tree": "dict", "_data": {"a": {"b": 1}}}
    assert store.checkpoint().diff(before) == [{"op": "replace", "path": "/state_data/_data/a/b", "value": 2}]
    assert same.diff(before) == []


def test_a_typed_state_is_a_tree_with_its_class() -> None:
    assert checkpoint(Typed(n=1)).to_dict()["state_data"] == {
        "_tree": "model",
        "__is_pydantic": True,
        "value": {"n": 1, "inner": {"tags": []}, "values": None},
        "qualified_name": f"{__name__}.Typed",
    }


def test_patches_say_only_what_changed() -> None:
    old = Typed(inner=Inner(tags=["a", "b"]))
    new = Typed(n=2, inner=Inner(tags=["a", "x", "b"]))

    assert patch_between(old, new) == [
        {"op": "replace", "path": "/state_data/value/n", "value": 2},
        {"op": "add", "path": "/state_data/value/inner/tags/1", "value": "x"},
    ]


def test_keys_with_slashes_and_tildes_are_escaped() -> None:
    patch = patch_between(DictState(_data={"a/b": 1, "c~d": 1}), DictState(_data={"a/b": 2, "e~/f": 3}))

    assert patch == [
        {"op": "replace", "path": "/state_data/_data/a~1b", "value": 2},
        {"op": "add", "path": "/state_data/_data/e~0~1f", "value": 3},
        {"op": "remove", "path": "/state_data/_data/c~0d"},
    ]


def test_numbers_and_booleans_are_not_confused() -> None:
    assert patch_between(DictState(a=[1], b=1), DictState(a=[True], b=1.0)) == [
        {"op": "replace", "path": "/state_data/_data/a/0", "value": True},
        {"op": "replace", "path": "/state_data/_data/b", "value": 1.0},
    ]


def test_a_container_is_replaced_where_that_is_shorter() -> None:
    assert patch_between(DictState(rows=list(range(20))), DictState(rows=[])) == [
        {"op": "replace", "path": "/state_data/_data/rows", "value": []}
    ]


def test_shared_items_are_not_even_encoded() -> None:
    live = object()

    assert patch_between(DictState(live=live, a=1), DictState(live=live, a=2)) == [
        {"op": "replace", "path": "/state_data/_data/a", "value": 2}
    ]


def test_a_memory_that_cannot_be_written_is_left_out_of_patches() -> None:
    with pytest.warns(UnserializableKeyWarning):
        patch = patch_between(DictState(memory=[1]), DictState(memory=object()))

    assert patch == [{"op": "remove", "path": "/state_data/_data/memory"}]


def test_another_class_of_state_is_patched_too() -> None:
    old, new = checkpoint(DictState(a=1)), checkpoint(Typed(n=3))

    assert apply_state_patch(old.to_dict(), new.diff(old)) == new.to_dict()


def test_a_patch_leaves_its_input_alone_and_shares_the_rest() -> None:
    state = {"state_data": {"_data": {"a": [1], "b": [2]}}}
    patched = apply_state_patch(state, [{"op": "add", "path": "/state_data/_data/a/-", "value": 5}])

    assert patched == {"state_data": {"_data": {"a": [1, 5], "b": [2]}}}
    assert state == {"state_data": {"_data": {"a": [1], "b": [2]}}}
    assert patched["state_data"]["_data"]["b"] is state["state_data"]["_data"]["b"]


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        ({"op": "move", "path": "/a", "from": "/b"}, "Unsupported state patch op 'move'"),
        ({"op": "remove", "path": "/zz"}, "'remove' does not fit the state at '/zz'"),
        ({"op": "add", "path": "/l/9", "value": 1}, "'add' does not fit the state at '/l/9'"),
        ({"op": "replace", "path": "/l/x", "value": 1}, "'replace' does not fit the state at '/l/x'"),
        ({"op": "add", "path": "/a/b/c", "value": 1}, "'add' does not fit the state at '/a/b/c'"),
        ({"op": "add", "path": "/a/b", "value": 1}, "'add' does not fit the state at '/a/b'"),
    ],
)
def test_a_patch_that_does_not_fit_is_refused(operation: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        apply_state_patch({"a": 1, "l": [0]}, [operation])


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, -0.0, 1.0]) | st.text("a/~", max_size=2),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text("a/~-0", max_size=2), inner, max_size=4),
    max_leaves=20,
)
_dict_states = st.dictionaries(st.sampled_from(["a", "b", "x/y", "_data"]), _json).map(
    lambda items: DictState(_data=items)
)
_typed_states = st.builds(Typed, n=st.integers(0, 2), values=_json)


@given(old=_dict_states | _typed_states, new=_dict_states | _typed_states)
def test_a_diff_applied_to_the_first_gives_the_second(old: BaseModel, new: BaseModel) -> None:
    before, after = checkpoint(old), checkpoint(new)
    payload = before.to_dict()
    text = json.dumps(payload)
    patched = apply_state_patch(payload, after.diff(before))

    assert json.dumps(patched, sort_keys=True) == json.dumps(after.to_dict(), sort_keys=True)
    assert json.dumps(payload) == text
