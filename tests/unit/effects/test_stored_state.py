"""The store of a stored run: its values as texts, and states made of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_serializer, field_validator, model_validator
from typing_extensions import override

from loom import Event
from loom.effects.convert import LIVE
from loom.effects.stored import MissingTypeError, StoredBodies
from loom.effects.stored_state import storable
from loom.steps.serializers import BaseSerializer, JsonSerializer
from loom.steps.state_store import DictState, InMemoryStateStore, StoreEdit, UnserializableKeyWarning
from loom.steps.tagged import TaggedSerializer

STORED = StoredBodies(TaggedSerializer())
MOMENT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


class Size(Enum):
    SMALL = "s"


class Parcel(Event):
    weight: int = 0
    size: Size = Size.SMALL
    sent: datetime | None = None


class Backwards(BaseSerializer):
    """A serializer of somebody else: JSON from right to left."""

    @override
    def serialize(self, value: Any) -> str:
        return JsonSerializer().serialize(value)[::-1]

    @override
    def deserialize(self, value: str) -> Any:
        return JsonSerializer().deserialize(value[::-1])


class Odd:
    def __init__(self, number: int) -> None:
        self.number = number


class Basket(BaseModel):
    items: list[Parcel] = Field(default_factory=list)
    names: set[str] = Field(default_factory=set)
    total: float = 0.0
    handle: Any = Field(default=None, exclude=True)
    memory: Any = None
    odd: Odd | None = None

    model_config = {"arbitrary_types_allowed": True}

    @field_serializer("odd")
    def write_odd(self, value: Odd | None) -> int | None:
        return value.number if value is not None else None

    @field_validator("odd", mode="before")
    @classmethod
    def read_odd(cls, value: Any) -> Any:
        return Odd(value) if isinstance(value, int) else value


class BigBasket(Basket):
    lid: tuple[int, ...] = ()


TYPED = StoredBodies(TaggedSerializer(), Basket)


def edited(convert: StoredBodies, store: InMemoryStateStore[Any]) -> list[tuple[dict[str, Any], tuple[str, ...], str]]:
    edits: list[tuple[dict[str, Any], tuple[str, ...], str]] = []

    def on_edit(edit: StoreEdit) -> bool:
        edits.append(convert.store_edit(edit))
        return True

    store.on_edit = on_edit
    return edits


def merged(edits: list[tuple[dict[str, Any], tuple[str, ...], str]]) -> tuple[dict[str, str], str]:
    values: dict[str, str] = {}
    name = ""
    for changed, removed, state_type in edits:
        for key in removed:
            values.pop(key, None)
        values.update(changed)
        name = state_type or name
    return values, name


async def test_store_without_declared_fields_comes_back() -> None:
    store: InMemoryStateStore[Any] = InMemoryStateStore()
    edits = edited(STORED, store)
    await store.set("a", {"b": (1, Parcel(weight=1))})
    await store.set("a.c", b"x")
    await store.set("gone", 1)
    async with store.edit_state() as state:
        del state.gone
    values, name = merged(edits)
    back = STORED.store_from(values, name, 4)
    assert back.version == 4
    assert (await back.get_state()) == DictState(a={"b": (1, Parcel(weight=1)), "c": b"x"})


async def test_declared_fields_are_written_as_their_types_say() -> None:
    store = InMemoryStateStore(Basket())
    edits = edited(TYPED, store)
    async with store.edit_state() as state:
        state.items.append(Parcel(weight=2, size=Size.SMALL, sent=MOMENT))
        state.names.add("x")
        state.total = math.inf
        state.handle = object()
        state.odd = Odd(7)
    values, name = merged(edits)
    assert name == ""
    assert "handle" not in values
    back = await TYPED.store_from(values).get_state()
    assert (back.items, back.names, back.total, back.handle) == (state.items, {"x"}, math.inf, None)
    assert back.odd is not None
    assert back.odd.number == 7


async def test_state_of_another_type_is_found_by_its_name() -> None:
    store: InMemoryStateStore[Any] = InMemoryStateStore(Basket())
    edits = edited(TYPED, store)
    await store.set_state(BigBasket(lid=(1, 2), names={"n"}))
    await store.set("total", 2.5)
    values, name = merged(edits)
    assert name.endswith("BigBasket")
    assert await TYPED.store_from(values, name).get_state() == BigBasket(lid=(1, 2), names={"n"}, total=2.5)
    for convert in (TYPED, StoredBodies(Backwards(), Basket)):
        with pytest.raises(MissingTypeError, match=r"nowhere\.Basket"):
            convert.store_from(values, "nowhere.Basket")


async def test_whole_store_is_staged() -> None:
    assert TYPED.store_values(InMemoryStateStore(state_type=Basket)) == ({}, "")
    staged = InMemoryStateStore(BigBasket(lid=(3,), handle=object()))
    values, name = TYPED.store_values(staged)
    assert await TYPED.store_from(values, name).get_state() == BigBasket(lid=(3,))
    assert TYPED.store_values(InMemoryStateStore(Basket(total=1.0)))[1] == ""


async def test_untouched_store_has_the_defaults_of_its_type() -> None:
    store = TYPED.store_from({}, "", 0)
    assert await store.get_state() == Basket()
    assert isinstance(await STORED.store_from({}).get_state(), DictState)


def test_value_that_cannot_be_stored_is_refused_with_its_key() -> None:
    with pytest.raises(ValueError, match=r"key 'a' cannot be stored: .*\[0\]: object of type object"):
        STORED.store_edit(StoreEdit(0, {"a": [object()]}))
    with pytest.raises(ValueError, match="lone surrogates"):
        STORED.store_edit(StoreEdit(0, {"\ud800": 1}))


def test_memory_of_an_agent_may_be_left_out() -> None:
    for convert in (STORED, TYPED):
        with pytest.warns(UnserializableKeyWarning, match="memory"):
            changed, removed, _ = convert.store_edit(StoreEdit(0, {"memory": object(), "b": 1}))
        assert set(changed) == {"b"}
        assert removed == ("memory",)


async def test_value_that_is_not_what_its_type_says_comes_back_all_the_same() -> None:
    changed, _, _ = TYPED.store_edit(StoreEdit(0, {"total": "much", "names": ("a", 1)}))
    back = await TYPED.store_from(changed).get_state()
    assert (back.total, back.names) == ("much", ("a", 1))


async def test_state_that_its_model_would_refuse_is_read_field_by_field() -> None:
    class Careful(BaseModel):
        low: int = 0
        high: int = 0

        @model_validator(mode="after")
        def ordered(self) -> Careful:
            assert self.low <= self.high
            return self

    convert = StoredBodies(TaggedSerializer(), Careful)
    changed, _, _ = convert.store_edit(StoreEdit(0, {"low": 5}))
    state = await convert.store_from(changed).get_state()
    assert (state.low, state.high) == (5, 0)
    with pytest.raises(ValueError, match="key 'low' cannot be read"):
        convert.store_from({"low": '="much"'})


async def test_field_that_is_declared_no_more_or_only_now_is_read() -> None:
    old, _, _ = STORED.store_edit(StoreEdit(0, {"total": 2.5, "names": {"a"}}))
    assert await TYPED.store_from(old).get_state() == Basket(total=2.5, names={"a"})
    typed, _, _ = TYPED.store_edit(StoreEdit(0, {"total": 2.5}))
    assert await STORED.store_from(typed).get_state() == DictState(total=2.5)


def test_live_conversion_leaves_edits_as_they_are() -> None:
    value = object()
    assert LIVE.store_edit(StoreEdit(0, {"a": value}, ("b",))) == ({"a": value}, ("b",), "")
    assert LIVE.store_edit(StoreEdit(0, {}, (), (), BigBasket))[2].endswith("BigBasket")
    assert LIVE.requirement(Parcel, "weight", value) is value


@pytest.mark.parametrize("before", [0, 1, 4298, 4299, 4300, 8601])
@pytest.mark.parametrize("digits", [4299, 4300, 9000])
def test_a_long_number_is_found_wherever_it_stands(before: int, digits: int) -> None:
    text = f"[{'0,' * (before // 2)}{' ' * (before % 2)}{'7' * digits},1]"
    if digits < 4300:
        assert storable(text) == text
    else:
        with pytest.raises(ValueError, match="4,300 digits"):
            storable(text)
    quoted = f'["{text}",1]'
    assert storable(quoted) == quoted
