from __future__ import annotations

import warnings
from typing import Any

import pytest
from pydantic import BaseModel, Field

from loom.steps.serializers import BaseSerializer, JsonSerializer
from loom.steps.state_store import DictState, InMemoryStateStore, UnserializableKeyWarning


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
