"""States as payloads, checkpoints and the patches between them."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from loom.steps.serializers import BaseSerializer, JsonSerializer
from loom.steps.state_store import (
    DictState,
    InMemoryStateStore,
    StateCheckpoint,
    UnserializableKeyWarning,
    apply_state_patch,
)


class Typed(BaseModel):
    n: int = 0
    live: Any = Field(default=None, exclude=True)


class Labelled(DictState):
    label: str = "none"


class Reversed(BaseSerializer):
    """A serializer of the user's own, whose text is no JSON."""

    def serialize(self, value: Any) -> str:
        return "!" + JsonSerializer().serialize(value)[::-1]

    def deserialize(self, value: str) -> Any:
        return JsonSerializer().deserialize(value[:0:-1])


def test_each_value_of_a_dict_state_is_encoded_by_itself() -> None:
    payload = InMemoryStateStore(DictState(a=1, b={"c": [None]})).to_dict(JsonSerializer())

    assert payload == {
        "store_type": "in_memory",
        "state_type": "DictState",
        "state_module": "workflows.context.state_store",
        "state_data": {"_data": {"a": "1", "b": '{"c": [null]}'}},
    }


def test_a_typed_state_is_one_text() -> None:
    payload = InMemoryStateStore(Typed(n=1, live=object())).to_dict(JsonSerializer())

    assert payload["state_type"] == "Typed"
    assert payload["state_module"] == __name__
    assert (
        payload["state_data"] == f'{{"__is_pydantic": true, "value": {{"n": 1}}, "qualified_name": "{__name__}.Typed"}}'
    )


@pytest.mark.parametrize("serializer", [JsonSerializer(), Reversed()], ids=["json", "other"])
@pytest.mark.parametrize("state", [DictState(a=[1], _x=2), Typed(n=3), Labelled(label="l", more=[1])])
async def test_what_was_written_comes_back(state: BaseModel, serializer: BaseSerializer) -> None:
    store: InMemoryStateStore[Any] = InMemoryStateStore.from_dict(
        InMemoryStateStore(state).to_dict(serializer), serializer
    )

    assert await store.get_state() == state
    assert store.state_type is type(state)


@pytest.mark.parametrize("serializer", [JsonSerializer(), Reversed()], ids=["json", "other"])
@pytest.mark.parametrize("state", [DictState(a=[1]), Typed(n=3)])
async def test_the_tree_of_a_checkpoint_comes_back(state: BaseModel, serializer: BaseSerializer) -> None:
    tree = InMemoryStateStore(state).checkpoint().to_dict()
    if isinstance(serializer, Reversed):
        serializer = _ReadsJson()

    store: InMemoryStateStore[Any] = InMemoryStateStore.from_dict(tree, serializer)
    assert await store.get_state() == state


class _ReadsJson(Reversed):
    def deserialize(self, value: str) -> Any:
        return JsonSerializer().deserialize(value)


@pytest.mark.parametrize("payload", [{}, {"state_data": None}, {"store_type": "in_memory"}])
async def test_nothing_is_an_empty_state(payload: dict[str, Any]) -> None:
    store: InMemoryStateStore[DictState] = InMemoryStateStore.from_dict(payload, JsonSerializer())

    assert await store.get_state() == DictState()


async def test_older_forms_are_read() -> None:
    text = '{"_data": {"a": "1"}}'
    as_object = {"__is_pydantic": True, "value": {"n": 2}, "qualified_name": f"{__name__}.Typed"}
    read = [
        await InMemoryStateStore[Any].from_dict({"state_data": data}, JsonSerializer()).get_state()
        for data in (text, as_object, Typed(n=4))
    ]

    assert read == [DictState(a=1), Typed(n=2), Typed(n=4)]


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"store_type": "sqlite"}, "Cannot parse store_type 'sqlite'"),
        ({"state_data": 5}, "Unrecognized state payload of type int"),
        ({"state_data": {"x": 1}}, "Unrecognized state payload: dict without a '_data' wrapper"),
        ({"state_data": '"x"'}, "Unrecognized state payload: string decoding to str"),
        ({"state_data": {"_tree": "model", "x": 1}}, "Unrecognized state payload: tree decoding to dict"),
        ({"state_data": {"_data": {"k": "zz"}}}, "Failed to deserialize state value for key k: "),
        (
            {"state_data": '{"__is_pydantic": true, "value": {}, "qualified_name": "os.path"}'},
            "os.path",
        ),
    ],
)
def test_what_is_no_state_is_refused(payload: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        InMemoryStateStore.from_dict(payload, JsonSerializer())


def test_a_value_that_cannot_be_written_is_an_error_that_names_its_key() -> None:
    store = InMemoryStateStore(DictState(a=object()))

    with pytest.raises(ValueError, match="Failed to serialize state value for key a: "):
        store.to_dict(JsonSerializer())
    with pytest.raises(ValueError, match="Failed to serialize state value for key a: "):
        store.checkpoint().to_dict()


def test_a_memory_that_cannot_be_written_is_left_out_with_a_warning() -> None:
    store = InMemoryStateStore(DictState(memory=object(), a=1))
    with pytest.warns(UnserializableKeyWarning, match="known unserializable key: memory"):
        payload = store.to_dict(JsonSerializer())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("once", UnserializableKeyWarning)
        store.to_dict(JsonSerializer())
        store.to_dict(JsonSerializer())

    assert payload["state_data"] == {"_data": {"a": "1"}}
    assert len(seen) == 1
    assert InMemoryStateStore(DictState(memory=[1])).to_dict(JsonSerializer())["state_data"] == {
        "_data": {"memory": "[1]"}
    }


class Inner(BaseModel):
    tags: list[str] = []


class TypedState(BaseModel):
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
    assert checkpoint(TypedState(n=1)).to_dict()["state_data"] == {
        "_tree": "model",
        "__is_pydantic": True,
        "value": {"n": 1, "inner": {"tags": []}, "values": None},
        "qualified_name": f"{__name__}.TypedState",
    }


def test_patches_say_only_what_changed() -> None:
    old = TypedState(inner=Inner(tags=["a", "b"]))
    new = TypedState(n=2, inner=Inner(tags=["a", "x", "b"]))

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
    old, new = checkpoint(DictState(a=1)), checkpoint(TypedState(n=3))

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
_typed_states = st.builds(TypedState, n=st.integers(0, 2), values=_json)


@given(old=_dict_states | _typed_states, new=_dict_states | _typed_states)
def test_a_diff_applied_to_the_first_gives_the_second(old: BaseModel, new: BaseModel) -> None:
    before, after = checkpoint(old), checkpoint(new)
    payload = before.to_dict()
    text = json.dumps(payload)
    patched = apply_state_patch(payload, after.diff(before))

    assert json.dumps(patched, sort_keys=True) == json.dumps(after.to_dict(), sort_keys=True)
    assert json.dumps(payload) == text
