from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from loom.steps.state_store import MAX_DEPTH, DictState, get_by_path, set_by_path
from loom.steps.state_store.paths import with_path_set


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
