"""States: paths into them, copies of them, and which class a workflow has."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from loom.steps.state_store import MAX_DEPTH, DictState, copy_state_for_edit, get_by_path, infer_state_type, set_by_path
from loom.steps.state_store.state import with_path_set


class Profile(BaseModel):
    name: str = "Ada"
    tags: list[str] = []


class Typed(DictState):
    count: int = 0

    @property
    def doubled(self) -> int:
        return self.count * 2


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("user.name", "Ada"),
        ("rows.1.cell", 2),
        ("rows.-1.cell", 2),
        ("pair.0", "x"),
        ("profile.tags.0", "t"),
        ("thing.attr", 5),
    ],
)
def test_a_path_goes_through_dicts_lists_models_and_attributes(path: str, expected: object) -> None:
    state = DictState(
        user={"name": "Ada"},
        rows=[{"cell": 1}, {"cell": 2}],
        pair=("x", "y"),
        profile=Profile(tags=["t"]),
        thing=SimpleNamespace(attr=5),
    )

    assert get_by_path(state, path) == expected


def test_the_empty_path_is_the_state_itself() -> None:
    state = DictState(a=1)

    assert get_by_path(state, "") is state


@pytest.mark.parametrize("path", ["b", "a.b", "l.9", "l.x", "items", "l.0.deep"])
def test_a_path_that_leads_nowhere_is_an_error_or_the_default(path: str) -> None:
    state = DictState(a=1, l=[None])

    with pytest.raises(ValueError, match=f"^Path '{path}' not found in state$"):
        get_by_path(state, path)
    assert get_by_path(state, path, None) is None


def test_an_error_in_user_code_is_not_taken_for_a_missing_path() -> None:
    class Broken:
        @property
        def value(self) -> int:
            raise RuntimeError("database is down")

    with pytest.raises(RuntimeError, match="database is down"):
        get_by_path(DictState(x=Broken()), "x.value", None)


def test_items_of_a_dict_like_model_come_before_its_methods() -> None:
    state = DictState()
    set_by_path(state, "items", [1])
    set_by_path(state, "7", "seven")

    assert get_by_path(state, "items.0") == 1
    assert get_by_path(state, "7") == "seven"


def test_the_name_of_the_items_dict_is_a_key_like_any_other() -> None:
    state = DictState(a=1)
    set_by_path(state, "_data", 2)

    assert get_by_path(state, "_data") == 2
    assert get_by_path(state, "a") == 1


def test_declared_fields_and_properties_of_a_dict_like_state_are_reached() -> None:
    state = Typed()
    set_by_path(state, "count", 4)

    assert (state.count, get_by_path(state, "count"), get_by_path(state, "doubled")) == (4, 4, 8)
    assert "count" not in state


def test_setting_makes_dicts_on_the_way() -> None:
    state = DictState()
    set_by_path(state, "a.b.c", 1)

    assert state["a"] == {"b": {"c": 1}}


@pytest.mark.parametrize("path", ["n.b", "n.b.c", "l.5", "l.5.x"])
def test_setting_where_nothing_can_be_put_is_an_error(path: str) -> None:
    with pytest.raises(AttributeError):
        set_by_path(DictState(n=1, l=[0]), path, 1)


def test_paths_have_a_largest_depth_and_writes_a_smallest() -> None:
    deep = ".".join(["a"] * (MAX_DEPTH + 1))

    with pytest.raises(ValueError, match="Path length exceeds 1000 segments"):
        get_by_path(DictState(), deep, None)
    with pytest.raises(ValueError, match="Path length exceeds 1000 segments"):
        set_by_path(DictState(), deep, 1)
    with pytest.raises(ValueError, match="Path cannot be empty"):
        set_by_path(DictState(), "", 1)


def test_a_write_copies_the_containers_on_its_way_and_shares_the_rest() -> None:
    other: dict[str, Any] = {}
    state = DictState(a={"rows": [Profile(), Profile()], "other": other})
    written = with_path_set(state, ["a", "rows", "1", "name"], "Bob")

    assert get_by_path(written, "a.rows.1.name") == "Bob"
    assert get_by_path(state, "a.rows.1.name") == "Ada"
    assert get_by_path(written, "a.rows.0") is get_by_path(state, "a.rows.0")
    assert get_by_path(written, "a.other") is other


def test_a_write_through_an_object_that_cannot_be_rebuilt_leaves_the_old_state_alone() -> None:
    state = DictState(thing=SimpleNamespace(attr=1), pair=({"k": 1},))

    assert get_by_path(with_path_set(state, ["thing", "attr"], 2), "thing.attr") == 2
    assert get_by_path(with_path_set(state, ["pair", "0", "k"], 2), "pair.0.k") == 2
    assert get_by_path(state, "thing.attr") == 1
    assert get_by_path(state, "pair.0.k") == 1


class Uncopyable:
    def __deepcopy__(self, memo: dict[int, Any]) -> Uncopyable:
        raise NotImplementedError("I am a socket")


class Client(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="allow")
    handle: Any = Field(default=None, exclude=True)
    rows: list[int] = []
    _seen: list[int] = PrivateAttr(default_factory=list)


@pytest.mark.parametrize(
    "value",
    [[[1]], {"k": [1]}, ([1],), deque([[1]], maxlen=3), Client(rows=[1]), DictState(x=[1])],
    ids=lambda value: type(value).__name__,
)
def test_data_is_copied_to_the_bottom(value: Any) -> None:
    copied = copy_state_for_edit(DictState(v=value))["v"]

    assert copied == value
    assert type(copied) is type(value)
    assert copied is not value
    _append_to_inner_list(copied)
    assert copied != value


def _append_to_inner_list(value: Any) -> None:
    if isinstance(value, Client):
        value.rows.append(2)
    else:
        (value["k"] if isinstance(value, dict) else value["x"] if isinstance(value, DictState) else value[0]).append(2)


def test_sets_are_copied_and_a_deque_keeps_its_length() -> None:
    state = DictState(s={1, 2}, f=frozenset({1}), d=deque([1], maxlen=2))
    copied = copy_state_for_edit(state)
    copied["s"].add(3)

    assert state["s"] == {1, 2}
    assert copied["f"] == frozenset({1})
    assert copied["d"].maxlen == 2


def test_excluded_fields_are_shared_wherever_the_model_is() -> None:
    handle: list[int] = []
    copied = copy_state_for_edit(DictState(deep=[{"client": Client(handle=handle)}]))

    assert copied["deep"][0]["client"].handle is handle


def test_extra_and_private_values_are_data() -> None:
    client = Client(more=[1])
    client._seen.append(1)
    copied = copy_state_for_edit(client)
    copied._seen.append(2)
    copied.more.append(2)  # type: ignore[attr-defined]

    assert client._seen == [1]
    assert client.more == [1]  # type: ignore[attr-defined]


def test_what_cannot_be_copied_is_shared_and_its_neighbours_are_not() -> None:
    live = Uncopyable()
    rows = [1]
    copied = copy_state_for_edit(DictState(live=live, both=[live, rows]))

    assert copied["live"] is live
    assert copied["both"][0] is live
    assert copied["both"][1] is not rows


def test_a_half_made_copy_is_never_found_by_a_second_reference() -> None:
    class Holder:
        def __init__(self, **parts: Any) -> None:
            self.__dict__.update(parts)

    inner = Holder(name="whole", live=Uncopyable())
    outer = Holder(inner=inner)
    copied = copy_state_for_edit(DictState(outer=outer, inner=inner))

    assert copied["inner"].name == "whole"
    assert copied["outer"] is outer


def test_cycles_and_shared_values_keep_their_shape() -> None:
    ring: list[Any] = []
    pair = (ring,)
    ring.append(pair)
    copied = copy_state_for_edit(DictState(ring=ring, again=ring))

    assert copied["ring"] is copied["again"]
    assert copied["ring"][0][0] is copied["ring"]
    assert copied["ring"] is not ring


def test_a_model_that_says_how_it_copies_is_obeyed() -> None:
    class Own(BaseModel):
        n: int = 0

        def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Own:
            return Own(n=self.n + 1)

    assert copy_state_for_edit(DictState(own=Own()))["own"].n == 1


class Base(BaseModel):
    pass


class Child(Base):
    pass


class Grandchild(Child):
    pass


class Stranger(BaseModel):
    pass


def steps(*state_types: Any) -> dict[str, Any]:
    return {f"step{n}": SimpleNamespace(context_state_type=kind) for n, kind in enumerate(state_types)}


@pytest.mark.parametrize(
    ("state_types", "expected"),
    [
        ((), DictState),
        ((None, DictState, int), DictState),
        ((None, Base), Base),
        ((Base, Grandchild, Child), Grandchild),
    ],
)
def test_the_most_derived_class_is_the_state(state_types: tuple[Any, ...], expected: type[BaseModel]) -> None:
    assert infer_state_type(steps(*state_types)) is expected


def test_classes_of_two_chains_are_an_error_that_names_them() -> None:
    with pytest.raises(ValueError, match=r"not in a compatible inheritance hierarchy.*Found: Child, Stranger"):
        infer_state_type(steps(Child, Stranger))


def test_a_workflow_is_asked_for_its_steps() -> None:
    functions = {name: SimpleNamespace(_step_config=config) for name, config in steps(Child).items()}

    assert infer_state_type(SimpleNamespace(_get_steps=lambda: functions)) is Child
