from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, model_validator

from loom.steps.state_store import DictState, InMemoryStateStore, StoreEdit


class Counter(BaseModel):
    count: int = 0
    names: list[str] = []
    handle: Any = Field(default=None, exclude=True)


class Named(Counter):
    title: str = Field(default="none", alias="Title")


class Journal(list[StoreEdit]):
    """An engine that takes every edit."""

    def __call__(self, edit: StoreEdit) -> bool:
        self.append(edit)
        return True


async def test_a_write_lists_the_top_level_key_only() -> None:
    journal = Journal()
    store = InMemoryStateStore(DictState(a={"x": 0}, other=[1]), on_edit=journal)
    await store.set("a.b", 1)

    assert journal == [StoreEdit(0, {"a": {"x": 0, "b": 1}})]
    assert store.version == 1


async def test_writing_back_a_value_that_was_changed_in_place_is_listed() -> None:
    journal = Journal()
    store = InMemoryStateStore(DictState(rows=[1]), on_edit=journal)
    rows = await store.get("rows")
    rows.append(2)
    await store.set("rows", rows)

    assert journal[0].changed == {"rows": [1, 2]}


async def test_setting_a_shallow_copy_back_lists_what_it_may_have_changed_in_place() -> None:
    journal = Journal()
    store = InMemoryStateStore(Counter(names=["a"]), on_edit=journal)
    state = await store.get_state()
    state.names.append("b")
    await store.set_state(state)

    assert journal[0].changed == {"names": ["a", "b"]}


async def test_an_edit_block_lists_what_differs_and_what_is_gone() -> None:
    journal = Journal()
    store = InMemoryStateStore(DictState(same=[{"k": (1, {2})}], gone=1, one=1, zero=0.0), on_edit=journal)
    async with store.edit_state() as state:
        del state._data["gone"]
        state.one = True
        state.zero = -0.0
        state.new = 5

    assert journal == [StoreEdit(0, {"one": True, "zero": -0.0, "new": 5}, ("gone",))]
    assert journal[0].changed["one"] is True


async def test_clear_lists_what_the_defaults_change() -> None:
    journal = Journal()
    store = InMemoryStateStore(Counter(count=3), on_edit=journal)
    await store.clear()

    assert journal == [StoreEdit(0, {"count": 0})]


async def test_every_writer_is_counted_even_if_nothing_differs() -> None:
    journal = Journal()
    store = InMemoryStateStore(Counter(), on_edit=journal)
    async with store.edit_state():
        pass

    assert journal == [StoreEdit(0, {})]
    assert store.version == 1


async def test_a_field_that_a_validator_changed_along_is_listed() -> None:
    class Sum(BaseModel):
        model_config = ConfigDict(validate_assignment=True)
        parts: int = 0
        total: int = 0

        @model_validator(mode="after")
        def add(self) -> Sum:
            self.__dict__["total"] = self.parts * 2
            return self

    journal = Journal()
    await InMemoryStateStore(Sum(), on_edit=journal).set("parts", 2)

    assert journal[0].changed == {"parts": 2, "total": 4}


async def test_excluded_fields_are_named_as_transient() -> None:
    journal = Journal()
    store = InMemoryStateStore(Counter(), on_edit=journal)
    await store.set("handle", object())
    async with store.edit_state() as state:
        state.count = 1

    assert journal[0].transient == ("handle",)
    assert journal[1] == StoreEdit(1, {"count": 1})


async def test_a_dropped_edit_leaves_the_store_and_its_version() -> None:
    store = InMemoryStateStore(DictState(a=1), on_edit=lambda edit: False)
    await store.set("a", 2)
    async with store.edit_state() as state:
        state.a = 3

    assert await store.get("a") == 1
    assert store.version == 0


async def test_a_refused_edit_leaves_the_store_and_its_lock_free() -> None:
    def refuse(edit: StoreEdit) -> bool:
        raise TypeError("state.a cannot be stored")

    store = InMemoryStateStore(DictState(a=1), on_edit=refuse)
    with pytest.raises(TypeError, match=r"state\.a cannot be stored"):
        await store.set("a", 2)
    async with store.edit_state() as state:
        store.on_edit = None
        state.a = 3

    assert await store.get("a") == 3
    assert store.version == 1


async def test_edits_bring_back_a_change_of_the_states_class() -> None:
    journal = Journal()
    store: InMemoryStateStore[Counter] = InMemoryStateStore(Counter(count=1), on_edit=journal)
    await store.set_state(Named(count=2, Title="t"))
    rebuilt: InMemoryStateStore[Counter] = InMemoryStateStore(Counter(count=1))
    rebuilt.apply_edit(journal[0])

    assert journal[0].state_type is Named
    assert await rebuilt.get_state() == Named(count=2, Title="t")


async def test_a_state_without_defaults_begins_with_its_first_edit() -> None:
    class Strict(BaseModel):
        n: int

    journal = Journal()
    store = InMemoryStateStore(state_type=Strict, on_edit=journal)
    await store.set_state(Strict(n=1))
    rebuilt = InMemoryStateStore(state_type=Strict)
    rebuilt.apply_edit(journal[0])

    assert await rebuilt.get_state() == Strict(n=1)


def test_an_edit_of_another_version_is_refused() -> None:
    store = InMemoryStateStore(DictState(), version=7)

    with pytest.raises(ValueError, match="based on version 3, the store has 7"):
        store.apply_edit(StoreEdit(3, {"a": 1}))


def test_an_edit_of_a_field_that_the_code_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="Counter has no field 'renamed'"):
        InMemoryStateStore(Counter()).apply_edit(StoreEdit(0, {"renamed": 1}))


async def test_foreign_objects_are_never_compared() -> None:
    class Touchy:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("ambiguous")

        __hash__ = None  # type: ignore[assignment]

    journal = Journal()
    store = InMemoryStateStore(DictState(t=Touchy()), on_edit=journal)
    async with store.edit_state() as state:
        state.a = 1

    assert set(journal[0].changed) == {"a", "t"}


async def test_a_state_with_a_cycle_can_be_edited() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    journal = Journal()
    store = InMemoryStateStore(DictState(ring=ring), on_edit=journal)
    async with store.edit_state() as state:
        state.a = 1

    assert journal == [StoreEdit(0, {"a": 1})]


_keys = st.sampled_from(["a", "b", "c", "items"])
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | st.text(max_size=2),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(_keys, inner, max_size=2) | st.tuples(inner) | st.just(set())
    ),
    max_leaves=4,
)
_writers = st.lists(
    st.one_of(
        st.tuples(st.just("set"), _keys, _values),
        st.tuples(st.just("below"), _keys, _values),
        st.tuples(st.just("edit"), _keys, _values),
        st.tuples(st.just("drop"), _keys, st.none()),
        st.tuples(st.just("replace"), _keys, _values),
        st.tuples(st.just("clear"), _keys, st.none()),
    ),
    max_size=6,
)


async def _write(store: InMemoryStateStore[DictState], kind: str, key: str, value: Any) -> None:
    if kind == "set":
        await store.set(key, value)
    elif kind == "below" and isinstance(await store.get(key, {}), dict):
        await store.set(f"{key}.a.b", value)
    elif kind == "replace":
        await store.set_state(DictState(_data={key: value}))
    elif kind == "clear":
        await store.clear()
    else:
        async with store.edit_state() as state:
            if kind == "edit":
                state[key] = [state.get(key), value]
            else:
                state._data.pop(key, None)


@given(writers=_writers)
async def test_replayed_edits_give_the_same_state(writers: list[tuple[str, str, Any]]) -> None:
    journal = Journal()
    live = InMemoryStateStore(on_edit=journal)
    for kind, key, value in writers:
        try:
            await _write(live, kind, key, value)
        except AttributeError:  # a value in the way of a path
            continue
    rebuilt = InMemoryStateStore()
    for edit in journal:
        rebuilt.apply_edit(edit)

    assert repr(sorted((await rebuilt.get_state()).items())) == repr(sorted((await live.get_state()).items()))
    assert rebuilt.version == live.version == len(journal)
