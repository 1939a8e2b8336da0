"""Fields and extras, the mapping face, dumps and copies."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError
from pydantic.alias_generators import to_camel

from loom.steps.events import Event, StartEvent, StopEvent

T = TypeVar("T")


class Ping(Event):
    n: int
    s: str = "x"


class Opaque:
    pass


class Holder(Event):
    value: Opaque


class Frozen(Event):
    model_config = ConfigDict(frozen=True)
    a: int


class Private(Event):
    _p: int = PrivateAttr(default=7)


class Custom(Event):
    a: int

    def __init__(self, a: int, b: int = 2, **kwargs: Any) -> None:
        super().__init__(a=a, b=b, **kwargs)


class Box(Event, Generic[T]):
    value: T


# --- fields and extras


def test_undeclared_keywords_become_extras_in_their_order() -> None:
    ping = Ping(z=1, n=2, a=3, m=4)
    assert (ping.n, ping.z, ping.a) == (2, 1, 3)
    assert list(ping.items()) == [("z", 1), ("a", 3), ("m", 4)]


def test_the_mapping_face_covers_only_extras() -> None:
    ping = Ping(n=1, z=2)
    assert ping["z"] == 2
    assert "z" in ping
    assert "n" not in ping
    assert (list(ping), list(ping.keys()), list(ping.values()), len(ping)) == (["z"], ["z"], [2], 1)
    assert ping.get("n") is None
    assert ping.get("q", 5) == 5
    assert ping.to_dict() is ping._data
    assert {**ping} == {"z": 2}
    with pytest.raises(KeyError):
        ping["n"]


def test_items_and_attributes_are_the_same_extras() -> None:
    event = Event()
    event["a"] = 1
    event.b = 2
    assert (event.a, event["b"], event._data) == (1, 2, {"a": 1, "b": 2})
    del event.a
    assert event._data == {"b": 2}


def test_events_are_always_true() -> None:
    assert Event()
    assert StopEvent()


def test_a_missing_attribute_is_named() -> None:
    with pytest.raises(AttributeError, match="'Ping' object has no attribute 'nope'"):
        Ping(n=1).nope  # noqa: B018


def test_fields_are_validated_and_extras_are_not() -> None:
    with pytest.raises(ValidationError, match="n"):
        Ping(n="many", z=Opaque())
    with pytest.raises(ValidationError, match="Field required"):
        Ping(z=1)


def test_fields_can_be_set_and_stay_out_of_the_extras() -> None:
    ping = Ping(n=1)
    ping.n = 5
    assert (ping.model_dump(), len(ping)) == ({"n": 5, "s": "x"}, 0)


def test_a_frozen_event_refuses_its_fields_and_can_be_hashed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Frozen(a=1).a = 2
    assert hash(Frozen(a=1)) == hash(Frozen(a=1))
    assert Frozen(a=1, z=2).z == 2


def test_assignment_is_validated_where_the_model_says_so() -> None:
    class Strict(Event):
        model_config = ConfigDict(validate_assignment=True)
        a: int

    event = Strict(a=1)
    event.a = "5"
    assert event.a == 5
    with pytest.raises(ValidationError):
        event.a = "x"


def test_private_attributes_come_by_keyword_too() -> None:
    event = Private(_p=3, z=1)
    assert (event._p, Private()._p, event._data) == (3, 7, {"z": 1})
    event._p = 4
    assert event._p == 4
    assert event != Private(_p=3, z=1)


def test_other_underscored_names_are_extras() -> None:
    assert Ping(n=1, _hidden=3)._data == {"_hidden": 3}


@pytest.mark.parametrize("extra", ["allow", "forbid", "ignore"])
def test_extras_do_not_depend_on_pydantics_own(extra: Any) -> None:
    class Odd(Event):
        model_config = ConfigDict(extra=extra)
        a: int = 1

    assert (Odd(z=1)._data, Odd.model_validate({"z": 1}).model_dump()) == ({"z": 1}, {"a": 1, "_data": {"z": 1}})


def test_a_constructor_of_its_own_may_take_positions() -> None:
    event = Custom(1, c=3)
    assert (event.a, event._data) == (1, {"b": 2, "c": 3})
    assert Custom.model_validate(event.model_dump()) == event


def test_generic_events_check_their_parameter() -> None:
    assert Box[int](value="1", z=2).model_dump() == {"value": 1, "_data": {"z": 2}}
    with pytest.raises(ValidationError):
        Box[int](value="x")


def test_properties_work_and_a_setter_is_used() -> None:
    class Square(Event):
        side: int

        @property
        def area(self) -> int:
            return self.side**2

        @area.setter
        def area(self, value: int) -> None:
            self.side = math.isqrt(value)

        @functools.cached_property
        def edge(self) -> int:
            return self.side * 4

    square = Square(side=3)
    square.area = 25
    assert (square.side, square.area, square.edge, len(square)) == (5, 25, 20, 0)


def test_extras_set_after_validation_are_kept() -> None:
    class Late(Event):
        a: int

        def model_post_init(self, context: Any) -> None:
            self.double = self.a * 2

    assert Late(a=2)._data == {"double": 4}
    assert Late(a=2, z=1)._data == {"double": 4, "z": 1}


def test_other_models_can_be_mixed_in() -> None:
    class Named(BaseModel):
        name: str = "?"

    class NamedPing(Ping, Named):
        pass

    assert NamedPing(n=1, name="a", z=2).model_dump() == {"name": "a", "n": 1, "s": "x", "_data": {"z": 2}}


@pytest.mark.parametrize(
    ("alias", "keywords"),
    [
        ({"alias": "x"}, {"x": 1}),
        ({"alias": "x"}, {"a": 1}),
        ({"validation_alias": "x"}, {"x": 1}),
        ({"validation_alias": AliasChoices("x", "y")}, {"y": 1}),
        ({"validation_alias": AliasPath("x", "y")}, {"x": {"y": 1}}),
    ],
)
def test_fields_answer_to_aliases_and_names(alias: dict[str, Any], keywords: dict[str, Any]) -> None:
    class Aliased(Event):
        a: int = Field(**alias)

    event = Aliased(**keywords, z=2)
    assert (event.a, event._data) == (1, {"z": 2})
    assert Aliased.model_validate(event.model_dump()) == event


def test_generated_aliases_are_known_even_before_the_class_is_complete() -> None:
    class Camel(Event):
        model_config = ConfigDict(alias_generator=to_camel)
        some_thing: Later

    class Later(BaseModel):
        pass

    assert Camel(someThing=Later(), z=1)._data == {"z": 1}


def test_bad_extras_are_a_validation_error() -> None:
    with pytest.raises(ValidationError, match="_data must be a dict"):
        Ping.model_validate({"n": 1, "_data": 5})


# --- dumps, copies, equality

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
extras = st.dictionaries(st.text(min_size=1).filter(lambda key: key not in {"n", "s", "self", "_data"}), json_values)


@given(n=st.integers(), extra=extras)
def test_a_dump_validates_to_an_equal_event(n: int, extra: dict[str, Any]) -> None:
    ping = Ping(n=n, **extra)
    assert Ping.model_validate(ping.model_dump()) == ping
    assert Ping.model_validate(ping.model_dump(mode="json")) == ping


@given(result=json_values, extra=extras)
def test_a_stop_event_keeps_result_and_extras(result: Any, extra: dict[str, Any]) -> None:
    extra.pop("result", None)
    stop = StopEvent(result=result, **extra)
    again = StopEvent.model_validate(stop.model_dump())
    assert (again, again.result, again._data) == (stop, result, extra)


@given(extra=extras)
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, Ping.model_copy])
def test_a_copy_is_equal_and_has_its_own_extras(make: Any, extra: dict[str, Any]) -> None:
    ping = Ping(n=1, **extra)
    copied = make(ping)
    assert copied == ping
    copied["only here"] = 1
    assert "only here" not in ping


@pytest.mark.parametrize("update", [None, {"n": 2}, {"z": 1}, {"n": 2, "z": 1}])
def test_a_deep_copy_shares_nothing(update: dict[str, Any] | None) -> None:
    ping = Ping(n=1, inner=[1])
    copied = ping.model_copy(deep=True, update=update)
    copied.inner.append(2)
    assert ping.inner == [1]


def test_a_copy_can_change_fields_and_extras() -> None:
    copied = Ping(n=1, z=1).model_copy(update={"n": 2, "z": 3, "w": 4})
    assert copied.model_dump() == {"n": 2, "s": "x", "_data": {"z": 3, "w": 4}}


def test_the_given_extras_are_not_the_callers_dict() -> None:
    given_data = {"a": 1}
    event = Event(_data=given_data, b=2)
    assert (event._data, given_data) == ({"a": 1, "b": 2}, {"a": 1})


def test_equality_counts_type_fields_and_extras() -> None:
    assert Ping(n=1, z=1) == Ping(n=1, z=1)
    assert Ping(n=1, z=1) != Ping(n=1)
    assert Ping(n=1) != Ping(n=2)
    assert StopEvent(result=1) != StopEvent(result=2)
    assert StartEvent() != StopEvent()
    assert Event() != 5


def test_an_event_without_extras_dumps_without_data() -> None:
    assert Ping(n=1).model_dump() == {"n": 1, "s": "x"}


def test_construct_skips_validation_and_keeps_extras() -> None:
    assert Ping.model_construct(n="no", z=1, _data={"w": 2}).model_dump(warnings=False) == {
        "n": "no",
        "s": "x",
        "_data": {"w": 2, "z": 1},
    }


def test_any_type_is_allowed_in_a_field() -> None:
    value = Opaque()
    assert Holder(value=value).value is value
    assert Holder(value=value).model_dump() == {"value": value}
    with pytest.raises(ValidationError):
        Holder(value=1)


def test_nan_in_a_float_field_survives_the_json_form() -> None:
    class Measured(Event):
        x: float

    assert math.isnan(Measured.model_validate(Measured(x=math.nan).model_dump(mode="json")).x)
